"""Stands in for a container's namespace: when its first process or the rehearsal ends, no process
below it survives.

It exits with the first process's code (128 + signal if a signal ended it), as a container runtime
reports it. On standard input, the byte T sends the first process SIGTERM, and end of file kills
everything at once: a killed rehearsal takes its pods along.

Run as `python -I -S container_init.py [option...] program argument...`:

* `--filter HEX SOCKET`: it and its descendants run under that seccomp filter
  (paddle_aws/storm/calls.py), whose listener goes to the socket.
* `--own UID GID BYTES FOLDER`: it and its descendants have this user and group id, no capability, a
  /dev/shm of their own of that size, and this folder as /tmp: namespaces of users and mounts, for
  which Linux needs no privilege, unless the machine's owner has forbidden them.
* `--group FILE`: the control group whose list of processes this is.
"""

import contextlib
import ctypes
import os
import select
import signal
import sys
import time

_PR_SET_CHILD_SUBREAPER = 36
_CANNOT_START = 128
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""The terminal's and the rehearsal's signals: orders come on standard input."""
_LONGEST_TMPDIR = 50
"""Bytes: programs such as Python's multiprocessing put sockets there, and a socket's whole path may
have 107.
"""


_PR_SET_NO_NEW_PRIVS = 38
_NEW_USERS, _NEW_MOUNTS = 0x10000000, 0x00020000
"""unshare(2)."""
_BIND, _RECURSIVE, _PRIVATE = 4096, 16384, 1 << 18
"""mount(2)."""
_SHARED_MEMORY = "/dev/shm"
_TEMPORARY = "/tmp"
_SECCOMP, _SET_MODE_FILTER = 317, 1
"""seccomp(2) on x86-64."""
_NEW_LISTENER, _WAIT_KILLABLE = 1 << 3, 1 << 5


_LIBC = ctypes.CDLL(None, use_errno=True)


def _check(result: int) -> int:
    """Returns what a call of the C library returned. Raises OSError if it failed."""
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _install_filter(program: bytes, listens: int) -> None:
    """Filters this process's calls, and sends the filter's listener to the socket `listens`, which
    it closes. Raises OSError if the kernel refuses.
    """
    # Only here: a container without a filter starts faster.
    import socket
    import struct

    instructions = ctypes.create_string_buffer(program, len(program))
    filter_ = ctypes.create_string_buffer(
        struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(instructions))
    )
    _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    listener = _LIBC.syscall(_SECCOMP, _SET_MODE_FILTER, _NEW_LISTENER | _WAIT_KILLABLE, filter_)
    if listener < 0:  # Before Linux 5.19.
        listener = _check(_LIBC.syscall(_SECCOMP, _SET_MODE_FILTER, _NEW_LISTENER, filter_))
    with socket.socket(fileno=listens) as sender:
        socket.send_fds(sender, [b"L"], [listener])
    os.close(listener)


def _enter_namespaces(uid: int, gid: int, size: int, temporary: str) -> None:
    """Gives this process namespaces of its own: see `--own`. Raises OSError."""

    def mount(source: str, target: str, kind: str, flags: int, options: str) -> None:
        words = (word.encode() for word in (source, target, kind))
        _check(_LIBC.mount(*words, ctypes.c_ulong(flags), options.encode()))

    outer_uid, outer_gid = os.geteuid(), os.getegid()
    _check(_LIBC.unshare(_NEW_USERS | _NEW_MOUNTS))
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {outer_uid} 1"),
        ("gid_map", f"{gid} {outer_gid} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123
            file.write(text)
    mount("none", "/", "none", _RECURSIVE | _PRIVATE, "")
    mount("tmpfs", _SHARED_MEMORY, "tmpfs", 0, f"size={size},mode=1777")
    # What the rehearsal needs stays where it is, also below /tmp, and what its links lead to, too.
    here, paths = os.getcwd(), ":".join(os.environ.values()).split(":")  # noqa: PTH109
    places = [here, temporary, sys.executable, *paths]
    places += [os.path.realpath(place) for place in places]
    needed = {"/".join(path.split("/")[:3]) for path in places if path.startswith(f"{_TEMPORARY}/")}
    kept = {place: os.open(place, os.O_PATH) for place in needed if os.path.isdir(place)}  # noqa: PTH112
    mount(temporary, _TEMPORARY, "none", _BIND | _RECURSIVE, "")
    for place, folder in kept.items():
        os.makedirs(place, exist_ok=True)  # noqa: PTH103
        mount(f"/proc/self/fd/{folder}", place, "none", _BIND | _RECURSIVE, "")
        os.close(folder)
    os.chdir(here)


def _descendants() -> list[int]:
    """Every process below this one, parents first: a subreaper keeps orphans in its own tree."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208  (one string a process: fast)
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as stat:  # noqa: PTH123
                    fields = stat.read().rpartition(b")")[2].split()
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append(int(name))
    descendants = list(children.get(os.getpid(), ()))
    for pid in descendants:  # It grows meanwhile.
        descendants += children.get(pid, ())
    return descendants


def _reap(until: int | None = None) -> int | None:
    """Reaps ended children. Returns the wait status of `until` if it was among them."""
    status = None
    while True:
        try:
            pid, ended = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if pid == 0:
            return status
        if pid == until:
            status = ended


def _end_all() -> None:
    while below := _descendants():
        for pid in below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _reap()
        time.sleep(0.01)


def _read_options() -> tuple[dict[str, list[str]], list[str]]:
    """Returns the options, and the program with its arguments."""
    counts, options, words = {"--filter": 2, "--own": 4, "--group": 1}, {}, sys.argv[1:]
    while words[0] in counts:
        end = counts[words[0]] + 1
        options[words[0]], words = words[1:end], words[end:]
    return options, words


def main() -> int:
    """Runs the program that the arguments name. Returns its exit code."""
    options, argv = _read_options()
    filter_ = options.get("--filter")
    if group := options.get("--group"):
        with open(group[0], "w") as processes:  # noqa: PTH123
            processes.write("0")
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    awake, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for ignored in _IGNORED:
        signal.signal(ignored, signal.SIG_IGN)
    init, temporary = os.getpid(), os.environ.get("TMPDIR", "")
    first = os.fork()
    if first == 0:
        signal.set_wakeup_fd(-1)
        for default in (*_IGNORED, signal.SIGCHLD):
            signal.signal(default, signal.SIG_DFL)
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        try:
            if own := options.get("--own"):
                uid, gid, size = map(int, own[:3])
                _enter_namespaces(uid, gid, size, own[3])
            elif len(temporary) > _LONGEST_TMPDIR:
                # In a container it is the short /tmp; here a short path leads to the same folder.
                os.environ["TMPDIR"] = f"/proc/{init}/cwd"
            if filter_ is not None:
                _install_filter(bytes.fromhex(filter_[0]), int(filter_[1]))
            os.execvp(argv[0], argv)
        except OSError as error:
            os.write(2, f"cannot start {argv[0]}: {error.strerror}\n".encode())
        os._exit(_CANNOT_START)
    if filter_ is not None:
        os.close(int(filter_[1]))
    if temporary:
        with contextlib.suppress(OSError):
            os.chdir(temporary)
    orders = 0
    while True:
        ready, _, _ = select.select([orders, awake], [], [])
        if awake in ready:
            os.read(awake, 4096)
        status = _reap(first)
        if status is not None:
            _end_all()
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        if orders in ready:
            if os.read(orders, 1) != b"T":
                _end_all()
                return 128 + signal.SIGKILL
            os.kill(first, signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())

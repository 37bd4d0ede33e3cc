"""Stands for a container's namespace: when its first process ends, or the rehearsal does, nothing below survives.

It exits with the first process's code (128 + signal when one ended it), as a container runtime reports it. On standard input the
byte T asks the first process to terminate, and the end of file kills everything at once, so that a rehearsal that is killed takes
its pods along. Run as `python -I -S container_init.py mounts program argument...`: `mounts` is JSON, [[source, target,
read-only], ...], of what lies over other files and folders for these processes alone.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import sys
import time

_PR_SET_CHILD_SUBREAPER = 36
_CANNOT_START = 128
_LONGEST_TMPDIR = 50
"""Bytes: programs put sockets there (Python's multiprocessing does), whose whole path may have 107."""
_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_SLAVE, _MS_RELATIME = 0x1, 0x20, 0x1000, 0x4000, 0x80000, 0x200000
_ST_RELATIME, _SAME_IN_BOTH = 0x1000, 0xC0E
"""Flags of a mount that its read-only copy has to keep: most have one number in statvfs and in mount."""


def _descendants() -> list[int]:
    """Every process below this one, deepest last; a subreaper keeps orphans in its own tree."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208  (one string a process: fast)
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as stat:  # noqa: PTH123
                    fields = stat.read().rpartition(b")")[2].split()
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append(int(name))
    found = []
    queue = list(children.get(os.getpid(), ()))
    while queue:
        pid = queue.pop()
        found.append(pid)
        queue += children.get(pid, ())
    return found


def _reap(until: int | None = None) -> int | None:
    """Collect ended children; the wait status of `until` if it was among them."""
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
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        _reap()
        time.sleep(0.01)


def _mount(mounts: list[tuple[str, str, bool]]) -> None:
    """Makes the mounts in a mount namespace of this process's own. Raises OSError where that is not allowed."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    if libc.unshare(_CLONE_NEWNS) != 0:
        # Not root: a user namespace, in which this user stays who it is, gives the right.
        if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS) != 0:
            raise OSError(ctypes.get_errno(), "no mount namespace of its own")
        for name, line in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w") as setting:  # noqa: PTH123
                setting.write(line)

    def mount(source: str, target: str, flags: int) -> None:
        if libc.mount(os.fsencode(source), os.fsencode(target), None, flags, None) != 0:
            error = ctypes.get_errno()
            raise OSError(error, f"{target}: {os.strerror(error)}")

    # Nothing mounted here reaches the machine.
    mount("none", "/", _MS_REC | _MS_SLAVE)
    for source, target, read_only in mounts:
        mount(source, target, _MS_BIND | _MS_REC)
        if read_only:
            has = os.statvfs(target).f_flag
            kept = has & _SAME_IN_BOTH | (_MS_RELATIME if has & _ST_RELATIME else 0)
            mount("none", target, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | kept)


def main() -> int:
    """Run the program named by the arguments; its exit code."""
    mounts, *argv = json.loads(sys.argv[1]), *sys.argv[2:]
    if mounts:
        here = os.getcwd()  # noqa: PTH109
        try:
            _mount(mounts)
            # The same path again: a mount may lie over it now.
            os.makedirs(here, exist_ok=True)  # noqa: PTH103
            os.chdir(here)
        except OSError as error:
            os.write(2, f"a container cannot have its mounts here: {error.strerror}\n".encode())
            return _CANNOT_START
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    awake, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    # The terminal's and the rehearsal's signals are not for this process: orders come on standard input.
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(ignored, signal.SIG_IGN)
    init, temporary = os.getpid(), os.environ.get("TMPDIR", "")
    first = os.fork()
    if first == 0:
        if len(temporary) > _LONGEST_TMPDIR:
            # A container's is /tmp, as short as it is there; here the same folder has this way to it.
            os.environ["TMPDIR"] = f"/proc/{init}/cwd"
        signal.set_wakeup_fd(-1)
        for default in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD):
            signal.signal(default, signal.SIG_DFL)
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        try:
            os.execvp(argv[0], argv)
        except OSError as error:
            os.write(2, f"cannot start {argv[0]}: {error.strerror}\n".encode())
        os._exit(_CANNOT_START)
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

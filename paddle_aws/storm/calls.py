"""The system calls that show a program's events while its process waits: opens, renames, lines that
it prints, its exit. Each is answered before the kernel carries it out.

It needs no privilege, no package and no change of the program: seccomp_unotify(2). The kernel holds
the process until the answer, which may be an error in place of the call, or another file.
"""

import asyncio
import errno
import fcntl
import os
import struct
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_X86_64 = 0xC000003E
_WRITE, _CREAT, _OPENAT = 1, 85, 257
_CALLS: Mapping[int, tuple[str, int | None, int]] = {
    _OPENAT: ("open", 0, 1),
    2: ("open", None, 0),
    _CREAT: ("open", None, 0),
    82: ("rename", None, 1),
    264: ("rename", 2, 3),
    316: ("rename", 2, 3),
    83: ("make a folder", None, 0),
    258: ("make a folder", 0, 1),
    87: ("remove", None, 0),
    263: ("remove", 0, 1),
    74: ("sync", None, 0),
    75: ("sync", None, 0),
    231: ("exit", None, 0),
    _WRITE: ("print", None, 0),
}
"""By number on x86-64, since a rehearsal runs on no other machine: what a call does, and which of
its arguments are the folder, if any, and the path (of a rename, the new one).
"""
_RECEIVE, _SEND, _IS_VALID, _ADD_FILE = 0xC0502100, 0xC0182101, 0x40082102, 0x40182103
"""ioctl(2) requests of a listener."""
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
_CONTINUE, _SEND_FILE = 1, 2
_AT_FDCWD = 0xFFFFFF9C
_LONGEST_PATH, _LONGEST_TEXT = 4096, 65536


def filter_program() -> bytes:
    """Returns the seccomp filter: it holds calls that this module names, and writes to stdout and
    stderr; all others run as ever.
    """
    load, equal, give = 0x20, 0x15, 0x06
    held = [number for number in _CALLS if number != _WRITE]
    # Jumps count the instructions between; `end` is the notification, the last of all.
    body = [(load, 0, 0, 4), (equal, 1, 0, _X86_64), (give, 0, 0, _ALLOW), (load, 0, 0, 0)]
    tail = [
        (equal, 0, 3, _WRITE),
        (load, 0, 0, 16),  # The first argument: the file.
        (equal, 2, 0, 1),
        (equal, 1, 0, 2),
        (give, 0, 0, _ALLOW),
        (give, 0, 0, _NOTIFY),
    ]
    for place, number in enumerate(held):
        body.append((equal, len(held) - place - 1 + len(tail) - 1, 0, number))
    return b"".join(struct.pack("HBBI", *instruction) for instruction in body + tail)


@dataclass(frozen=True)
class CallReply:
    """The answer to a call: by default the kernel carries it out."""

    error: int = 0
    """The call fails with this error of errno(3) instead."""
    file: int | None = None
    """The call gets this open file instead; this module then closes its copy."""


@dataclass(frozen=True)
class Call:
    """A system call that waits for its answer."""

    identity: int
    thread: int
    number: int
    arguments: tuple[int, ...]

    @cached_property
    def process(self) -> int:
        """The process whose thread it is. Raises OSError if that has ended."""
        for line in Path(f"/proc/{self.thread}/status").read_text().splitlines():
            if line.startswith("Tgid:"):
                return int(line.split()[1])
        raise ProcessLookupError(errno.ESRCH, "no such process")

    @property
    def does(self) -> str:
        """What it does: open, rename, make a folder, remove, sync, exit or print."""
        return _CALLS[self.number][0]

    @property
    def flags(self) -> int:
        """The flags of an open."""
        if self.number == _CREAT:
            return os.O_CREAT | os.O_WRONLY | os.O_TRUNC
        return self.arguments[2 if self.number == _OPENAT else 1] & 0xFFFFFFFF

    @property
    def writes(self) -> bool:
        """Whether the open may change the file."""
        return self.does == "open" and self.flags & (os.O_ACCMODE | os.O_CREAT) != os.O_RDONLY

    @cached_property
    def text(self) -> bytes:
        """The text that it prints. Raises OSError if the process has ended."""
        return self._read(self.arguments[1], min(self.arguments[2], _LONGEST_TEXT))

    def drop_text(self) -> None:
        """Makes `text` empty: it has been read, or is no line of the program's."""
        self.__dict__["text"] = b""

    @cached_property
    def name(self) -> str:
        """The path as the program gave it: of a rename, the new one. Raises OSError."""
        return self._path_argument()[1]

    @cached_property
    def path(self) -> Path:
        """The absolute path without links in its folders. Raises OSError."""
        folder, name = self._path_argument()
        if not name.startswith("/"):
            at = "cwd" if folder == _AT_FDCWD else f"fd/{folder}"
            name = f"{Path(f'/proc/{self.thread}/{at}').readlink()}/{name}"
        parent, _, last = name.rstrip("/").rpartition("/")
        return Path(os.path.realpath(parent or "/"), last)

    def _path_argument(self) -> tuple[int, str]:
        """Returns the folder's file number, and the path."""
        _, folder, place = _CALLS[self.number]
        path, _, _ = self._read(self.arguments[place], _LONGEST_PATH).partition(b"\0")
        at = _AT_FDCWD if folder is None else self.arguments[folder] & 0xFFFFFFFF
        return at, os.fsdecode(path)

    def _read(self, address: int, count: int) -> bytes:
        with open(f"/proc/{self.thread}/mem", "rb", buffering=0) as memory:  # noqa: PTH123
            # A page at a time: behind a short text at the end of memory there may be nothing.
            content = b""
            while count > 0:
                page = min(count, 4096 - (address + len(content)) % 4096)
                try:
                    content += os.pread(memory.fileno(), page, address + len(content))
                except OSError:
                    break
                count -= page
                if self.number != _WRITE and b"\0" in content:
                    break
        return content


class Listener:
    """Answers the calls of one container, in its event loop, one after the other; an answer that
    takes longer does not hold up those of other threads.
    """

    def __init__(
        self,
        listener: int,
        answer: Callable[[Call], Awaitable[CallReply | None]],
        carried_out: Callable[[Call], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """`answer` returns None for a call of a process that will not see an answer. `carried_out`
        gets each call that went on, exactly once: a signal may make the kernel ask again. `failed`
        gets what either of them raises but OSError; the call then goes on.
        """
        self._listener, self._answer, self._note_done = listener, answer, carried_out
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._waiting: set[asyncio.Future[None]] = set()
        self._loop.add_reader(listener, self._receive)

    def close(self) -> None:
        """From now on every held call fails: for when no process is left."""
        if self._listener >= 0:
            self._loop.remove_reader(self._listener)
            os.close(self._listener)
            self._listener = -1

    def _receive(self) -> None:
        message = bytearray(80)
        try:
            fcntl.ioctl(self._listener, _RECEIVE, message)
        except OSError as error:
            # ENOENT: the process was killed, or interrupted, between the readiness and this.
            if error.errno not in (errno.ENOENT, errno.EINTR) or not _alive(self._listener):
                self.close()
            return
        identity, thread, _, number, _, _, *arguments = struct.unpack("QIIiIQ6Q", message)
        call = Call(identity, thread, number, tuple(arguments))
        task = self._loop.create_task(self._handle(call))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def _handle(self, call: Call) -> None:
        answer: CallReply | None = CallReply()
        try:
            answer = await self._answer(call)
        except OSError:  # The process has ended meanwhile.
            pass
        except Exception as error:  # Without an answer it would wait forever.
            self._failed(error)
        self._send(call, answer)

    def _send(self, call: Call, answer: CallReply | None) -> None:
        if answer is None or self._listener < 0:
            return
        with suppress(OSError):  # ENOENT: the process was killed while it waited.
            if answer.file is not None:
                try:
                    request = struct.pack("QIIII", call.identity, _SEND_FILE, answer.file, 0, 0)
                    fcntl.ioctl(self._listener, _ADD_FILE, bytearray(request))
                finally:
                    os.close(answer.file)
            else:
                flags = 0 if answer.error else _CONTINUE
                response = struct.pack("QqiI", call.identity, 0, -answer.error, flags)
                fcntl.ioctl(self._listener, _SEND, bytearray(response))
            try:
                self._note_done(call)
            except Exception as error:
                self._failed(error)


def _alive(listener: int) -> bool:
    """Whether a process is left that the listener's filter holds."""
    import select

    poll = select.poll()
    poll.register(listener, select.POLLIN)
    return not any(state & select.POLLHUP for _, state in poll.poll(0))

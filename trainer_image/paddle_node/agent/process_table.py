"""What Linux tells of the processes below one: who started whom, when, with which words, and how a
process that is not one's own child ended.
"""

import contextlib
import fcntl
import os
import select
import struct
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

_PIDFD_GET_INFO = 0xC040FF0B
"""ioctl(2) on a pidfd; tells the exit code from Linux 6.15 on."""
_INFO_EXIT = 1 << 3


class Entry(NamedTuple):
    """A process. `started` tells it from another that has its number later."""

    pid: int
    parent: int
    started: int
    """In clock ticks since the machine started."""
    state: str
    status: int
    """As waitpid(2) tells it, once the process has ended."""


def read_entry(pid: int) -> Entry | None:
    """Returns a process that is there, perhaps as a zombie; None: it is gone."""
    try:
        # The name before it may hold blanks and parentheses.
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return Entry(pid, int(words[1]), int(words[19]), words[0], int(words[49]))


def descendants(ancestor: int, but: Collection[int] = ()) -> list[Entry]:
    """Returns the descendants of a process, parents first, except those in `but` and below.

    A zombie counts until it is reaped: if only its main thread has ended, its other threads still
    hold its ports.
    """
    children: dict[int, list[Entry]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 (it is read several times a second)
        if name.isdigit() and (entry := read_entry(int(name))) is not None:
            children.setdefault(entry.parent, []).append(entry)
    found: list[Entry] = []
    waiting = [ancestor]
    while waiting:
        below = [entry for entry in children.get(waiting.pop(0), ()) if entry.pid not in but]
        found += below
        waiting += [entry.pid for entry in below]
    return found


def find_ancestors(pid: int, ancestor: int) -> tuple[int, ...]:
    """Returns whom a process descends from, nearest first, up to `ancestor`, with that; empty: it
    does not descend from it.
    """
    line: list[int] = []
    while pid > 1 and pid != ancestor and (entry := read_entry(pid)) is not None:
        pid = entry.parent
        line.append(pid)
    return tuple(line) if pid == ancestor else ()


def read_list(pid: int, name: str) -> list[str]:
    """Returns a file of /proc that is a list: `cmdline` or `environ`; one empty text: nobody may
    know, or the process is gone.
    """
    content = b""
    with contextlib.suppress(OSError):
        content = Path(f"/proc/{pid}/{name}").read_bytes()
    return content.decode(errors="replace").rstrip("\0").split("\0")


def read_variables(pid: int) -> dict[str, str]:
    """Returns the environment that a process was started with, as far as it is known."""
    return dict(text.partition("=")[::2] for text in read_list(pid, "environ"))


def read_link(pid: int, name: str) -> str:
    """Returns where `exe` or `cwd` leads; empty: nobody may know, or the process is gone."""
    try:
        return os.readlink(f"/proc/{pid}/{name}")  # noqa: PTH115 (it may say "(deleted)")
    except OSError:
        return ""


class Watch:
    """A process that need not be a child of this one, held fast by a pidfd."""

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        self._fd: int | None = None
        with contextlib.suppress(OSError, AttributeError):
            self._fd = os.pidfd_open(entry.pid)
            now = read_entry(entry.pid)
            if now is None or now.started != entry.started:
                self.close()

    def has_ended(self) -> bool:
        """Returns whether the process has ended, reaped or not."""
        if self._fd is None:
            now = read_entry(self._entry.pid)
            return now is None or now.started != self._entry.started or now.state in "ZX"
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        return bool(poll.poll(0))

    def read_code(self) -> int | None:
        """Returns the exit code of the process, which has ended: 128 + the signal's number if
        a signal ended it; None: this kernel does not tell.
        """
        # A zombie shows it until it is reaped, the pidfd afterwards.
        now = read_entry(self._entry.pid)
        if now is not None and now.started == self._entry.started:
            return as_code(now.status) if now.state in "ZX" else None
        if self._fd is None:
            return None
        info = bytearray(struct.pack("Q56x", _INFO_EXIT))
        try:
            fcntl.ioctl(self._fd, _PIDFD_GET_INFO, info)
        except OSError:
            return None
        if not struct.unpack_from("Q", info)[0] & _INFO_EXIT:
            return None
        return as_code(struct.unpack_from("i", info, 60)[0])

    def close(self) -> None:
        """Lets go of the process."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


def as_code(status: int) -> int:
    """Returns the exit code of what waitpid(2) tells: 128 + the signal's number if it was one."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code

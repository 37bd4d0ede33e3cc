"""Breaks another process's TCP connections, without privileges, through copies of its sockets."""

import ctypes
import socket
import struct
from contextlib import suppress
from pathlib import Path

_PIDFD_GETFD = 438
"""pidfd_getfd(2) on x86-64; since Linux 5.6."""
_ATTACH_FILTER = 26
"""SO_ATTACH_FILTER of socket(7)."""


def cut(pid: int, process: int, *, half_open: bool) -> int:
    """Ends the connections of a process, whose file descriptor is `process`, to other addresses
    than its own; `half_open`: they stay, but nothing that the peers send arrives any more, and
    nothing is acknowledged to them. Returns how many.
    """
    return sum(_cut(process, number, half_open) for number in _sockets(pid))


def _sockets(pid: int) -> list[int]:
    numbers = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            if str(entry.readlink()).startswith("socket:"):
                numbers.append(int(entry.name))
    return numbers


def _cut(process: int, number: int, half_open: bool) -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    copy = libc.syscall(_PIDFD_GETFD, process, number, 0)
    if copy < 0:
        return False
    with socket.socket(fileno=copy) as connection, suppress(OSError):
        if connection.family != socket.AF_INET or connection.type != socket.SOCK_STREAM:
            return False
        if connection.getpeername()[0] == connection.getsockname()[0]:
            return False
        if half_open:
            # One instruction: return 0, which drops every segment that arrives.
            drop = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0), 8)
            program = struct.pack("HxxxxxxP", 1, ctypes.addressof(drop))
            connection.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, program)
        else:
            connection.shutdown(socket.SHUT_RDWR)
        return True
    return False

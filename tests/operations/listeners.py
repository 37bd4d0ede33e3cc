"""What listens on this machine while a command runs, found by its processes, and what a stranger
gets there.

A stranger is a request without a secret, as another user of the machine and a web page send it.
"""

import http.client
import ssl
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

LISTENS = "0A"
STRANGERS: tuple[dict[str, str], ...] = (
    {}, {"Origin": "http://attacker.example"}, {"Host": "attacker.example"}
)  # fmt: skip
METHODS = ("GET", "POST", "PUT", "DELETE")
Server = tuple[str, int]


def processes(top: int) -> Iterator[int]:
    """Yields a process and all below it."""
    parents: dict[int, list[int]] = {}
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(place.name))
    waiting = [top]
    while waiting:
        yield (process := waiting.pop())
        waiting += parents.get(process, [])


def listeners(top: int) -> dict[Server, bool]:
    """Returns the addresses at which a process and those below it listen, and whether it is a rank
    of the program.
    """
    sockets: dict[str, bool] = {}
    for process in processes(top):
        with suppress(OSError):
            is_rank = b"train.py\0" in Path(f"/proc/{process}/cmdline").read_bytes()
            for descriptor in Path(f"/proc/{process}/fd").iterdir():
                with suppress(OSError):
                    sockets[str(descriptor.readlink())] = is_rank
    found = {}
    for version in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{version}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == LISTENS and (socket := f"socket:[{words[9]}]") in sockets:
                host, port = words[1].split(":")
                raw = b"".join(bytes.fromhex(host[n : n + 8])[::-1] for n in range(0, len(host), 8))
                address = IPv4Address(raw) if len(raw) == 4 else IPv6Address(raw)
                name = str(getattr(address, "ipv4_mapped", None) or address)
                found[name, int(port, 16)] = sockets[socket]
    return found


def answer(server: Server, method: str, headers: dict[str, str], path: str = "/") -> int:
    """Returns the status that a stranger gets; 0: no answer in HTTP."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for connection in (
        http.client.HTTPConnection(*server, timeout=3),
        http.client.HTTPSConnection(*server, timeout=3, context=context),
    ):
        with suppress(OSError, http.client.HTTPException):
            connection.request(method, path, b"{}" if method in ("POST", "PUT") else None, headers)
            return connection.getresponse().status
        connection.close()
    return 0


def ask_as_strangers(server: Server) -> set[int]:
    """Returns all statuses that strangers get."""
    return {answer(server, method, headers) for method in METHODS for headers in STRANGERS}


def is_refused(statuses: set[int]) -> bool:
    """Whether no stranger got anything."""
    return not any(200 <= status < 400 for status in statuses)

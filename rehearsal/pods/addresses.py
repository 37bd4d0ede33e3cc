"""Loopback addresses for pods: each pod gets one of its own, and two rehearsals never share a block.

A block is a /24 of 127.0.0.0/8, claimed by a socket bound in it for as long as the rehearsal lives: the kernel
gives it back even when the rehearsal is killed. Linux answers on all of 127.0.0.0/8 without any set-up.
"""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Iterable, Iterator

from rehearsal.errors import Refused

_CLAIM_HOST = 254
_CLAIM_PORT = 7162
"""Next to the ports of contract.py, so that whoever looks at listening ports sees what belongs together."""
_FIRST_HOST = 10
ROOM = _CLAIM_HOST - _FIRST_HOST
"""Pods that can run at once, each with an address of its own."""


class AddressBlock:
    """A claimed 127.x.y.0/24. `next()` never repeats within it until all others were given out."""

    def __init__(self) -> None:
        self._claim, self.prefix = _claim_block()
        self._hosts = self._cycle()

    def next(self) -> str:
        """The next pod's address: a pod that replaces another has another address, as in a cluster."""
        return f"{self.prefix}.{next(self._hosts)}"

    def check(self, ports: Iterable[int]) -> None:
        """Raises Refused where a program of this machine listens at one of the ports on every address, the block's among them."""
        for port in ports:
            with socket.socket() as tried:
                # As the pods' own programs do.
                tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    tried.bind((f"{self.prefix}.{_CLAIM_HOST}", port))
                    tried.listen(1)
                except OSError as error:
                    if error.errno != errno.EADDRINUSE:
                        continue
                    raise Refused(
                        f"port {port} is taken on all addresses of this machine, and the job's pods listen there: "
                        "end what holds it (`ss -ltnp` names it), or choose other ports in the job file"
                    ) from None

    def close(self) -> None:
        self._claim.close()

    def __enter__(self) -> AddressBlock:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @staticmethod
    def _cycle() -> Iterator[int]:
        while True:
            yield from range(_FIRST_HOST, _CLAIM_HOST)


def _claim_block() -> tuple[socket.socket, str]:
    """A listening socket in a /24 that no other rehearsal holds, and the /24's first three numbers.

    127.0.0 and 127.0.1 stay free: machines use them for themselves.
    """
    blocks = [f"127.{second}.{third}" for second in range(0, 3) for third in range(2, 255)]
    random.shuffle(blocks)
    for prefix in blocks:
        claim = socket.socket()
        try:
            claim.bind((f"{prefix}.{_CLAIM_HOST}", _CLAIM_PORT))
            claim.listen(1)
        except OSError:
            claim.close()
            continue
        return claim, prefix
    raise Refused(f"no free block of loopback addresses: port {_CLAIM_PORT} is taken on all of 127.0.0.0/8")

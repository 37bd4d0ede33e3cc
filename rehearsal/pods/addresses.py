"""The pods' addresses and names. Each pod has its own loopback address, and two rehearsals never
share a block of addresses.

A block is a /24 of 127.0.0.0/8, claimed by a socket that is bound in it while the rehearsal lives:
the kernel frees it even if the rehearsal is killed. Linux answers on all of 127.0.0.0/8 without any
set-up.
"""

import json
import random
import socket
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from itertools import cycle
from pathlib import Path

from operations.errors import BadInput
from rehearsal.pods.manifests import Service

_CLAIM_HOST = 254
_CLAIM_PORT = 7162
"""Next to the ports of contract.py, so that a list of listening ports shows them together."""
_HOSTS = range(10, _CLAIM_HOST)
ROOM = len(_HOSTS)
"""Pods that can run at once, each with its own address."""


class AddressBlock(AbstractContextManager["AddressBlock"]):
    """A claimed 127.x.y.0/24. `next()` repeats an address only after it has returned all others."""

    def __init__(self) -> None:
        self._claim, self.prefix = _claim_block()
        self._hosts = cycle(_HOSTS)

    def next(self) -> str:
        """Returns the next pod's address: a pod that replaces another has a new address, as in a
        cluster.
        """
        return f"{self.prefix}.{next(self._hosts)}"

    def __exit__(self, *error: object) -> None:
        self._claim.close()


def _claim_block() -> tuple[socket.socket, str]:
    """Returns a listening socket in a /24 that no other rehearsal holds, and the first three
    numbers of the /24.

    127.0.0 and 127.0.1 stay free, because machines use them for their own purposes.
    """
    blocks = [f"127.{second}.{third}" for second in range(0, 3) for third in range(2, 255)]
    random.shuffle(blocks)
    for prefix in blocks:
        with suppress(OSError):
            return socket.create_server((f"{prefix}.{_CLAIM_HOST}", _CLAIM_PORT), backlog=1), prefix
    raise BadInput(
        f"no free block of loopback addresses: port {_CLAIM_PORT} is taken on all of 127.0.0.0/8"
    )


class Names:
    """Maps the pods' names to addresses, as DNS would: a JSON file (PADDLE_NODE_HOSTS) that is
    complete at every moment.

    A pod whose subdomain is a headless Service that selects it has the name `<hostname>.<service>`,
    and the longer forms up to the cluster's domain.
    """

    def __init__(self, file: Path, services: Sequence[Service]) -> None:
        self.file, self._services = file, services
        self._addresses: dict[str, str] = {}
        self._write()

    def add(
        self, hostname: str, subdomain: str, namespace: str, labels: Mapping[str, str], address: str
    ) -> None:
        """Publishes a pod's names."""
        for service in self._services:
            selected = bool(service.selector) and service.selector.items() <= labels.items()
            if service.name == subdomain and service.namespace == namespace and selected:
                short = f"{hostname}.{service.name}"
                ends = ("", f".{namespace}", f".{namespace}.svc", f".{namespace}.svc.cluster.local")
                self._addresses |= {f"{short}{end}": address for end in ends}
        self._write()

    def remove(self, address: str) -> None:
        """Removes the names of a pod that ended, unless they lead to its successor by now."""
        self._addresses = {
            name: known for name, known in self._addresses.items() if known != address
        }
        self._write()

    def _write(self) -> None:
        part = self.file.with_suffix(".part")
        part.write_text(json.dumps(self._addresses, indent=1, sort_keys=True))
        part.replace(self.file)

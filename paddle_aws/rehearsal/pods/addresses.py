"""The pods' addresses, ports and names: two rehearsals share neither, nor a stranger's port.

Each pod has its own loopback address: Linux answers on all of 127.0.0.0/8 without any set-up. But
Paddle's stores listen on every address of the machine, so a second rehearsal must use other ports,
too: each rehearsal claims a place, which decides both. A socket that is bound while the rehearsal
lives holds the claim: the kernel frees it even if the rehearsal is killed.
"""

import json
import socket
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import cycle
from pathlib import Path

from paddle_aws.operations.errors import BadInput
from paddle_aws.rehearsal.pods.manifests import Service

_CLAIM = 7162
"""The port, in the first place, that holds a rehearsal's claim: next to those of contract.py."""
_USED = range(_CLAIM + 1, _CLAIM + 28)
"""The pods' ports in the first place: the agents', the pservers' or ranks', and their masters'."""
_APART, _PLACES = 100, 240
"""Ports between two places, and their number: the last is below the ports that Linux hands out."""
_HOSTS = range(10, 254)
ROOM = len(_HOSTS)
"""Pods that can run at once, each with its own address."""


class AddressBlock(AbstractContextManager["AddressBlock"]):
    """A claimed 127.0.y.0/24. `next()` repeats an address only after it has returned all others."""

    def __init__(self) -> None:
        self._claim, place = _claim_place()
        # 127.0.0 and 127.0.1 stay free, because machines use them for their own purposes.
        self.prefix = f"127.0.{2 + place}"
        self.port_shift = _APART * place
        """How far the pods' ports are from those that the manifests name; 0 on a machine where
        nothing else uses these.
        """
        self._hosts = cycle(_HOSTS)

    def next(self) -> str:
        """Returns the next pod's address: a pod that replaces another has a new address, as in a
        cluster.
        """
        return f"{self.prefix}.{next(self._hosts)}"

    def __exit__(self, *error: object) -> None:
        self._claim.close()


def _claim_place() -> tuple[socket.socket, int]:
    """Returns a bound socket and the first place that no rehearsal holds and nobody listens in."""
    for place in range(_PLACES):
        claim = socket.socket()
        try:
            # Bound, not listening, and without SO_REUSEADDR: no second socket can be bound there.
            claim.bind(("", _CLAIM + _APART * place))
            with ExitStack() as probes:
                for port in _USED:
                    probe = probes.enter_context(socket.socket())
                    # As servers do: what only waits for its end there is in nobody's way.
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(("", port + _APART * place))
            return claim, place
        except OSError:
            claim.close()
    last = _CLAIM + _APART * (_PLACES - 1)
    raise BadInput(f"no ports are free for the pods: others listen near {_CLAIM} to {last}")


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
        self._addresses = {name: held for name, held in self._addresses.items() if held != address}
        self._write()

    def _write(self) -> None:
        part = self.file.with_suffix(".part")
        part.write_text(json.dumps(self._addresses, indent=1, sort_keys=True))
        part.replace(self.file)

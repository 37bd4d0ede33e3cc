"""The pods' addresses, ports and names: two rehearsals never share one, and no pod takes a port of
another program.

Each pod has a loopback address of its own: Linux answers on all of 127.0.0.0/8 without any set-up.
But Paddle's stores listen on every address of the machine, so a second rehearsal needs other ports,
too. Each rehearsal claims a place, which decides both. It keeps a socket bound as its claim, and
the kernel frees that even if the rehearsal is killed.
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
"""The port, in the first place, that holds a rehearsal's claim: next to those of the contract."""
LAST_PORT = _CLAIM + 27
"""The last of the pods' ports in the first place."""
_USED = range(_CLAIM + 1, LAST_PORT + 1)
"""The pods' ports in the first place: the agents', the pservers' or ranks', and their masters'."""
_SPACING, _PLACES = 100, 240
"""Ports from one place to the next, and the number of places: all below the ephemeral ports."""
_HOSTS = range(10, 254)
ROOM = len(_HOSTS)
"""Pods that can run at once, each with its own address."""


class AddressBlock(AbstractContextManager["AddressBlock"]):
    """A claimed 127.0.y.0/24. `next()` repeats an address only after it has returned all others."""

    def __init__(self) -> None:
        self._claim, place = _claim_place()
        # 127.0.0 and 127.0.1 stay free, because machines use them for their own purposes.
        self.prefix = f"127.0.{2 + place}"
        self.port_shift = _SPACING * place
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
    """Returns the first place that is free, and the bound socket that claims it."""
    for place in range(_PLACES):
        claim = socket.socket()
        try:
            # Bound, not listening, and without SO_REUSEADDR: no second socket can be bound there.
            claim.bind(("", _CLAIM + _SPACING * place))
            with ExitStack() as probes:
                for port in _USED:
                    probe = probes.enter_context(socket.socket())
                    # As servers do: a connection in TIME_WAIT does not block the port.
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(("", port + _SPACING * place))
            return claim, place
        except OSError:
            claim.close()
    last = _CLAIM + _SPACING * (_PLACES - 1)
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
            if selected and (service.name, service.namespace) == (subdomain, namespace):
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

"""The pods' names, as DNS would answer them: a JSON file that is whole at every moment.

A pod with a subdomain that is the name of a headless Service which selects it has `<hostname>.<service>` and the
longer forms up to the cluster's domain; every pod knows its own hostname.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from rehearsal.pods.manifests import Service


class Names:
    """Names to addresses, kept in `file` (PADDLE_NODE_HOSTS)."""

    def __init__(self, file: Path, services: Sequence[Service]) -> None:
        self.file = file
        self._services = services
        self._addresses: dict[str, str] = {}
        self._write()

    def add(self, hostname: str, subdomain: str, namespace: str, labels: Mapping[str, str], address: str) -> None:
        """Publish a pod's names."""
        for name in self._names(hostname, subdomain, namespace, labels):
            self._addresses[name] = address
        self._write()

    def remove(self, address: str) -> None:
        """Forget a pod that ended; a successor's names, which are the same, stay."""
        self._addresses = {name: known for name, known in self._addresses.items() if known != address}
        self._write()

    def _names(self, hostname: str, subdomain: str, namespace: str, labels: Mapping[str, str]) -> list[str]:
        for service in self._services:
            selected = bool(service.selector) and service.selector.items() <= labels.items()
            if service.name == subdomain and service.namespace == namespace and selected:
                short = f"{hostname}.{service.name}"
                return [short, *(f"{short}.{namespace}{tail}" for tail in ("", ".svc", ".svc.cluster.local"))]
        return []

    def _write(self) -> None:
        part = self.file.with_suffix(".part")
        part.write_text(json.dumps(self._addresses, indent=1, sort_keys=True))
        part.replace(self.file)

"""A kubeconfig file, to which one cluster's entry is added.

Promises: other entries stay as they are; the file is written whole or not at all, and nobody but its owner may ever read
it; what is in an entry is never shown.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from operations.errors import BadInput
from settings import file as settings_file


@dataclass(frozen=True)
class Entry:
    """A cluster, and who one is there; both under one name."""

    name: str
    cluster: dict[str, Any]
    user: dict[str, Any] = field(repr=False)

    @property
    def server(self) -> str:
        """The API server's address."""
        return str(self.cluster["server"])


def parse(text: str, name: str, where: str) -> Entry:
    """The entry of a kubeconfig with one cluster and one user, under another name. Raises BadInput."""
    try:
        found = yaml.safe_load(text)
        return Entry(name, dict(found["clusters"][0]["cluster"]), dict(found["users"][0]["user"]))
    except (yaml.YAMLError, KeyError, IndexError, TypeError, ValueError, RecursionError):
        # Not what it holds: it may be a secret all the same.
        raise BadInput(f"{where} holds no kubeconfig: the control plane writes it when it starts") from None


def merge(path: Path, entry: Entry, alias: str | None) -> str:
    """Adds the entry, makes it the current context and returns the context's name; BadInput for what is no kubeconfig."""
    config = _read(path)
    context = alias or entry.name
    entries: dict[str, tuple[str, dict[str, Any]]] = {
        "clusters": (entry.name, {"cluster": entry.cluster}),
        "users": (entry.name, {"user": entry.user}),
        "contexts": (context, {"context": {"cluster": entry.name, "user": entry.name}}),
    }
    for kind, (name, content) in entries.items():
        others = [other for other in config.get(kind) or [] if other.get("name") != name]
        config[kind] = [*others, {"name": name, **content}]
    config["current-context"] = context
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    # Not even for a moment may somebody else read it.
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as stream:
        yaml.safe_dump(config, stream, sort_keys=False)
    part.replace(path)
    return context


def _read(path: Path) -> dict[str, Any]:
    empty: dict[str, Any] = {"apiVersion": "v1", "kind": "Config", "preferences": {}}
    if not path.exists():
        return empty
    try:
        found = yaml.safe_load(settings_file.text(path))
    except (settings_file.SettingError, ValueError, yaml.YAMLError, RecursionError):
        found = False
    if found is None:
        return empty
    if not isinstance(found, dict) or any(
        not isinstance(found.get(kind) or [], list) for kind in ("clusters", "users", "contexts")
    ):
        raise BadInput(f"{path} is no kubeconfig: move it away, or name another file with --file")
    return found

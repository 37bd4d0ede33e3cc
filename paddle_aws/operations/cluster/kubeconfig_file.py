"""Adds one cluster's entry to a kubeconfig file.

Promises: other entries stay as they are; the file is written whole or not at all, and only its
owner can ever read it; the content of an entry is never shown.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from paddle_aws.operations.cluster.cluster_api import CONTEXT_MARK
from paddle_aws.operations.errors import BadInput
from paddle_settings import file as settings_file


@dataclass(frozen=True)
class Entry:
    """A cluster and the user's identity there, both under one name."""

    name: str
    cluster: dict[str, Any]
    user: dict[str, Any] = field(repr=False)


def merge(path: Path, entry: Entry, alias: str | None) -> str:
    """Adds the entry, makes it the current context and returns the context's name. Raises BadInput
    for an invalid kubeconfig.
    """
    config = _read(path)
    context = alias or entry.name
    # An address alone does not say that a self-managed cluster runs in AWS.
    mark = {"name": CONTEXT_MARK, "extension": {"provider": "aws"}}
    names = {"cluster": entry.name, "user": entry.name}
    entries: dict[str, tuple[str, dict[str, Any]]] = {
        "clusters": (entry.name, {"cluster": entry.cluster}),
        "users": (entry.name, {"user": entry.user}),
        "contexts": (context, {"context": {**names, "extensions": [mark]}}),
    }
    for kind, (name, content) in entries.items():
        others = [other for other in config.get(kind) or [] if other.get("name") != name]
        config[kind] = [*others, {"name": name, **content}]
    config["current-context"] = context
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    # Nobody else may read the file, not even for a moment.
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
        document = yaml.safe_load(settings_file.text(path))
    except (settings_file.SettingError, ValueError, yaml.YAMLError, RecursionError):
        document = False
    if document is None:
        return empty
    if not isinstance(document, dict) or any(
        not isinstance(document.get(kind) or [], list) for kind in ("clusters", "users", "contexts")
    ):
        raise BadInput(
            f"{path} is not a kubeconfig: move it away, or name another file with --file"
        )
    return document

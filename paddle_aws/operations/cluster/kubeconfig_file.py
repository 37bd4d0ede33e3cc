"""Adds one cluster's entry to a kubeconfig file, and reads a self-managed cluster's entry from
Secrets Manager.

Promises: other entries stay as they are; the file is written whole or not at all, and only its
owner can ever read it; the content of an entry is never shown. Each team has its own kubeconfig;
anyone who may read a team's secret acts as that team (docs/people.md).
"""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from paddle_aws.operations.account.aws import client
from paddle_aws.operations.cluster.cluster import MARK
from paddle_aws.operations.errors import BadInput, Unreachable
from paddle_aws.settings import file as settings_file

Team = Literal["operator", "trainer", "reader"]


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
    mark = {"name": MARK, "extension": {"provider": "aws"}}
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


def of_team(name: str, region: str, team: Team) -> Entry:
    """Returns a team's entry. Raises BadInput or Unreachable if the team's secret holds none."""
    from botocore.exceptions import ClientError

    secret = f"{name}/kubeconfig/{team}"
    try:
        found = client("secretsmanager", region).get_secret_value(SecretId=secret)
    except ClientError as error:
        if error.response["Error"]["Code"] == "AccessDeniedException":
            raise Unreachable(
                f"you may not read secret {secret}: --team names another team (operator, "
                "trainer, reader)"
            ) from None
        if error.response["Error"]["Code"] != "ResourceNotFoundException":
            raise
        # AWS gives one answer in two cases: no such secret, and a secret without a value yet.
        if "staging label" in error.response["Error"].get("Message", ""):
            raise Unreachable(
                f"the control plane of {name} has not written its kubeconfig yet: wait until it "
                "has started (some minutes)"
            ) from None
        raise BadInput(
            f"secret {secret} does not exist in {region}: deploy the cluster, or correct name "
            "and region in cluster.yaml"
        ) from None
    try:
        config = yaml.safe_load(found["SecretString"])
        cluster, user = dict(config["clusters"][0]["cluster"]), dict(config["users"][0]["user"])
    except (yaml.YAMLError, KeyError, IndexError, TypeError, ValueError, RecursionError):
        # Without the secret's content: it may be a secret all the same.
        raise BadInput(
            f"secret {secret} holds no kubeconfig: the control plane writes it when it starts"
        ) from None
    # The operator's entry has the cluster's name; the others' names differ.
    return Entry(name if team == "operator" else f"{name}-{team}", cluster, user)

"""A self-managed cluster's address and credentials, which its control plane keeps in Secrets Manager.

Promises: the secret goes into the kubeconfig file and nowhere else. Each team has a kubeconfig of its own; whoever may
read it is that team (docs/people.md).
"""

from __future__ import annotations

from typing import Literal, get_args

from operations.aws import client
from operations.errors import BadInput, Unreachable
from operations.kubeconfig_file import Entry, parse

Team = Literal["operator", "trainer", "reader"]


def entry(name: str, region: str, team: Team | None) -> tuple[Entry, Team]:
    """The entry of a team; None: of the first team whose secret may be read, the operator's before the others."""
    refused: Exception | None = None
    for one in (team,) if team else get_args(Team):
        try:
            return _of(name, region, one), one
        except Exception as error:
            if getattr(error, "response", {}).get("Error", {}).get("Code") != "AccessDeniedException":
                raise
            refused = error
    assert refused is not None
    raise refused


def _of(name: str, region: str, team: Team) -> Entry:
    from botocore.exceptions import ClientError

    secret = f"{name}/kubeconfig/{team}"
    try:
        found = client("secretsmanager", region).get_secret_value(SecretId=secret)
    except ClientError as error:
        if error.response["Error"]["Code"] != "ResourceNotFoundException":
            raise
        # One answer for two things: no such secret, and a secret that has no value yet.
        if "staging label" in error.response["Error"].get("Message", ""):
            raise Unreachable(
                f"the control plane of {name} has not written its kubeconfig yet: wait until it has started (some minutes)"
            ) from None
        raise BadInput(
            f"secret {secret} does not exist in {region}: deploy the cluster, or correct name and region in cluster.yaml"
        ) from None
    # The operator is whom the cluster is named for; the others are told apart.
    return parse(found["SecretString"], name if team == "operator" else f"{name}-{team}", f"secret {secret}")

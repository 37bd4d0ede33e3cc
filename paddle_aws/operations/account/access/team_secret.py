"""Reads a team's entry of a self-managed cluster from Secrets Manager.

Each team has its own kubeconfig; anyone who may read a team's secret acts as that team
(docs/people.md). The content of an entry is never shown.
"""

from typing import Literal

import yaml

from paddle_aws.operations.account.aws import client
from paddle_aws.operations.cluster.kubeconfig_file import Entry
from paddle_aws.operations.errors import BadInput, Unreachable

Team = Literal["operator", "trainer", "reader"]


def team_entry(name: str, region: str, team: Team) -> Entry:
    """Returns a team's entry. Raises BadInput or Unreachable if the team's secret holds none."""
    from botocore.exceptions import ClientError

    secret = f"{name}/kubeconfig/{team}"
    try:
        answer = client("secretsmanager", region).get_secret_value(SecretId=secret)
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
        config = yaml.safe_load(answer["SecretString"])
        cluster, user = dict(config["clusters"][0]["cluster"]), dict(config["users"][0]["user"])
    except (yaml.YAMLError, KeyError, IndexError, TypeError, ValueError, RecursionError):
        # Without the secret's content: it may be a secret all the same.
        raise BadInput(
            f"secret {secret} holds no kubeconfig: the control plane writes it when it starts"
        ) from None
    # The operator's entry has the cluster's name; the others' names differ.
    return Entry(name if team == "operator" else f"{name}-{team}", cluster, user)

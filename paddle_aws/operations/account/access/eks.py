"""An EKS cluster's kubeconfig entry, as the aws CLI writes it: the CLI itself gives the tokens."""

import os
from typing import Any

from paddle_aws.operations.account.aws import client
from paddle_aws.operations.cluster.kubeconfig_file import Entry
from paddle_aws.operations.errors import BadInput, Unreachable

EXEC = "client.authentication.k8s.io/v1beta1"


def entry(name: str, region: str) -> tuple[Entry, bool]:
    """Returns the kubeconfig entry, with the program that gives tokens and no credential, and
    whether the endpoint is public.

    Raises BadInput if there is no such cluster, Unreachable if it is not active yet.
    """
    api = client("eks", region)
    try:
        description = api.describe_cluster(name=name)["cluster"]
    except api.exceptions.ResourceNotFoundException:
        advice = "deploy it, or correct name and region in cluster.yaml"
        raise BadInput(f"cluster {name} does not exist in {region}: {advice}") from None
    if description.get("status") not in ("ACTIVE", "UPDATING"):
        raise Unreachable(f"cluster {name} is {description.get('status')}: wait until it is ACTIVE")
    authority = description.get("certificateAuthority", {}).get("data", "")
    cluster = {"server": description["endpoint"], "certificate-authority-data": authority}
    public = bool(description.get("resourcesVpcConfig", {}).get("endpointPublicAccess", True))
    return Entry(description["arn"], cluster, {"exec": _credential_program(name, region)}), public


def _credential_program(name: str, region: str) -> dict[str, Any]:
    arguments = ["--region", region, "eks", "get-token", "--cluster-name", name, "--output", "json"]
    program: dict[str, Any] = {
        "apiVersion": EXEC,
        "command": "aws",
        "args": arguments,
        "interactiveMode": "IfAvailable",
    }
    if profile := os.environ.get("AWS_PROFILE"):
        program["env"] = [{"name": "AWS_PROFILE", "value": profile}]
    return program

"""An EKS cluster's address and its tokens, as the aws CLI writes them into a kubeconfig."""

import base64
import json
import os
import shutil
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

from operations.account.aws import client
from operations.cluster.kubeconfig_file import Entry
from operations.errors import BadInput, Unreachable

EXEC = "client.authentication.k8s.io/v1beta1"
TOKEN_SECONDS = 60
"""For which the signature is made; EKS takes a token for 15 minutes, whatever it says."""
USED_FOR = timedelta(minutes=14)


def entry(name: str, region: str) -> tuple[Entry, bool]:
    """The cluster's entry in a kubeconfig, and whether its endpoint is public: no credential, but the program that gives a token.

    Raises BadInput where there is no such cluster, Unreachable where it is not active yet.
    """
    api = client("eks", region)
    try:
        found = api.describe_cluster(name=name)["cluster"]
    except api.exceptions.ResourceNotFoundException:
        advice = "deploy it, or correct name and region in cluster.yaml"
        raise BadInput(f"cluster {name} does not exist in {region}: {advice}") from None
    if found.get("status") not in ("ACTIVE", "UPDATING"):
        raise Unreachable(f"cluster {name} is {found.get('status')}: wait until it is ACTIVE")
    authority = found.get("certificateAuthority", {}).get("data", "")
    cluster = {"server": found["endpoint"], "certificate-authority-data": authority}
    public = bool(found.get("resourcesVpcConfig", {}).get("endpointPublicAccess", True))
    return Entry(found["arn"], cluster, {"exec": _credential_program(name, region)}), public


def _credential_program(name: str, region: str) -> dict[str, Any]:
    if shutil.which("aws"):
        command, arguments = "aws", ["--region", region, "eks", "get-token", "--cluster-name", name, "--output", "json"]
    else:
        command, arguments = sys.executable, ["-P", "-m", "operations.main", "eks-token", name, region]
    program: dict[str, Any] = {"apiVersion": EXEC, "command": command, "args": arguments, "interactiveMode": "IfAvailable"}
    if profile := os.environ.get("AWS_PROFILE"):
        program["env"] = [{"name": "AWS_PROFILE", "value": profile}]
    return program


def token(name: str, region: str) -> str:
    """An ExecCredential: a signed request to STS, which EKS sends to learn who asks."""
    sts = client("sts", region)

    def named(request: Any, **_: Any) -> None:
        request.headers.add_header("x-k8s-aws-id", name)

    # As the aws CLI signs it: with the header that EKS will send.
    sts.meta.events.register("before-sign.sts.GetCallerIdentity", named)
    signed = sts.generate_presigned_url("get_caller_identity", ExpiresIn=TOKEN_SECONDS, HttpMethod="GET")
    text = "k8s-aws-v1." + base64.urlsafe_b64encode(signed.encode()).decode().rstrip("=")
    until = (datetime.now(UTC) + USED_FOR).strftime("%Y-%m-%dT%H:%M:%SZ")
    status = {"expirationTimestamp": until, "token": text}
    return json.dumps({"kind": "ExecCredential", "apiVersion": EXEC, "spec": {}, "status": status})

"""AWS with the user's credentials: clients, and the cdk command. No secret is stored or shown.

boto3 handles AWS_ENDPOINT_URL, profiles and regions; botocore's standard mode retries calls.
"""

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from paddle_aws.operations.errors import BadInput
from paddle_aws.stacks.cluster_spec import ClusterSpec, load_cluster


def client(service: str, region: str | None = None) -> Any:
    """Returns a boto3 client. Raises botocore's errors, which `operations.errors` explains."""
    import boto3
    from botocore.config import Config

    config = Config(
        retries={"mode": "standard", "total_max_attempts": 5},
        connect_timeout=10,
        user_agent_appid="paddle-aws",
    )
    return boto3.session.Session().client(service, region_name=region, config=config)


def list_all(client: Any, operation: str, path: str, **arguments: Any) -> Iterator[Any]:
    """Yields what `path` (JMESPath) finds in an answer, on all its pages."""
    import jmespath

    paged = client.can_paginate(operation)
    answers = (
        client.get_paginator(operation).paginate(**arguments)
        if paged
        else [getattr(client, operation)(**arguments)]
    )
    values = (value for answer in answers for value in jmespath.search(path, answer) or ())
    return (value for value in values if value is not None)


def load_deployable(config: Path) -> ClusterSpec:
    """Loads a cluster's settings. Raises BadInput if they name an account, and the credentials are
    of another one.
    """
    spec = load_cluster(config)
    if spec.account is not None:
        identity = client("sts", spec.region).get_caller_identity()
        if identity["Account"] != spec.account:
            raise BadInput(
                f"account is {spec.account}, and these credentials are of {identity['Account']} "
                f"({identity['Arn']}): take others with AWS_PROFILE"
            )
    return spec


def cdk(arguments: Sequence[str], **how: Any) -> subprocess.CompletedProcess[str]:
    """Runs the cdk command. Raises BadInput if it is missing."""
    try:
        return subprocess.run(["cdk", *arguments], text=True, check=False, **how)
    except FileNotFoundError:
        raise BadInput(
            "there is no cdk command on PATH: run this where `cdk deploy` runs"
        ) from None

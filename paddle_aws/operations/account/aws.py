"""AWS clients with the user's credentials. No secret of them is stored or shown.

boto3 handles AWS_ENDPOINT_URL, profiles and regions; botocore's standard mode retries calls.
"""

from collections.abc import Iterator
from typing import Any

from paddle_aws.operations.errors import BadInput


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


def check_account(account: str | None, region: str) -> None:
    """Raises BadInput if the credentials are not of `account`; None: any account will do."""
    if account is None:
        return
    identity = client("sts", region).get_caller_identity()
    if identity["Account"] != account:
        raise BadInput(
            f"account is {account}, and these credentials are of {identity['Account']} "
            f"({identity['Arn']}): take others with AWS_PROFILE"
        )

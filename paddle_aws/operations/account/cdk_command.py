"""Runs the cdk command."""

import subprocess
from collections.abc import Sequence
from typing import Any

from paddle_aws.operations.errors import BadInput


def cdk(arguments: Sequence[str], **how: Any) -> subprocess.CompletedProcess[str]:
    """Runs the cdk command. Raises BadInput if it is missing."""
    try:
        return subprocess.run(["cdk", *arguments], text=True, check=False, **how)
    except FileNotFoundError:
        raise BadInput(
            "there is no cdk command on PATH: run this where `cdk deploy` runs"
        ) from None

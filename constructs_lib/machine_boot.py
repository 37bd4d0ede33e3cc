"""The user data of a machine of the self-managed cluster: its variables, and the lines that fetch, check and run its scripts.

Promises: no secret in it (secrets are named by ARN); values with a single quote are refused, because a shell reads them.
constructs_lib/bootstrap/README.md has the variables.
"""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import aws_ec2 as ec2

from constructs_lib.machine_files import BOOTSTRAP

LIMIT = 16384
"""EC2's limit of user data, bytes."""


def boot_user_data(variables: Mapping[str, str]) -> ec2.UserData:
    """User data that gives a machine `variables` and goes on with constructs_lib/bootstrap/user-data.sh."""
    for name, value in variables.items():
        if "'" in value:
            raise ValueError(f"{name} is {value}: a machine's variable holds no single quote")
    lines = "\n".join(f"{name}='{value}'" for name, value in variables.items())
    rest = "\n".join(
        line
        for line in (BOOTSTRAP / "user-data.sh").read_text(encoding="utf-8").splitlines()
        if not line.lstrip().startswith("#") and line.strip()
    )
    return ec2.UserData.custom(
        "#!/bin/bash\n"
        "set -euo pipefail\n"
        "install -d -m 700 /etc/paddle-cluster\n"
        "cat > /etc/paddle-cluster/environment <<'END_OF_ENVIRONMENT'\n"
        f"{lines}\n"
        "END_OF_ENVIRONMENT\n"
        f"{rest}\n"
    )

"""The policies of a restricted deployer, as IAM has them."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from paddle_aws.operations.errors import BadInput, Failed
from paddle_aws.operations.screen import say


def compile_policies(config: Path) -> dict[str, dict[str, Any]]:
    """Returns the policies by name; a separate process makes them from the templates."""
    with tempfile.TemporaryDirectory() as out:
        # Without a folder on the path in which files may have the names of our libraries.
        command = [
            sys.executable,
            "-P",
            "-m",
            "paddle_aws.stacks.deployment_policy",
            "--config",
            str(config.resolve()),
            "--out",
            out,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise (BadInput if done.returncode == 2 else Failed)(done.stderr.strip())
        return {
            file.stem: json.loads(file.read_text(encoding="utf-8"))
            for file in sorted(Path(out).iterdir())
        }


def put_policy(iam: Any, prefix: str, name: str, document: dict[str, Any]) -> None:
    """Creates a policy, or a new version of it."""
    text = json.dumps(document, separators=(",", ":"))
    try:
        iam.create_policy(PolicyName=name, Path=prefix.partition(":policy")[2], PolicyDocument=text)
    except iam.exceptions.EntityAlreadyExistsException:
        # IAM keeps at most five versions.
        for version in iam.list_policy_versions(PolicyArn=prefix + name)["Versions"]:
            if not version["IsDefaultVersion"]:
                iam.delete_policy_version(PolicyArn=prefix + name, VersionId=version["VersionId"])
        iam.create_policy_version(PolicyArn=prefix + name, PolicyDocument=text, SetAsDefault=True)
    say(f"made {prefix}{name}")

"""`paddle-aws bootstrap`: `cdk bootstrap` for only one cluster, and the policies of a restricted
deployer.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from paddle_aws.operations.account.aws import check_account, client
from paddle_aws.operations.errors import BadInput, Failed, cli_errors
from paddle_aws.operations.options import CLUSTER, Config
from paddle_aws.operations.screen import say
from paddle_aws.stacks.cluster_spec import POLICY_PATH, load_cluster

ACCOUNTS = re.compile(r"\d{12}(,\d{12})*")


def bootstrap(
    config: Config = CLUSTER,
    trust: Annotated[
        str | None,
        typer.Option(
            metavar="ACCOUNT[,…]",
            help="Other accounts whose pipelines may deploy here, added to those of earlier runs.",
        ),
    ] = None,
) -> None:
    """Prepare account and region for this cluster's deploys: `cdk bootstrap` with the qualifier
    that its stacks name.

    With `deployer: restricted` it first makes, or brings up to date, the policies that
    CloudFormation deploys with and the permissions boundaries; `python -m
    paddle_aws.stacks.deployment_policy` shows them. An administrator runs it.

    A pipeline of another account deploys with --trust; `cdk bootstrap --untrust` takes it back.

    Example: paddle-aws bootstrap --trust 123456789012
    """
    with cli_errors():
        spec = load_cluster(config)
        check_account(spec.account, spec.region)
        if trust is not None and not ACCOUNTS.fullmatch(trust):
            raise BadInput(
                f"--trust is {trust}: allowed are account numbers of 12 digits, with commas between"
            )
        if spec.bootstrap_qualifier:
            raise BadInput(
                f"bootstrap_qualifier is {spec.qualifier}: whoever made this bootstrap keeps it; "
                "leave the setting out for one of the cluster's own"
            )
        # Before the first request to AWS: settings from which no policies can be made change
        # nothing.
        policies = _policies(config) if spec.deployment_policies else {}
        _, partition, _, _, account, _ = (
            client("sts", spec.region).get_caller_identity()["Arn"].split(":", 5)
        )
        own = f"arn:{partition}:iam::{account}:policy{POLICY_PATH}"
        for name, document in policies.items():
            _make(client("iam", spec.region), own, name, document)
        names = [name for name in policies if name.startswith(f"{spec.policy_prefix}-deploy-")]
        given = (
            ",".join(own + name for name in names)
            or f"arn:{partition}:iam::aws:policy/AdministratorAccess"
        )
        command = ["bootstrap", f"aws://{account}/{spec.region}", "--qualifier", spec.qualifier]
        for other in trust.split(",") if trust else ():
            command += ["--trust", other]
        command += [
            "--toolkit-stack-name",
            f"CDKToolkit-{spec.qualifier}",
            "--cloudformation-execution-policies",
            given,
        ]
        if spec.deployment_policies:
            command += ["--custom-permissions-boundary", f"{spec.deployment_policies}-bootstrap"]
            command += ["--apply-permissions-boundary-to-all-roles"]
        # Runs in a folder without cdk.json: otherwise cdk would first synthesize the app, and ask
        # it for environments.
        with tempfile.TemporaryDirectory() as elsewhere:
            code = cdk(command, cwd=elsewhere).returncode
        if code:
            raise Failed(f"cdk bootstrap ended with code {code}: its own message stands above")


def cdk(arguments: Sequence[str], **how: Any) -> subprocess.CompletedProcess[str]:
    """Runs the cdk command. Raises BadInput if it is missing."""
    try:
        return subprocess.run(["cdk", *arguments], text=True, check=False, **how)
    except FileNotFoundError:
        raise BadInput(
            "there is no cdk command on PATH: run this where `cdk deploy` runs"
        ) from None


def _policies(config: Path) -> dict[str, dict[str, Any]]:
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


def _make(iam: Any, own: str, name: str, document: dict[str, Any]) -> None:
    """Creates a policy, or a new version of it."""
    text = json.dumps(document, separators=(",", ":"))
    try:
        iam.create_policy(PolicyName=name, Path=own.partition(":policy")[2], PolicyDocument=text)
    except iam.exceptions.EntityAlreadyExistsException:
        # IAM keeps at most five versions.
        for one in iam.list_policy_versions(PolicyArn=own + name)["Versions"]:
            if not one["IsDefaultVersion"]:
                iam.delete_policy_version(PolicyArn=own + name, VersionId=one["VersionId"])
        iam.create_policy_version(PolicyArn=own + name, PolicyDocument=text, SetAsDefault=True)
    say(f"made {own}{name}")

"""`paddle-aws bootstrap`: `cdk bootstrap` for only one cluster, and the policies of a restricted
deployer.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from paddle_aws.operations.account.aws import cdk, client, load_deployable
from paddle_aws.operations.errors import BadInput, Failed
from paddle_aws.operations.options import CLUSTER, Config
from paddle_aws.operations.screen import say
from paddle_aws.stacks.cluster_spec import POLICY_PATH

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
    permissions_boundary: Annotated[
        str | None,
        typer.Option(
            metavar="POLICY",
            help="Your organization's permissions boundary, for all roles of the bootstrap.",
        ),
    ] = None,
) -> None:
    """Prepare account and region for this cluster's deploys: `cdk bootstrap` with the qualifier
    that its stacks name.

    With `deployer: restricted` it first makes, or brings up to date, the policies that
    CloudFormation deploys with and the permissions boundaries; `python -m
    paddle_aws.stacks.deployment_policy` shows them. An administrator runs it.

    With --trust, a pipeline of another account may deploy, and so do all that CloudFormation may
    do here: everything, unless `deployer` is restricted. `cdk bootstrap --untrust` takes that back.

    Example: paddle-aws bootstrap --trust 123456789012
    """
    spec = load_deployable(config)
    if trust is not None and not ACCOUNTS.fullmatch(trust):
        raise BadInput(
            f"--trust is {trust}: allowed are account numbers of 12 digits, with commas between"
        )
    if spec.bootstrap_qualifier:
        raise BadInput(
            f"bootstrap_qualifier is {spec.qualifier}: whoever made this bootstrap keeps it; "
            "leave the setting out for one of the cluster's own"
        )
    if permissions_boundary is not None and spec.deployment_policies:
        raise BadInput(
            f"--permissions-boundary is {permissions_boundary} and deployer is restricted: "
            "that has a boundary of its own, leave the option out"
        )
    # Before the first request to AWS: settings from which no policies can be made change
    # nothing.
    policies = _compile_policies(config) if spec.deployment_policies else {}
    _, partition, _, _, account, _ = (
        client("sts", spec.region).get_caller_identity()["Arn"].split(":", 5)
    )
    policies_arn = f"arn:{partition}:iam::{account}:policy{POLICY_PATH}"
    for name, document in policies.items():
        _put_policy(client("iam", spec.region), policies_arn, name, document)
    names = [name for name in policies if name.startswith(f"{spec.policy_prefix}-deploy-")]
    policy_arns = (
        ",".join(policies_arn + name for name in names)
        or f"arn:{partition}:iam::aws:policy/AdministratorAccess"
    )
    command = ["bootstrap", f"aws://{account}/{spec.region}", "--qualifier", spec.qualifier]
    toolkit = f"CDKToolkit-{spec.qualifier}"
    if trust:
        # cdk puts those that it is given in place of the earlier ones.
        others = dict.fromkeys([*_trusted(toolkit, spec.region), *trust.split(",")])
        command += [word for other in others for word in ("--trust", other)]
    command += ["--toolkit-stack-name", toolkit, "--cloudformation-execution-policies", policy_arns]
    boundary = permissions_boundary
    if spec.deployment_policies:
        boundary = f"{spec.deployment_policies}-bootstrap"
    if boundary is not None:
        command += ["--custom-permissions-boundary", boundary]
        command += ["--apply-permissions-boundary-to-all-roles"]
    # Runs in a folder without cdk.json: otherwise cdk would first synthesize the app, and ask
    # it for environments.
    with tempfile.TemporaryDirectory() as elsewhere:
        code = cdk(command, cwd=elsewhere).returncode
    if code:
        raise Failed(f"cdk bootstrap ended with code {code}: its own message stands above")


def _trusted(stack: str, region: str) -> list[str]:
    """Returns the accounts that earlier runs of bootstrap trust."""
    from botocore.exceptions import ClientError

    try:
        [toolkit] = client("cloudformation", region).describe_stacks(StackName=stack)["Stacks"]
    except ClientError as error:
        if error.response["Error"]["Code"] != "ValidationError":
            raise
        return []  # There is no such stack yet.
    given = {row["ParameterKey"]: row["ParameterValue"] for row in toolkit.get("Parameters", ())}
    return [account for account in given.get("TrustedAccounts", "").split(",") if account]


def _compile_policies(config: Path) -> dict[str, dict[str, Any]]:
    """Returns the policies by name; a separate process makes them from the templates."""
    with tempfile.TemporaryDirectory() as out:
        # -P: without a folder on the path in which files may have the names of our libraries.
        command = [sys.executable, "-P", "-m", "paddle_aws.stacks.deployment_policy"]
        command += ["--config", str(config.resolve()), "--out", out]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise (BadInput if done.returncode == 2 else Failed)(done.stderr.strip())
        files = sorted(Path(out).iterdir())
        return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files}


def _put_policy(iam: Any, prefix: str, name: str, document: dict[str, Any]) -> None:
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

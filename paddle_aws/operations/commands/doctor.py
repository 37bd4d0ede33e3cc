"""`paddle-aws doctor`: what is wrong, before it costs money or time."""

from itertools import groupby
from typing import Annotated

import typer

from paddle_aws.operations.account.aws import load_deployable
from paddle_aws.operations.account.check import Finding, run
from paddle_aws.operations.account.checks.account_checks import AccountChecks
from paddle_aws.operations.account.checks.deployed_checks import DeployedChecks
from paddle_aws.operations.errors import BadInput, Failed, Unreachable
from paddle_aws.operations.options import CLUSTER, Config, Json
from paddle_aws.operations.screen import print_json, print_table, say


def doctor(
    config: Config = CLUSTER,
    destroy: Annotated[
        bool, typer.Option("--destroy", help="Show what would keep `cdk destroy` from ending.")
    ] = False,
    fix: Annotated[
        bool,
        typer.Option(
            "--fix",
            help="Activate the tag that the budget counts by, and delete the log group that an "
            "ended cluster left in the next deploy's way.",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Check the account and, once it is deployed, the cluster. Changes nothing without --fix.

    Each line is ok, a warning or a problem, and says what to do. Every check runs, even if another
    one fails. Exit code 1 if there is a problem, 3 if the account cannot be queried at all.

    Example: paddle-aws doctor && cdk deploy --all --outputs-file outputs.json

    Example: paddle-aws doctor --destroy && cdk destroy --all
    """
    spec = load_deployable(config)
    if fix and destroy:
        raise BadInput("--fix prepares a deploy: leave out --destroy")
    account = AccountChecks(spec, fix=fix)
    deployed = DeployedChecks(spec, account, fix=fix)
    ready = deployed.list_readiness() if deployed.deployed else []
    checks = deployed.destroy() if destroy else [*account.list_checks(), *ready]
    findings = run(checks)
    if json:
        print_json([finding._asdict() for finding in findings])
    else:
        groups = groupby(findings, lambda finding: (finding.state, finding.text))
        print_table(("CHECK", "STATE", "WHAT"), [_row(list(alike)) for _, alike in groups])
    problems = sum(finding.state == "problem" for finding in findings)
    unsure = sum(finding.state == "warning" for finding in findings)
    if any((finding.check, finding.state) == ("credentials", "problem") for finding in findings):
        raise Unreachable("the account cannot be queried: see the credentials line")
    if problems:
        raise Failed(
            f"{problems} problem{'s' * (problems > 1)}, {unsure} warning{'s' * (unsure != 1)}"
        )
    say(f"no problem, {unsure} warning{'s' * (unsure != 1)}")


def _row(alike: list[Finding]) -> tuple[str, str, str]:
    """Returns the line of one finding, or of several that say the same, as without credentials."""
    _, state, text = alike[0]
    names = list(dict.fromkeys(finding.check for finding in alike))
    if len(names) == 1:
        return names[0], state, text
    return f"{len(names)} checks", state, f"{text} ({', '.join(names)})"

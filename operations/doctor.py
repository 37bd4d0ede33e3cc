"""`paddle-aws doctor`: what is wrong, before it costs money or time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from operations.errors import Failed, Unreachable, explained
from operations.screen import Json, as_json, say, show


def doctor(
    config: Annotated[Path, typer.Argument(metavar="CLUSTER", help="The cluster's settings.")] = Path("cluster.yaml"),
    destroy: Annotated[bool, typer.Option("--destroy", help="What would keep `cdk destroy` from ending.")] = False,
    json: Json = False,
) -> None:
    """Check the account and, once it is deployed, the cluster. Changes nothing.

    Each line is ok, a warning or a problem, and says what to do; all is checked even when something fails.
    Exit code 1 if there is a problem, 3 if the account cannot be asked at all.

    Example: paddle-aws doctor && cdk deploy --all --outputs-file outputs.json

    Example: paddle-aws doctor --destroy && cdk destroy --all
    """
    with explained():
        from dataclasses import asdict

        from operations import account_checks
        from operations.account_checks import AccountChecks
        from operations.deployed_checks import DeployedChecks
        from stacks.cluster_spec import ClusterSpec

        spec = ClusterSpec.load(config)
        account = AccountChecks(spec)
        deployed = DeployedChecks(spec, account)
        ready = deployed.ready() if deployed.deployed else []
        checks = deployed.destroy() if destroy else [*account.all(), *ready]
        found = account_checks.run(checks)
        if json:
            as_json([asdict(one) for one in found])
        else:
            show(("CHECK", "STATE", "WHAT"), [(one.check, one.state, one.text) for one in found])
        problems = sum(one.state == "problem" for one in found)
        unsure = sum(one.state == "warning" for one in found)
        if any((one.check, one.state) == ("credentials", "problem") for one in found):
            raise Unreachable("the account cannot be asked: see the line of the credentials")
        if problems:
            raise Failed(f"{problems} problem{'s' * (problems > 1)}, {unsure} warning{'s' * (unsure != 1)}")
        say(f"no problem, {unsure} warning{'s' * (unsure != 1)}")

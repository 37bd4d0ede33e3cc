"""`paddle-aws diff`: what a `cdk deploy` would replace or remove, and what would be lost with it."""

import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from operations.commands.bootstrap import cdk
from operations.errors import BadInput, Failed, cli_errors, of_aws
from operations.screen import Json, as_json, say, show

NAME = "paddle-aws-diff"
MIXED = "refused"
VERSIONS = {"Version", "ReleaseVersion"}
"""Of a node group: EKS changes them alone."""


class Loss(NamedTuple):
    """A resource that a change set replaces or removes; `what` is what a user loses with it, if it holds data."""

    stack: str
    resource: str
    type: str
    change: str
    what: str


def diff(
    config: Annotated[Path, typer.Argument(metavar="CLUSTER", help="The cluster's settings.")] = Path("cluster.yaml"),
    json: Json = False,
) -> None:
    """Name each resource that `cdk deploy` would replace or remove, and the data that would go with it.

    CloudFormation itself works it out, in change sets that are prepared, read and deleted: nothing is changed.
    Exit code 1 if something that holds data would go.

    Example: paddle-aws diff && cdk deploy --all --outputs-file outputs.json
    """
    with cli_errors():
        from operations.account.account_checks import AccountChecks
        from operations.account.version_checks import refused_step
        from operations.commands.protect import HOLDS_DATA, IN_USE
        from stacks.cluster_spec import ClusterSpec

        spec = ClusterSpec.load(config)
        account = AccountChecks(spec)
        try:
            deployed = [stack["StackName"] for stack in account.deployed_stacks]
            others = sorted(account.other_clusters())
        except Exception as error:
            sentence = of_aws(error)
            if sentence is None:
                raise
            raise BadInput(sentence) from None
        if not deployed:
            say(f"no stack of cluster {spec.name} is deployed: `cdk deploy --all` makes it and replaces nothing")
            if others:
                named = f"{spec.region} has another cluster: {', '.join(others)}"
                say(f"{named}. A new `name` is a new cluster; the old one stays, and is billed")
            if json:
                as_json([])
            return
        if refused := refused_step(spec, account.outputs):
            raise BadInput(refused)
        api = account.client("cloudformation")
        _prepare(config, deployed)
        try:
            losses = [loss for stack in deployed for loss in _losses(api, stack, {**HOLDS_DATA, **IN_USE})]
        finally:
            for stack in deployed:
                with suppress(api.exceptions.ChangeSetNotFoundException):
                    api.delete_change_set(StackName=stack, ChangeSetName=NAME)
        if json:
            as_json([loss._asdict() for loss in losses])
        elif losses:
            show(("STACK", "RESOURCE", "TYPE", "CHANGE", "LOST WITH IT"), losses)
        else:
            say("nothing is replaced or removed")
        if any(loss.what for loss in losses):
            raise Failed(
                "the deploy would lose what the last column names: keep the old settings; or copy the data and "
                "run `paddle-aws protect --lift`, `cdk deploy --all` and `paddle-aws protect`"
            )
        if any(loss.change == MIXED for loss in losses):
            raise Failed("CloudFormation changes a node group's version alone: deploy its other changes first, then the version")


def _prepare(config: Path, stacks: list[str]) -> None:
    """Change sets of the stacks that are deployed, by the cdk command: it knows the roles and where templates go."""
    command = ["deploy", *stacks, "--exclusively", "--method", "prepare-change-set", "--change-set-name", NAME]
    command += ["--require-approval", "never", "--context", f"config={config.resolve()}", "--output"]
    with tempfile.TemporaryDirectory() as assembly:
        done = cdk([*command, assembly], capture_output=True)
    if done.returncode:
        last = [line for line in done.stderr.splitlines() if line.strip()][-5:]
        raise Failed("cdk could not prepare the change sets:\n" + "\n".join(last))


def _losses(api: Any, stack: str, lost: dict[str, str]) -> Iterator[Loss]:
    pages = api.get_paginator("describe_change_set").paginate(StackName=stack, ChangeSetName=NAME)
    # cdk makes none for a stack that does not change.
    with suppress(api.exceptions.ChangeSetNotFoundException):
        for change in pages.search("Changes[].ResourceChange"):
            replaced = {"True": "replaced", "Conditional": "perhaps replaced"}.get(change.get("Replacement", ""))
            named = {detail["Target"].get("Name", "") for detail in change.get("Details", ())}
            mixed = MIXED if change["ResourceType"] == "AWS::EKS::Nodegroup" and named & VERSIONS and named - VERSIONS else None
            says = "removed" if change["Action"] == "Remove" else mixed or replaced
            if says:
                kind = change["ResourceType"]
                yield Loss(stack, change["LogicalResourceId"], kind, says, lost.get(kind, ""))

"""`paddle-aws diff`: what a `cdk deploy` would replace or remove, and the data that it would
lose.
"""

import json as json_documents
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from paddle_aws.operations.account.aws import cdk, list_all, load_deployable
from paddle_aws.operations.account.checks.account_checks import AccountChecks
from paddle_aws.operations.account.checks.version_checks import refused_step
from paddle_aws.operations.account.cluster_account import outputs_of
from paddle_aws.operations.account.protection import HOLDS_DATA, IN_USE, SET_BACK
from paddle_aws.operations.errors import BadInput, Failed, OperationError, translate_errors
from paddle_aws.operations.options import CLUSTER, Config, Json
from paddle_aws.operations.screen import print_json, print_table, say

NAME = "paddle-aws-diff"
DELETED = ": deleted with it; to keep it, set `retain: true` and deploy first"
OLDER = "; older ones are deleted within a day"
FEWER_IMAGES = (
    "the newest {} images (today {}) and those of submitted jobs are kept; all others are deleted "
    "within a day"
)
REFUSED = "refused"
VERSIONS = {"Version", "ReleaseVersion"}
"""A node group's properties that EKS changes only on their own."""
MIXED = (
    "CloudFormation changes a node group's version alone: deploy its other changes first, then "
    "the version"
)
FOR_GOOD = {
    "AWS::EKS::Cluster": {
        "KubernetesNetworkConfig": "cluster.service_cidr",
        "EncryptionConfig": "key",
    },
    "AWS::ECR::Repository": {"EncryptionConfiguration": "key"},
    "AWS::EC2::Volume": {
        "AvailabilityZone": "cluster.availability_zone",
        "KmsKeyId": "key",
        "SnapshotId": "cluster.volume_snapshot",
    },
}
"""Properties that CloudFormation refuses to change, and their settings: it replaces no resource
with a fixed name, no volume.
"""


MACHINES = ("AWS::EKS::Nodegroup", "AWS::AutoScaling::AutoScalingGroup")
"""Groups of machines."""
NEW_MACHINES = VERSIONS | {"LaunchTemplate"}
"""Properties with which a group replaces its machines, one after another."""


class Loss(NamedTuple):
    """A resource that a change set replaces or removes.

    `what` is what a user loses with it, if it holds data; if `change` is REFUSED, why
    CloudFormation refuses the deploy.
    """

    stack: str
    resource: str
    type: str
    change: str
    what: str


def diff(config: Config = CLUSTER, json: Json = False) -> None:
    """Name each resource that `cdk deploy` would replace or remove, and the data that would be lost
    with it.

    CloudFormation itself finds out: the command prepares change sets, reads them and deletes them,
    and changes nothing. Exit code 1 if the deploy would lose data, or CloudFormation would refuse
    it.

    Example: paddle-aws diff && cdk deploy --all --outputs-file outputs.json
    """
    spec = load_deployable(config)
    account = AccountChecks(spec)
    deployed = [stack["StackName"] for stack in account.deployed_stacks]
    if not deployed:
        _describe_first_deploy(account)
        if json:
            print_json([])
        return
    if refused := refused_step(spec, account.outputs):
        raise BadInput(refused)
    if says := _another_file_system(account, deployed):
        raise Failed(says)
    if account.makes_cluster:
        # `doctor` reports if EKS does not answer.
        with suppress(OperationError), translate_errors():
            for state, text in account.support():
                if state != "ok":
                    say(text)
    api = account.client("cloudformation")
    losses = []
    if left := _find_left_behind(account):
        losses.append(left)
        deployed.remove(left.stack)
    if deployed:
        _prepare(config, account, deployed)
    try:
        losses += [loss for stack in deployed for loss in _losses(api, stack)]
    finally:
        for stack in deployed:
            with suppress(api.exceptions.ChangeSetNotFoundException):
                api.delete_change_set(StackName=stack, ChangeSetName=NAME)
    if json:
        print_json([loss._asdict() for loss in losses])
    elif losses:
        print_table(("STACK", "RESOURCE", "TYPE", "CHANGE", "WHAT THAT MEANS"), losses)
    else:
        say("nothing is replaced or removed")
    if reasons := _reasons(losses):
        raise Failed("\n".join(reasons))


def _describe_first_deploy(account: AccountChecks) -> None:
    """Says that the first deploy replaces nothing, and which clusters of the account stay."""
    spec = account.spec
    say(
        f"no stack of cluster {spec.name} is deployed: `cdk deploy --all` makes it and "
        "replaces nothing"
    )
    if others := sorted(account.other_clusters()):
        named = f"{spec.region} has another cluster: {', '.join(others)}"
        say(f"{named}. A new `name` is a new cluster; the old one stays, and is billed")
    for region in account.other_regions():
        say(
            f"cluster {spec.name} is deployed in {region}: it stays there, with its data, "
            f"and is billed, until `cdk destroy --all` with region {region}"
        )


def _find_left_behind(account: AccountChecks) -> Loss | None:
    """Returns the stack of a budget that is no longer set, and says how to delete it."""
    spec = account.spec
    stacks = [stack for stack in account.deployed_stacks if "DashboardName" in outputs_of(stack)]
    if spec.budget or not stacks:
        return None
    watch = stacks[0]["StackName"]
    delete = f"aws cloudformation delete-stack --stack-name {watch} --region {spec.region}"
    say(
        f"cluster.yaml has no budget, and `cdk deploy` leaves {watch} and its alarms "
        f"behind: run `{delete}` first"
    )
    return Loss(watch, "the whole stack", "AWS::CloudFormation::Stack", "left behind", "")


def _reasons(losses: Sequence[Loss]) -> list[str]:
    """Returns why the deploy should not be made; empty if it loses no data."""
    reasons = list(dict.fromkeys(loss.what for loss in losses if loss.change == REFUSED))
    if any(loss.what and loss.change != REFUSED for loss in losses):
        then = "`paddle-aws protect --lift`, `cdk deploy --all` and `paddle-aws protect`"
        reasons.append(
            "the deploy would lose what the last column names: keep the old settings; or "
            f"copy it and run {then}. What is replaced stays in the account, and so does its "
            "key: `paddle-aws leftovers` lists both"
        )
    return reasons


def _another_file_system(account: AccountChecks, deployed: Sequence[str]) -> str:
    """Returns what a new `file_system.kind` means for the deployed file system; empty if the kind
    is the same, or if nothing uses the file system any more: then the change set itself names what
    goes.
    """
    spec, outputs = account.spec, account.outputs
    kind = "lustre" if "FileSystemMountName" in outputs else "efs"
    users = [name for name in deployed if name.endswith(("-nodes", "-watch"))]
    system = outputs.get("FileSystemId")
    ours = "AccessPointId" in outputs or kind == "lustre"
    if not (system and ours and users) or spec.file_system.kind == kind:
        return ""
    cloudformation = account.client("cloudformation")
    path = "StackResourceSummaries[].PhysicalResourceId"
    if not any(
        system in list_all(cloudformation, "list_stack_resources", path, StackName=stack)
        for stack in deployed
    ):
        becomes = f"{system}, which was there before, stays as it is"
    elif spec.retain:
        becomes = f"{system} stays in the account with all it holds, and is billed"
    else:
        becomes = (
            f"the deploy deletes {system} with all it holds: to keep it, set `retain: true` and "
            f"deploy with file_system.kind {kind} first"
        )
    return (
        f"file_system.kind is {spec.file_system.kind}, and the deployed file system is {kind}: a "
        f"deploy makes a new, empty one, and CloudFormation refuses it while {' and '.join(users)} "
        f"use the old one. {becomes[0].upper()}{becomes[1:]}. Copy what you need, `cdk destroy "
        f"{' '.join(users)}`, run this command again, and deploy all"
    )


def _prepare(config: Path, account: AccountChecks, deployed: list[str]) -> None:
    """Prepares change sets of the deployed stacks with the cdk command, which knows the roles and
    uploads the templates.
    """
    with tempfile.TemporaryDirectory() as assembly:
        listing = ["list", "--long", "--json", "--context", f"config={config.resolve()}"]
        done = cdk([*listing, "--output", assembly], capture_output=True)
        if done.returncode:
            raise Failed("cdk could not synthesize the stacks:\n" + _last_lines(done.stderr))
        # cdk identifies a stack by its path, which begins with a Stage's name. An app may have
        # stacks of the same name in other accounts and regions.
        here = {
            "account": {account.identity["Account"], "unknown-account"},
            "region": {account.spec.region, "unknown-region"},
        }
        paths = [
            stack["id"].partition(" (")[0]
            for stack in json_documents.loads(done.stdout)
            if stack["name"] in deployed
            and all(stack["environment"][key] in values for key, values in here.items())
        ]
        command = ["deploy", *paths, "--exclusively", "--method", "prepare-change-set"]
        command += ["--change-set-name", NAME, "--require-approval", "never", "--app", assembly]
        done = cdk(command, capture_output=True) if paths else done
    if done.returncode:
        raise Failed("cdk could not prepare the change sets:\n" + _last_lines(done.stderr))


def _last_lines(text: str) -> str:
    return "\n".join([line for line in text.splitlines() if line.strip()][-5:])


def _losses(api: Any, stack: str) -> Iterator[Loss]:
    pages = api.get_paginator("describe_change_set").paginate(StackName=stack, ChangeSetName=NAME)
    # cdk makes no change set for a stack that does not change.
    with suppress(api.exceptions.ChangeSetNotFoundException):
        changes = list(pages.search("Changes[].ResourceChange"))
        replaceable = _list_replaceable(changes)
        before, after = (
            api.get_template(StackName=stack, **which)["TemplateBody"]["Resources"]
            for which in ({}, {"ChangeSetName": NAME})
        )
        for change in changes:
            may_replace = change["LogicalResourceId"] in replaceable
            if loss := _loss(stack, change, may_replace, before, after):
                yield loss
        yield from _sooner_expiries(stack, before, after)


def _loss(
    stack: str,
    change: Mapping[str, Any],
    may_replace: bool,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
) -> Loss | None:
    """Returns what one change of a change set costs; None: nothing."""
    kind, name = change["ResourceType"], change["LogicalResourceId"]
    properties = {detail["Target"].get("Name", "") for detail in change.get("Details", ())}
    if kind == "AWS::EKS::Cluster" and _service_range(before, name) == _service_range(after, name):
        properties.discard("KubernetesNetworkConfig")
    outcome = _outcome(change, properties, may_replace)
    if reason := _refusal(kind, properties, outcome):
        return Loss(stack, name, kind, REFUSED, reason)
    if outcome is None:
        return None
    data = HOLDS_DATA.get(kind, "")
    if data and outcome == "removed" and change.get("PolicyAction") == "Delete":
        data += DELETED
    return Loss(stack, name, kind, outcome, data)


def _outcome(change: Mapping[str, Any], properties: set[str], may_replace: bool) -> str | None:
    """Returns what becomes of the resource; None: it stays as it is."""
    kind, replacement = change["ResourceType"], change.get("Replacement")
    if change["Action"] == "Remove":
        return "removed"
    if may_replace and replacement == "True":
        return "replaced"
    if kind in MACHINES and properties & NEW_MACHINES:
        return "new machines"
    # Only the properties in FOR_GOOD replace a cluster.
    if may_replace and replacement == "Conditional" and kind != "AWS::EKS::Cluster":
        return "perhaps replaced"
    return None


def _refusal(kind: str, properties: set[str], outcome: str | None) -> str | None:
    """Returns why CloudFormation will refuse the change; None: it does not."""
    fixed = {setting for name, setting in FOR_GOOD.get(kind, {}).items() if name in properties}
    if fixed:
        settings = ", ".join(sorted(fixed))
        return f"CloudFormation cannot change {settings} of a deployed cluster: {SET_BACK}"
    if kind == "AWS::EKS::Nodegroup" and properties & VERSIONS and properties - VERSIONS:
        return MIXED
    return IN_USE.get(kind) if outcome else None


def _service_range(resources: Mapping[str, Any], name: str) -> object:
    properties = resources.get(name, {}).get("Properties", {})
    return properties.get("KubernetesNetworkConfig", {}).get("ServiceIpv4Cidr")


def _sooner_expiries(
    stack: str, before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[Loss]:
    """Yields what has lifecycle rules that will delete what they keep today."""
    for name in before.keys() & after.keys():
        then = _expiry(after[name])
        for what, number in _expiry(before[name]).items():
            if then.get(what, number) < number:
                text = what.format(then[what], number)
                yield Loss(stack, name, after[name]["Type"], "expires sooner", text)


def _list_replaceable(changes: list[dict[str, Any]]) -> set[str]:
    """Returns the logical ids of the resources that are or may be replaced: CloudFormation reports
    `Conditional` for all that refers to a resource that changes.
    """
    replaceable = {
        change["LogicalResourceId"] for change in changes if change.get("Replacement") == "True"
    }
    while (
        more := {
            change["LogicalResourceId"]
            for change in changes
            if change.get("Replacement") == "Conditional"
            and any(_may_replace(detail, replaceable) for detail in change.get("Details", ()))
        }
        - replaceable
    ):
        replaceable |= more
    return replaceable


def _may_replace(detail: dict[str, Any], replaceable: set[str]) -> bool:
    """Whether a changed property may replace its resource. The attributes of a resource that stays
    do not change, except a launch template's version.
    """
    if detail["Target"].get("RequiresRecreation", "Never") == "Never":
        return False
    entity, _, attribute = detail.get("CausingEntity", "").partition(".")
    return not entity or entity in replaceable or attribute.endswith("VersionNumber")


def _expiry(resource: dict[str, Any]) -> dict[str, int]:
    """Returns after how much a resource deletes by itself, by the sentence that compares it."""
    properties = resource.get("Properties", {})
    numbers = {}
    for rule in properties.get("LifecycleConfiguration", {}).get("Rules", ()):
        if days := rule.get("NoncurrentVersionExpiration", {}).get("NoncurrentDays"):
            numbers["old versions are kept for {} days (today {})" + OLDER] = days
        if days := rule.get("ExpirationInDays"):
            numbers["objects are kept for {} days (today {})" + OLDER] = days
    text = properties.get("LifecyclePolicy", {}).get("LifecyclePolicyText")
    for rule in json_documents.loads(text)["rules"] if isinstance(text, str) else ():
        if rule["selection"]["tagStatus"] == "any":
            numbers[FEWER_IMAGES] = rule["selection"]["countNumber"]
    return numbers

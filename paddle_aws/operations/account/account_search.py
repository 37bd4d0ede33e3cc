"""Finds everything in an account that belongs to one cluster, by its tags and by the names that AWS
and Kubernetes give.

Promises: asks AWS's tagging service first, then the single services for resources that it does not
know or that have no tag of ours. Lists each resource once. `cdk destroy` removes what an existing
stack owns, and no other command is given for that: without an answer about the stacks nothing is
listed. What `retain` keeps, and a key that awaits its deletion or still encrypts something, is
expected.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from string import Template
from typing import Any

import yaml

from constructs_lib.storage.unused_key_handler import encrypted
from paddle_aws.operations.account.aws import client, list_all
from paddle_aws.operations.account.cluster_account import BROKEN, belongs_to_cluster
from paddle_aws.operations.account.group_members import list_members
from paddle_aws.operations.errors import Unreachable, translate_errors
from paddle_aws.stacks.cluster_spec import ClusterSpec


@dataclass(frozen=True)
class Leftover:
    """One thing that belongs to the cluster."""

    service: str
    id: str
    command: str
    """The command that removes it; empty if it goes away on its own, or if a stack owns it and
    `retain` keeps it.
    """
    expected: str = ""
    """Why it may exist; empty if it should not."""
    problem: str = ""
    """Its stack and that stack's state, if the stack stopped half-way."""


OWN = (
    "StackResourceSummaries[?ResourceStatus != 'DELETE_COMPLETE' && ResourceStatus != "
    "'DELETE_SKIPPED'].PhysicalResourceId"
)


def search(spec: ClusterSpec) -> tuple[list[Leftover], dict[str, list[str]]]:
    """Returns what was found, in order, and the names of the searches that failed, by reason."""
    asked = _Search(spec)
    leftovers = {(left.service, left.id): left for left in asked.stacks}
    unasked: dict[str, list[str]] = {}
    for row in asked.rows():
        try:
            with translate_errors():
                for left in asked.find_leftovers(**row):
                    leftovers.setdefault((left.service, left.id), left)
        except Unreachable as error:
            unasked.setdefault(str(error), []).append(row["what"])
    try:
        with translate_errors():
            leftovers |= {(left.service, left.id): left for left in asked.find_members()}
    except Unreachable as error:
        unasked.setdefault(str(error), []).append("members of groups")
    return sorted(
        leftovers.values(), key=lambda left: (bool(left.expected), left.service, left.id)
    ), unasked


class _Search:
    def __init__(self, spec: ClusterSpec) -> None:
        """Reads which stacks exist, and what they own. Raises botocore's errors."""
        self.spec = spec
        self._client = cache(partial(client, region=spec.region))
        text = Template(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
        names = {
            "name": spec.name,
            "cluster": spec.cluster_name,
            "bucket": spec.bucket.existing_name or "",
        }
        self._data = yaml.safe_load(text.substitute(names))
        self._states: dict[str, str] = {}
        """States of the stacks that exist, by name."""
        self._owners: dict[str, str] = {}
        """The owning stack, by a resource's AWS id, name or ARN."""
        cloudformation = self._client("cloudformation")
        for stack in list_all(cloudformation, "describe_stacks", "Stacks[]"):
            name, state = stack["StackName"], stack["StackStatus"]
            if belongs_to_cluster(stack, self.spec) and state != "DELETE_COMPLETE":
                self._states[name] = state
                ids = list_all(cloudformation, "list_stack_resources", OWN, StackName=name)
                self._owners |= dict.fromkeys((name, *filter(None, ids)), name)
        self.stacks = [self._describe("cloudformation", "stack", name) for name in self._states]

    def rows(self) -> list[dict[str, Any]]:
        """Returns the searches in account_search.yaml that this cluster needs."""
        cluster = self.spec.cluster
        holds = {None, "existing" if cluster.existing else cluster.kind}
        if cluster.ssh is not None and cluster.ssh.key_pair is None:
            holds.add("own key pair")
        if self.spec.file_system.lustre:
            holds.add("lustre")
        return [row for row in self._data["searches"] if row.get("only") in holds]

    def find_leftovers(
        self, *, service: str, call: str, find: str, kind: str | None = None, **more: Any
    ) -> Iterator[Leftover]:
        """Runs one search; without a `kind` it finds ARNs."""
        for arguments in more.get("with", [{}]):
            for resource in list_all(self._client(service), call, find, **arguments):
                id, owners = resource if isinstance(resource, list) else (resource, None)
                if kind is None:
                    yield from self._describe_tagged(id, owners or [])
                else:
                    yield self._describe(more.get("arn", service), kind, id, "", *owners or ())

    def find_members(self) -> Iterator[Leftover]:
        """Finds the users at whom a destroy of the stacks' groups stops."""
        for member in list_members(self._client, self._states):
            stack, group, user = member
            state = self._states[stack]
            yield Leftover(
                "iam",
                f"user {user} in group {group}",
                member.command,
                "" if state in BROKEN else "`cdk destroy` stops at a group with members",
                f"{stack} is {state}" if state in BROKEN else "",
            )

    def _describe(self, service: str, kind: str, id: str, arn: str = "", *more: str) -> Leftover:
        """`more`: what else may identify the owner, such as AWS's own tags, or the machine that the
        thing is deleted with.
        """
        owner = next((self._owners[key] for key in (id, arn, *more) if key in self._owners), None)
        type = f"{service} {kind}".strip()
        kept = self.spec.retain and type in self._data["kept"]
        what = f"{kind} {id}".strip()
        if type == "kms key":
            state = self._client("kms").describe_key(KeyId=id)["KeyMetadata"]["KeyState"]
            if state == "PendingDeletion":
                # It goes away on its own, so no command is given.
                return Leftover(service, what, "", "it waits for its deletion")
            if owner is None and not kept:
                try:
                    with translate_errors():
                        names = [name for name, by in encrypted(self._client) if id in str(by)]
                except Unreachable as error:
                    return Leftover(
                        service, what, "", "", f"it may still encrypt something: {error}"
                    )
                if names:
                    return Leftover(service, what, "", f"it encrypts {', '.join(sorted(names))}")
        if owner is not None:
            # What depends on it, such as a machine's disk, has the same owner.
            self._owners[id] = owner
            state = self._states[owner]
            if state in BROKEN:
                return Leftover(service, what, f"cdk destroy {owner}", "", f"{owner} is {state}")
            why = state if state.endswith("_IN_PROGRESS") else "deployed"
            return Leftover(
                service,
                what,
                "" if kept else f"cdk destroy {owner}",
                f"{why}, retain is true" if kept else why,
            )
        unknown = "find it in the console, it is of a kind that is not known here: {arn}"
        template = self._data["commands"].get(type, unknown)
        region = (
            f" --region {self.spec.region}"
            if template.startswith("aws ") and service not in ("iam", "route53")
            else ""
        )
        command = template.format(id=id, arn=arn or id, part=id.split("/"))
        return Leftover(service, what, command + region, "retain is true" if kept else "")

    def _describe_tagged(self, arn: str, values: list[str]) -> Iterator[Leftover]:
        _, _, service, _, _, resource = arn.split(":", 5)
        # `vpc/vpc-1`, `log-group:/aws/eks/x`; for a bucket only its name.
        match = re.fullmatch(r"([a-z-]+)[:/](.+)", resource)
        kind, id = (
            (match[1], match[2]) if match else ("topic" if service == "sns" else "", resource)
        )
        if (service, kind) == ("cloudformation", "stack"):
            id = id.split("/")[0]
        if (service, kind) == ("secretsmanager", "secret"):
            # AWS appends six letters of its own to the name.
            id = id[:-7]
        if (service, kind) == ("ssm", "parameter") and "/" in id:
            id = f"/{id}"
        if kind == "loadbalancer" and "/" not in id:
            kind = "classic loadbalancer"
        # The tagging service also lists terminated instances; the running ones were found before.
        if (service, kind) != ("ec2", "instance"):
            # In services other than EKS, a part that a stack has released still carries the stack's
            # tag.
            yield self._describe(service, kind, id, arn, *(values if service == "eks" else ()))

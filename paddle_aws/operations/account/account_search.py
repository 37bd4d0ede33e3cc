"""Finds everything in an account that belongs to one cluster, by its tags and by the names that AWS
and Kubernetes give.

Promises: asks AWS's tagging service first, then the single services for resources that it does not
know or that have no tag of ours. Lists each resource once. `cdk destroy` removes what an existing
stack owns, and no other command is given for that: without an answer about the stacks nothing is
listed. What `retain` keeps, and a key that awaits its deletion or still encrypts something, is
expected.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from string import Template
from typing import Any

import yaml

from constructs_lib.storage.unused_key_handler import encrypted
from paddle_aws.operations.account.aws import list_all
from paddle_aws.operations.account.cluster_account import BROKEN, ClusterAccount
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
    searches: list[tuple[str, Callable[[], Iterator[Leftover]]]] = [
        (row["what"], partial(asked.find_leftovers, **row)) for row in asked.rows()
    ]
    for what, find in [*searches, ("members of groups", asked.find_members)]:
        try:
            with translate_errors():
                for left in find():
                    leftovers.setdefault((left.service, left.id), left)
        except Unreachable as error:
            unasked.setdefault(str(error), []).append(what)
    return sorted(
        leftovers.values(), key=lambda left: (bool(left.expected), left.service, left.id)
    ), unasked


class _Search(ClusterAccount):
    def __init__(self, spec: ClusterSpec) -> None:
        """Reads which stacks exist, and what they own. Raises botocore's errors."""
        super().__init__(spec)
        text = Template(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
        names = {
            "name": spec.name,
            "cluster": spec.cluster_name,
            "bucket": spec.bucket.existing_name or "",
        }
        self._data = yaml.safe_load(text.substitute(names))
        self._states = {stack["StackName"]: stack["StackStatus"] for stack in self.deployed_stacks}
        """States of the stacks that exist, by name."""
        self._owners: dict[str, str] = {}
        """The owning stack, by a resource's AWS id, name or ARN."""
        for name in self._states:
            api = self.client("cloudformation")
            ids = list_all(api, "list_stack_resources", OWN, StackName=name)
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
            for resource in list_all(self.client(service), call, find, **arguments):
                id, owners = resource if isinstance(resource, list) else (resource, None)
                if kind is None:
                    yield from self._describe_tagged(id, owners or [])
                else:
                    yield self._describe(more.get("arn", service), kind, id, "", *owners or ())

    def find_members(self) -> Iterator[Leftover]:
        """Finds the users at whom a destroy of the stacks' groups stops."""
        for member in self.list_members():
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
            state = self.client("kms").describe_key(KeyId=id)["KeyMetadata"]["KeyState"]
            if state == "PendingDeletion":
                # It goes away on its own, so no command is given.
                return Leftover(service, what, "", "it waits for its deletion")
            if owner is None and not kept:
                try:
                    with translate_errors():
                        names = [name for name, by in encrypted(self.client) if id in str(by)]
                except Unreachable as error:
                    return Leftover(
                        service, what, "", "", f"it may still encrypt something: {error}"
                    )
                if names:
                    return Leftover(service, what, "", f"it encrypts {', '.join(sorted(names))}")
        if owner is not None:
            # What depends on it, such as a machine's disk, has the same owner.
            self._owners[id] = owner
            state, command = self._states[owner], f"cdk destroy {owner}"
            if state in BROKEN:
                return Leftover(service, what, command, "", f"{owner} is {state}")
            why = state if state.endswith("_IN_PROGRESS") else "deployed"
            if kept:
                return Leftover(service, what, "", f"{why}, retain is true")
            return Leftover(service, what, command, why)
        unknown = "find it in the console, it is of a kind that is not known here: {arn}"
        command = self._data["commands"].get(type, unknown)
        if command.startswith("aws ") and service not in ("iam", "route53"):
            command += f" --region {self.spec.region}"
        command = command.format(id=id, arn=arn or id, part=id.split("/"))
        return Leftover(service, what, command, "retain is true" if kept else "")

    def _describe_tagged(self, arn: str, values: list[str]) -> Iterator[Leftover]:
        _, _, service, _, _, id = arn.split(":", 5)
        kind = "topic" if service == "sns" else ""
        # `vpc/vpc-1`, `log-group:/aws/eks/x`; for a bucket only its name.
        if match := re.fullmatch(r"([a-z-]+)[:/](.+)", id):
            kind, id = match.groups()
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

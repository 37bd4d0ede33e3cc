"""Everything in an account that belongs to one cluster, found by its tags and by the names that AWS and Kubernetes give.

Promises: what AWS's tagging service knows is asked for once, what it does not (or what carries no tag of ours) service
by service; the same thing is listed once. What a living stack owns is removed by `cdk destroy`, and no other command is
given for it: without an answer about the stacks nothing is listed. What `retain` keeps, and a key that waits for its
deletion, is expected.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from string import Template
from typing import Any

import yaml

from operations.account.account_checks import BROKEN
from operations.account.aws import client, every
from operations.errors import of_aws
from stacks.cluster_spec import ClusterSpec


@dataclass(frozen=True)
class Left:
    """One thing."""

    service: str
    id: str
    command: str
    """What removes it; empty: it goes by itself."""
    expected: str = ""
    """Why it may be there; empty: it should not."""
    problem: str = ""
    """Its stack, where that ended half-way."""


OWN = "StackResourceSummaries[?ResourceStatus != 'DELETE_COMPLETE' && ResourceStatus != 'DELETE_SKIPPED'].PhysicalResourceId"
TAGS = "Tags[?starts_with(Key, 'aws:') || starts_with(Key, 'eks:')].Value"


def search(spec: ClusterSpec) -> tuple[list[Left], dict[str, list[str]]]:
    """What is there, in order; and why something could not be asked, with what that was."""
    asked = _Search(spec)
    asked.learn_owners()
    found: dict[tuple[str, str], Left] = {}
    unasked: dict[str, list[str]] = {}
    for what, look in asked.all():
        try:
            for left in look():
                found.setdefault((left.service, left.id), left)
        except Exception as error:
            sentence = of_aws(error)
            if sentence is None:
                raise
            unasked.setdefault(sentence, []).append(what)
    return sorted(found.values(), key=lambda left: (bool(left.expected), left.service, left.id)), unasked


class _Search:
    def __init__(self, spec: ClusterSpec) -> None:
        self.spec = spec
        self._client = cache(partial(client, region=spec.region))
        text = Template(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
        names = {"name": spec.name, "cluster": spec.cluster_name, "bucket": spec.bucket.existing_name or ""}
        self._data = yaml.safe_load(text.substitute(names))
        self._stacks: dict[str, str] = {}
        """Those that are there: their states."""
        self._owners: dict[str, str] = {}
        """The stack of what belongs to one, by AWS's id, name or ARN."""

    def learn_owners(self) -> None:
        """Which stacks there are, and what they own. Raises botocore's errors."""
        cloudformation = self._client("cloudformation")
        for name, state in every(cloudformation, "describe_stacks", "Stacks[].[StackName, StackStatus]"):
            if name in self.spec.stack_names and state != "DELETE_COMPLETE":
                self._stacks[name] = state
                ids = every(cloudformation, "list_stack_resources", OWN, StackName=name)
                self._owners |= dict.fromkeys((name, *filter(None, ids)), name)

    def all(self) -> list[tuple[str, Callable[[], Iterator[Left]]]]:
        """What is asked for, by its name in "not asked"."""
        kind = "existing" if self.spec.cluster.existing else self.spec.cluster.kind
        asked = [one for one in self._data["searches"] if one.get("only", kind) == kind]
        return [(one["what"], partial(self._look, **one) if "call" in one else self._own[one["what"]]) for one in asked]

    @property
    def _own(self) -> dict[str, Callable[[], Iterator[Left]]]:
        return {
            "stacks": lambda: (self._left("cloudformation", "stack", name) for name in self._stacks),
            "keys": self.keys,
            "tags": self.tagged,
            "key pairs": self.key_pairs,
            "load balancers": self.balancers,
            "log groups": self.logs,
        }

    def _look(self, *, service: str, kind: str, call: str, find: str, **more: Any) -> Iterator[Left]:
        """Looks for the things of one kind, as account_search.yaml says it."""
        arguments = more.get("with", {})
        for one in [{**arguments, "Filters": filters} for filters in more.get("by", ())] or [arguments]:
            for found in every(self._client(service), call, find, **one):
                id, owners = found if isinstance(found, list) else (found, None)
                yield self._left(more.get("arn", service), kind, id, "", *owners or ())

    def _left(self, service: str, kind: str, id: str, arn: str = "", *more: str) -> Left:
        """`more`: what else may tell the owner, as AWS's own tags, or the machine that it ends with."""
        owner = next((self._owners[one] for one in (id, arn, *more) if one in self._owners), None)
        type = f"{service} {kind}".strip()
        kept = self.spec.retain and type in self._data["kept"]
        what = f"{kind} {id}".strip()
        if owner is not None:
            # What hangs on it, a machine's disk for one, has the same owner.
            self._owners[id] = owner
            state = self._stacks[owner]
            if state in BROKEN:
                return Left(service, what, f"cdk destroy {owner}", "", f"{owner} is {state}")
            why = state if state.endswith("_IN_PROGRESS") else "deployed"
            return Left(service, what, "" if kept else f"cdk destroy {owner}", f"{why}, retain is true" if kept else why)
        unknown = "find it in the console, it is of a kind that is not known here: {arn}"
        template = self._data["commands"].get(type, unknown)
        region = f" --region {self.spec.region}" if template.startswith("aws ") and service not in ("iam", "route53") else ""
        command = template.format(id=id, arn=arn or id, part=id.split("/"))
        return Left(service, what, command + region, "retain is true" if kept else "")

    def keys(self) -> Iterator[Left]:
        for alias in every(self._client("kms"), "list_aliases", "Aliases[]"):
            if alias["AliasName"] == f"alias/{self.spec.name}":
                yield self._key(alias["TargetKeyId"])

    def _key(self, id: str) -> Left:
        state = self._client("kms").describe_key(KeyId=id)["KeyMetadata"]["KeyState"]
        left = self._left("kms", "key", id)
        # Nobody has to remove it: it goes by itself.
        return Left(left.service, left.id, "", "it waits for its deletion") if state == "PendingDeletion" else left

    def tagged(self) -> Iterator[Left]:
        filters = [{"Key": "project", "Values": ["paddle-aws"]}, {"Key": "cluster", "Values": [self.spec.name]}]
        path = f"ResourceTagMappingList[].[ResourceARN, {TAGS}]"
        for arn, values in every(self._client("resourcegroupstaggingapi"), "get_resources", path, TagFilters=filters):
            _, _, service, _, _, resource = arn.split(":", 5)
            # Of other services a part that a stack let go carries its tag as before.
            more = values if service == "eks" else ()
            # `vpc/vpc-1`, `log-group:/aws/eks/x`, and of buckets the name alone.
            match = re.fullmatch(r"([a-z-]+)[:/](.+)", resource)
            kind, id = (match[1], match[2]) if match else ("topic" if service == "sns" else "", resource)
            if (service, kind) == ("cloudformation", "stack"):
                id = id.split("/")[0]
            if (service, kind) == ("secretsmanager", "secret"):
                # AWS puts six letters of its own behind the name.
                id = id[:-7]
            if (service, kind) == ("ssm", "parameter") and "/" in id:
                id = f"/{id}"
            if (service, kind) == ("ec2", "instance"):
                instances = next(one for one in self._data["searches"] if one["what"] == "instances")
                yield from self._look(**{**instances, "by": [[{"Name": "instance-id", "Values": [id]}]]})
            else:
                yield self._key(id) if (service, kind) == ("kms", "key") else self._left(service, kind, id, arn, *more)

    def key_pairs(self) -> Iterator[Left]:
        """A pair that a self-managed cluster made carries its name and no tag; so does the parameter with its private key."""
        made = self.spec.cluster.ssh is not None and self.spec.cluster.ssh.key_pair is None
        for pair in self._client("ec2").describe_key_pairs()["KeyPairs"] if made else ():
            if pair["KeyName"] == self.spec.name:
                yield self._left("ec2", "key-pair", pair["KeyPairId"], "", pair["KeyName"])
                yield self._left("ssm", "parameter", f"/ec2/keypair/{pair['KeyPairId']}", "", pair["KeyName"])

    def balancers(self) -> Iterator[Left]:
        arns = list(every(self._client("elbv2"), "describe_load_balancers", "LoadBalancers[].LoadBalancerArn"))
        wanted = {f"kubernetes.io/cluster/{self.spec.cluster_name}", "elbv2.k8s.aws/cluster"}
        for start in range(0, len(arns), 20):
            for entry in self._client("elbv2").describe_tags(ResourceArns=arns[start : start + 20])["TagDescriptions"]:
                tags = {tag["Key"]: tag["Value"] for tag in entry["Tags"]}
                if wanted & tags.keys() and tags.get("elbv2.k8s.aws/cluster", self.spec.cluster_name) == self.spec.cluster_name:
                    arn = entry["ResourceArn"]
                    yield self._left("elasticloadbalancing", "loadbalancer", arn.split("loadbalancer/")[-1], arn)

    def logs(self) -> Iterator[Left]:
        name = self.spec.cluster_name
        prefixes = [f"/aws/eks/{name}/", f"/aws/containerinsights/{name}/"]
        prefixes += [f"/aws/lambda/{stack}-" for stack in self.spec.stack_names]
        for prefix in prefixes:
            for name in every(self._client("logs"), "describe_log_groups", "logGroups[].logGroupName", logGroupNamePrefix=prefix):
                yield self._left("logs", "log-group", name)

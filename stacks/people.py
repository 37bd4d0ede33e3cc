"""Who works with a cluster: the operator; the trainer, who submits jobs and reads results; the reader, who only looks.

Each statement of Session Manager asks for a document: a session without one opens a shell.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from constructs_lib.acknowledged import acknowledge, wildcards
from constructs_lib.people.team import Team
from constructs_lib.statements import statements
from stacks.cluster_spec import ClusterSpec

RIGHTS = Path(__file__).with_suffix(".json")
WHY: dict[str, str] = {
    sid: one["Why"] for part in json.loads(RIGHTS.read_text(encoding="utf-8")).values() for sid, one in part.items()
}
"""What each statement is for, by Sid."""


class People(Construct):
    """The three teams of a cluster, and what an operator does before there is one."""

    def __init__(self, scope: Construct, id: str, *, spec: ClusterSpec, key: kms.IKey) -> None:
        super().__init__(scope, id)
        self.operator, self.trainer, self.reader = (
            Team(self, name, task=f"{task} {spec.name}", may_take_role=self._may_take_role(spec, name))
            for name, task in (("Operator", "Operates"), ("Trainer", "Trains on"), ("Reader", "Looks at"))
        )
        self.operator_policy = _allow(self, "OperatorPolicy", self.operator, spec, "operator", key=key.key_arn)

    def _may_take_role(self, spec: ClusterSpec, team: str) -> iam.IManagedPolicy | None:
        """An administrator's, where the deployer is restricted: who writes a group's policy gives its users any right."""
        if not spec.deployment_policies:
            return None
        return iam.ManagedPolicy.from_managed_policy_name(self, f"{team}s", f"{spec.deployment_policies}-{team.lower()}")


def grant_work(scope: Construct, spec: ClusterSpec, people: People, bucket: BucketArns, *, ssh_key: str | None = None) -> None:
    """What each team does with a cluster: in the stack that knows bucket and cluster, which know nothing of people.

    Args:
        ssh_key: name of the parameter with the private key that the cluster made; None: it made none.
    """
    own = spec.cluster.self_managed
    for name, team in (("operator", people.operator), ("trainer", people.trainer), ("reader", people.reader)):
        parts = ["data", "self-managed" if own else "eks"]
        parts += ["trainer"] if name != "reader" else []
        if name == "operator":
            # Machines of one's own are repaired and restored from a shell; EKS's control plane has none.
            parts += ["shell"] if own else []
            parts += ["ssh key"] if ssh_key else []
        parts += ["tunnel"] if spec.cluster.has_tunnel else []
        parts += ["sessions"] if {"tunnel", "shell"} & set(parts) else []
        known = {"bucket": bucket.bucket, "key": bucket.key_arn, "team": name, "ssh_key": ssh_key}
        _allow(scope, f"{name.title()}Policy", team, spec, *parts, **known)


def _allow(scope: Construct, id: str, who: Team, spec: ClusterSpec, *parts: str, **known: Any) -> iam.ManagedPolicy:
    stack = Stack.of(scope)
    known |= {"partition": stack.partition, "region": stack.region, "account": stack.account}
    known |= {"name": spec.name, "cluster": spec.cluster_name, "qualifier": spec.qualifier}
    known["stacks"] = [
        stack.format_arn(service="cloudformation", resource="stack", resource_name=f"{one}/*") for one in spec.stack_names
    ]
    found = [statement for part in parts for statement in statements(RIGHTS, part, **known)]
    policy = who.allow(scope, id, *found, description=who.task)
    for statement in found:
        stars = [resource for resource in statement.resources if "*" in resource]
        if stars and statement.effect == iam.Effect.ALLOW:
            acknowledge(policy, WHY[str(statement.sid)], *wildcards(scope, *stars))
    return policy


class BucketArns:
    """ARNs of a bucket and of its objects, as the stacks that did not make it see them.

    By an export of the stack that made it: the acknowledgments of what is granted spell it.
    """

    def __init__(self, scope: Construct, bucket: s3.IBucket) -> None:
        self.bucket = bucket.bucket_arn
        assert bucket.encryption_key, "the storage stack names one for every bucket"
        self.key_arn = bucket.encryption_key.key_arn
        if isinstance(bucket, s3.Bucket):
            self.bucket = Stack.of(bucket).export_value(self.bucket)
            # An export is no reference: without this the bucket's stack would be destroyed first, and refuse.
            Stack.of(scope).add_stack_dependency(Stack.of(bucket))
        self.objects, self.sources = f"{self.bucket}/*", f"{self.bucket}/sources/*"

    def may_read(self) -> list[iam.PolicyStatement]:
        """Leave to read all objects, and to use the key that seals them."""
        return statements(RIGHTS, "data", bucket=self.bucket, key=self.key_arn)

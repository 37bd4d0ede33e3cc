"""The stack that lives longest: people's permissions, the key, and the protection of the stacks.

The teams are the operator; the trainer, who submits jobs and reads results; and the reader, who
only looks. Each Session Manager statement requires a document: a session without one opens a shell.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from constructs_lib.acknowledged import acknowledge, wildcard_findings
from constructs_lib.people.team import Team
from constructs_lib.statements import statements
from constructs_lib.storage.key import EncryptionKey
from constructs_lib.storage.stack_protection import StackProtection
from paddle_aws.stacks.cluster_spec import ClusterSpec
from paddle_aws.stacks.part import AccessPart, Platform, PlatformStack

RIGHTS = Path(__file__).with_name("people.json")
WHY: dict[str, str] = {
    sid: statement["Why"]
    for part in json.loads(RIGHTS.read_text(encoding="utf-8")).values()
    for sid, statement in part.items()
}
"""What each statement is for, by Sid."""


TASKS = {"operator": "Operates", "trainer": "Trains on", "reader": "Looks at"}
"""The teams that get rights in a cluster."""


class AccessStack(PlatformStack):
    """The key, new or existing, and the people.

    Attributes:
        node_volume_key: None for an existing key: its policy, which would have to let Auto Scaling
        use it, is not ours. teams: operator, trainer and reader.
    """

    def __init__(self, platform: Platform) -> None:
        super().__init__(platform, "access", "the key and the people")
        spec = self.spec
        self.key: kms.IKey
        self.node_volume_key: kms.IKey | None = None
        if spec.key.existing_arn:
            self.key = kms.Key.from_key_arn(self, "Key", spec.key.existing_arn)
        else:
            what = f"{spec.name}: data, secrets and logs"
            self.key = EncryptionKey(
                self, "Key", alias=spec.name, description=what, removal_policy=self.removal_policy
            )
            self.node_volume_key = self.key
        people = Construct(self, "People")
        self.teams: dict[str, Team] = {}
        for name, task in TASKS.items():
            take = None
            if policies := spec.deployment_policies:
                # With a restricted deployer, an administrator makes it: writing a group's policy
                # could give its users any right.
                take = iam.ManagedPolicy.from_managed_policy_name(
                    people, f"{name.title()}s", f"{policies}-{name}"
                )
            team = Team(people, name.title(), task=f"{task} {spec.name}", may_take_role=take)
            self.teams[name] = team
            self.output(**team_outputs(name, team))
            # `deployer: restricted` no longer needs it, but CloudFormation removes no export that a
            # deployed stack imports.
            self.export_value(team.group.group_name)
        # An operator's rights before there is a cluster.
        named = spec.protect.lifted_by
        policy = _allow(
            people,
            "OperatorPolicy",
            self.teams["operator"],
            spec,
            "operator",
            *(["protect by name"] if named else []),
            key=self.key.key_arn,
            lifters=named,
        )
        if spec.protect.after_deploy:
            StackProtection(
                self,
                "Protection",
                stacks=spec.stack_names,
                emails=spec.budget.emails if spec.budget else (),
                encryption_key=self.key,
            )
        self.output(KeyArn=self.key.key_arn, OperatorPolicyArn=policy.managed_policy_arn)


def team_outputs(name: str, team: Team) -> dict[str, str]:
    """Returns the outputs about one team."""
    return {
        f"{name.title()}Group": team.group.group_name,
        f"{name.title()}RoleArn": team.role.role_arn,
    }


def access_outputs(access: AccessPart) -> dict[str, str]:
    """Returns the outputs that commands and people read, for a part that is not ours."""
    outputs = {"KeyArn": access.key.key_arn}
    for name in TASKS:
        outputs |= team_outputs(name, access.teams[name])
    return outputs


def grant_work(scope: PlatformStack, *, ssh_key: str | None = None) -> None:
    """Grants each team its rights in a cluster, in the stack that knows the bucket and the cluster;
    these do not know the teams.

    Args:
        ssh_key: name of the parameter with the private key that the cluster made; None: it made
        none.
    """
    spec, storage = scope.spec, scope.platform.storage
    self_managed = spec.cluster.self_managed
    for name in TASKS:
        team = scope.platform.access.teams[name]
        parts = ["data", "self-managed" if self_managed else "eks"]
        parts += ["trainer"] if name != "reader" else []
        if name == "operator":
            # Self-managed machines are repaired and restored from a shell; EKS's control plane has
            # none.
            parts += ["shell"] if self_managed else []
            parts += ["ssh key"] if ssh_key else []
        parts += ["tunnel"] if spec.cluster.has_tunnel else []
        parts += ["sessions"] if {"tunnel", "shell"} & set(parts) else []
        names = {
            "bucket": storage.bucket_arn,
            "key": storage.bucket_key.key_arn,
            "team": name,
            "ssh_key": ssh_key,
        }
        _allow(scope, f"{name.title()}Policy", team, spec, *parts, **names)


def _allow(
    scope: Construct, id: str, who: Team, spec: ClusterSpec, *parts: str, **names: Any
) -> iam.ManagedPolicy:
    stack = Stack.of(scope)
    names |= {"partition": stack.partition, "region": stack.region, "account": stack.account}
    names |= {"name": spec.name, "cluster": spec.cluster_name, "qualifier": spec.qualifier}
    names["stacks"] = [
        stack.format_arn(
            service="cloudformation", resource="stack", resource_name=f"{stack_name}/*"
        )
        for stack_name in spec.stack_names
    ]
    names["access_stack"] = names["stacks"][spec.stack_names.index(f"{spec.name}-access")]
    rights = [statement for part in parts for statement in statements(RIGHTS, part, **names)]
    policy = who.allow(scope, id, *rights, description=who.task)
    for statement in rights:
        stars = [resource for resource in statement.resources if "*" in resource]
        if stars and statement.effect == iam.Effect.ALLOW:
            acknowledge(policy, WHY[str(statement.sid)], *wildcard_findings(scope, *stars))
    return policy

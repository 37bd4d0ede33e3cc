"""Who works with a cluster: the operator, the trainer who only submits jobs and reads results, and who only looks.

Promises: each statement (people.json, with what it is for) is on what this cluster is made of; docs/people.md tells which command
each team may run, and a test simulates it. All of Session Manager's ask for a document: else it opens a shell to whoever names
none and may start any session.
"""

from __future__ import annotations

import json
from pathlib import Path

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from constructs_lib.acknowledged import acknowledge, wildcards
from constructs_lib.endpoint_tunnel import allow_tunnel
from constructs_lib.statements import statements
from constructs_lib.team import Team
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
        self.operator = Team(self, "Operator", task=f"Operates {spec.name}")
        self.trainer = Team(self, "Trainer", task=f"Trains on {spec.name}")
        self.reader = Team(self, "Reader", task=f"Looks at {spec.name}")
        arn = Stack.of(self).format_arn
        stacks = arn(service="cloudformation", resource="stack", resource_name=f"{spec.name}-*")
        cdk = f"cdk-*-{Stack.of(self).account}-{Stack.of(self).region}"
        roles = arn(service="iam", region="", resource="role", resource_name=cdk)
        colon = ArnFormat.COLON_RESOURCE_NAME
        ours = [
            arn(service="eks", resource="cluster", resource_name=spec.cluster_name),
            arn(service="eks", resource="addon", resource_name=f"{spec.cluster_name}/*"),
            arn(service="eks", resource="nodegroup", resource_name=f"{spec.cluster_name}/*"),
            arn(service="iam", region="", resource="role", resource_name=f"{spec.name}-access-*"),
            arn(service="secretsmanager", resource="secret", resource_name=f"{spec.name}/*", arn_format=colon),
            arn(service="ssm", resource="document", resource_name=spec.tunnel_document),
            arn(service="ssm", resource="parameter", resource_name="cdk-bootstrap/*"),
            arn(service="ssm", account="", resource="parameter", resource_name="aws/service/global-infrastructure/*"),
        ]
        found = statements(RIGHTS, "operator", key=key.key_arn, stacks=stacks, roles=roles, ours=ours)
        self.operator_policy = _allow(self, "OperatorPolicy", self.operator, found, f"Operates {spec.name}")


def grant_work(scope: Construct, spec: ClusterSpec, people: People, bucket: BucketArns, *, ssh_key: str | None = None) -> None:
    """What each team does with a cluster: in the stack that knows bucket and cluster, which know nothing of people.

    Args:
        ssh_key: name of the parameter with the private key that the cluster made; None: it made none.
    """
    arn, colon, own = Stack.of(scope).format_arn, ArnFormat.COLON_RESOURCE_NAME, spec.cluster.self_managed
    tunnel = spec.cluster.has_tunnel
    whose = ("${aws:userid}-*", "${aws:username}-*")
    sessions = [arn(service="ssm", resource="session", resource_name=name) for name in whose]
    for name, team in (("operator", people.operator), ("trainer", people.trainer), ("reader", people.reader)):
        found = bucket.may_read()
        if own:
            # Six characters that Secrets Manager makes up end each ARN.
            secret = f"{spec.name}/kubeconfig/{name}-??????"
            secret = arn(service="secretsmanager", resource="secret", resource_name=secret, arn_format=colon)
            found += statements(RIGHTS, "self-managed", secret=secret, snapshots=f"{bucket.bucket}/cluster/*")
        else:
            cluster = arn(service="eks", resource="cluster", resource_name=spec.cluster_name)
            groups = (f"/aws/containerinsights/{spec.cluster_name}/*", f"/aws/eks/{spec.cluster_name}/*")
            logs = [arn(service="logs", resource="log-group", resource_name=group, arn_format=colon) for group in groups]
            found += statements(RIGHTS, "eks", cluster=cluster, logs=logs)
        if name != "reader":
            images = arn(service="ecr", resource="repository", resource_name=f"{spec.name}/trainer")
            found += statements(RIGHTS, "trainer", sources=bucket.sources, key=bucket.key_arn, images=images)
        if name == "operator" and own:
            shell = arn(service="ssm", resource="document", resource_name="SSM-SessionManagerRunShell")
            machines = arn(service="ec2", resource="instance", resource_name="*")
            found += statements(RIGHTS, "shell", shell=shell, machines=machines, name=spec.name)
        if name == "operator" and ssh_key:
            key = arn(service="ssm", resource=f"parameter{ssh_key}", arn_format=ArnFormat.NO_RESOURCE_NAME)
            found += statements(RIGHTS, "ssh key", parameter=key)
        if tunnel or (name == "operator" and own):
            found += statements(RIGHTS, "sessions", sessions=sessions)
        policy = _allow(scope, f"{name.title()}Policy", team, found, f"Works with {spec.name}")
        if tunnel:
            allow_tunnel(policy, spec.tunnel_document)


def _allow(scope: Construct, id: str, team: Team, found: list[iam.PolicyStatement], description: str) -> iam.ManagedPolicy:
    policy = team.allow(scope, id, *found, description=description)
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
        return statements(RIGHTS, "data", bucket=self.bucket, objects=self.objects, key=self.key_arn)

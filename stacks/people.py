"""Who works with a cluster: the operator, the trainer who only submits jobs and reads results, and who only looks.

Promises: each statement (people.json) is on what this cluster is made of; docs/people.md tells why each is needed (a test
compares). All of Session Manager's ask for a document: else it opens a shell to whoever names none and may start any session.
"""

from __future__ import annotations

from pathlib import Path

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from constructs_lib.acknowledged import acknowledge, wildcards
from constructs_lib.statements import statements
from constructs_lib.team import Team
from stacks.cluster_spec import ClusterSpec

RIGHTS = Path(__file__).with_suffix(".json")


class People(Construct):
    """The three teams of a cluster."""

    def __init__(self, scope: Construct, id: str, *, spec: ClusterSpec, key: kms.IKey) -> None:
        super().__init__(scope, id)
        self.operator, self.trainer, self.reader = (
            Team(self, name, task=f"{task} {spec.name}", may_take_role=self._may_take_role(spec, name))
            for name, task in (("Operator", "Operates"), ("Trainer", "Trains on"), ("Reader", "Looks at"))
        )
        arn = Stack.of(self).format_arn
        stacks = [arn(service="cloudformation", resource="stack", resource_name=f"{name}/*") for name in spec.stack_names]
        document = arn(service="ssm", account="", resource="document", resource_name="AWS-StartPortForwardingSessionToRemoteHost")
        shell = arn(service="ssm", resource="document", resource_name="SSM-SessionManagerRunShell")
        instances = arn(service="ec2", resource="instance", resource_name="*")
        cdk = f"cdk-{spec.qualifier}-*-{Stack.of(self).account}-{Stack.of(self).region}"
        roles = arn(service="iam", region="", resource="role", resource_name=cdk)
        whose = ("${aws:userid}-*", "${aws:username}-*")
        sessions = [arn(service="ssm", resource="session", resource_name=name) for name in whose]
        self.operator_policy = self.operator.allow(
            self,
            "OperatorPolicy",
            *statements(RIGHTS, "operator", key=key.key_arn, stacks=stacks, roles=roles),
            *kubeconfig(self, spec, "operator"),
            *statements(RIGHTS, "tunnel", document=document),
            # Machines of one's own are repaired and restored from a shell; EKS's control plane has none.
            *(statements(RIGHTS, "shell", shell=shell) if spec.cluster.self_managed else ()),
            *statements(RIGHTS, "nodes", instances=instances, name=spec.name, sessions=sessions),
            description=f"Operates {spec.name}",
        )
        for reason, resources in {
            "sessions that one has begun oneself": sessions,
            "the stacks of this one cluster, by its name": stacks,
            "CDK's bootstrap roles; behind them CloudFormation is an administrator unless bootstrapped with our policy": [roles],
            "machines that carry this cluster's tag, by condition": [instances],
            "EC2's Describe and AWS's public lists take no resource": ["*"],
        }.items():
            acknowledge(self.operator_policy, reason, *wildcards(self, *resources))

    def _may_take_role(self, spec: ClusterSpec, team: str) -> iam.IManagedPolicy | None:
        """An administrator's, where the deployer is restricted: who writes a group's policy gives its users any right."""
        if not spec.deployment_policies:
            return None
        return iam.ManagedPolicy.from_managed_policy_name(self, f"{team}s", f"{spec.deployment_policies}-{team.lower()}")


def kubeconfig(scope: Construct, spec: ClusterSpec, team: str) -> list[iam.PolicyStatement]:
    """What it takes to get into the cluster: EKS asks for its address, a self-managed one has a secret for each team."""
    arn, colon = Stack.of(scope).format_arn, ArnFormat.COLON_RESOURCE_NAME
    if spec.cluster.self_managed:
        # Six characters that Secrets Manager makes up end each ARN.
        name = f"{spec.name}/kubeconfig/{team}-??????"
        secret = arn(service="secretsmanager", resource="secret", resource_name=name, arn_format=colon)
        return statements(RIGHTS, "kubeconfig of self-managed", secret=secret)
    return statements(
        RIGHTS, "kubeconfig of eks", cluster=arn(service="eks", resource="cluster", resource_name=spec.cluster_name)
    )


def grant_work(scope: Construct, spec: ClusterSpec, people: People, bucket: BucketArns) -> None:
    """The trainer's and the reader's rights: in the stack that knows bucket and cluster, which know nothing of people."""
    stack, colon = Stack.of(scope), ArnFormat.COLON_RESOURCE_NAME
    logs = [
        stack.format_arn(service="logs", resource="log-group", resource_name=f"{group}*", arn_format=colon)
        for group in (f"/aws/containerinsights/{spec.cluster_name}/", f"/aws/eks/{spec.cluster_name}/")
    ]

    def look(team: str) -> list[iam.PolicyStatement]:
        if spec.cluster.self_managed:
            # No logs of it go to CloudWatch; snapshots of etcd hold every secret of the cluster, and are in the same bucket.
            reading = statements(RIGHTS, "logs of self-managed", snapshots=f"{bucket.bucket}/cluster/*")
        else:
            reading = statements(RIGHTS, "logs of eks", logs=logs)
        return [*kubeconfig(scope, spec, team), *reading, *bucket.may_read()]

    reader = people.reader.allow(scope, "ReaderPolicy", *look("reader"), description=f"Looks at {spec.name}")
    trains = statements(RIGHTS, "trainer", sources=bucket.sources, key=bucket.key_arn)
    trainer = people.trainer.allow(scope, "TrainerPolicy", *look("trainer"), *trains, description=f"Trains on {spec.name}")
    for policy in (reader, trainer):
        acknowledge(policy, "all objects of this one bucket", *wildcards(scope, bucket.objects))
        if not spec.cluster.self_managed:
            acknowledge(policy, "all groups of logs of this one cluster", *wildcards(scope, *logs))
            acknowledge(policy, "answers of log queries are not resources of their own", *wildcards(scope, "*"))
    acknowledge(trainer, "all that is uploaded below sources/", *wildcards(scope, bucket.sources))


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

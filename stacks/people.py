"""Who works with a cluster: the operator, the trainer who only submits jobs and reads results, and who only looks.

Promises: each statement is on what this cluster is made of; docs/people.md tells why each is needed (a test compares).
"""

from __future__ import annotations

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from constructs_lib.acknowledged import acknowledge, wildcards
from constructs_lib.team import Team
from stacks.cluster_spec import ClusterSpec

FORWARD = "AWS-StartPortForwardingSessionToRemoteHost"

# Without it Session Manager opens a shell to whoever names no document and may start any session at all.
DOCUMENT_IS_ASKED = {"BoolIfExists": {"ssm:SessionDocumentAccessCheck": "true"}}


class People(Construct):
    """The three teams of a cluster.

    Attributes:
        operator: deploys and destroys the stacks, administers the cluster.
        trainer: uploads data, submits jobs, reads logs and results.
        reader: sees, changes nothing.
        operator_policy: what the operator may do.
    """

    def __init__(self, scope: Construct, id: str, *, spec: ClusterSpec, key: kms.IKey) -> None:
        super().__init__(scope, id)
        self._spec = spec
        self.operator = Team(self, "Operator", task=f"Operates {spec.name}")
        self.trainer = Team(self, "Trainer", task=f"Trains on {spec.name}")
        self.reader = Team(self, "Reader", task=f"Looks at {spec.name}")
        self.operator_policy = self.operator.allow(
            self, "OperatorPolicy", *self._operator_statements(key), description=f"Operates {spec.name}"
        )

        for reason, resources in self._stars.items():
            acknowledge(self.operator_policy, reason, *wildcards(self, *resources))

    def _operator_statements(self, key: kms.IKey) -> list[iam.PolicyStatement]:
        stack = Stack.of(self)
        stacks = stack.format_arn(service="cloudformation", resource="stack", resource_name=f"{self._spec.name}-*")
        session = stack.format_arn(service="ssm", account="", resource="document", resource_name=FORWARD)
        instances = stack.format_arn(service="ec2", resource="instance", resource_name="*")
        # Machines of one's own are repaired and restored from a shell; EKS's control plane has none.
        own = stack.format_arn(service="ssm", resource="document", resource_name="SSM-SessionManagerRunShell")
        shell = [iam.PolicyStatement(sid="Shell", actions=["ssm:StartSession"], resources=[own], conditions=DOCUMENT_IS_ASKED)]
        shell = shell if self._spec.cluster.self_managed else []
        roles = stack.format_arn(service="iam", region="", resource="role", resource_name=f"cdk-*-{stack.account}-{stack.region}")
        sessions = [
            stack.format_arn(service="ssm", resource="session", resource_name=f"${{aws:{name}}}-*")
            for name in ("userid", "username")
        ]
        self._stars = {
            "sessions that one has begun oneself": sessions,
            "the stacks of this one cluster, by its name": [stacks],
            "the roles that `cdk bootstrap` made": [roles],
            "machines that carry this cluster's tag, by condition": [instances],
            "EC2's Describe and AWS's public lists take no resource": ["*"],
        }
        return [
            # The two statements of the 2016 documents, on this cluster alone.
            iam.PolicyStatement(sid="Key", actions=["kms:Encrypt", "kms:Decrypt"], resources=[key.key_arn]),
            iam.PolicyStatement(
                sid="Stacks",
                actions=[
                    "cloudformation:CreateStack",
                    "cloudformation:UpdateStack",
                    "cloudformation:DeleteStack",
                    "cloudformation:DescribeStacks",
                    "cloudformation:DescribeStackResource",
                    "cloudformation:GetTemplate",
                    "cloudformation:DescribeStackEvents",
                ],
                resources=[stacks],
            ),
            iam.PolicyStatement(
                sid="DiffAndProtect",
                actions=[
                    "cloudformation:DescribeChangeSet",
                    "cloudformation:DeleteChangeSet",
                    "cloudformation:GetStackPolicy",
                    "cloudformation:SetStackPolicy",
                ],
                resources=[stacks],
            ),
            iam.PolicyStatement(sid="CdkRoles", actions=["sts:AssumeRole"], resources=[roles]),
            *kubeconfig(self, self._spec, "operator"),
            iam.PolicyStatement(sid="Tunnel", actions=["ssm:StartSession"], resources=[session], conditions=DOCUMENT_IS_ASKED),
            *shell,
            iam.PolicyStatement(
                sid="TunnelThroughNodes",
                actions=["ssm:StartSession"],
                resources=[instances],
                conditions={"StringEquals": {"ssm:resourceTag/cluster": self._spec.name}, **DOCUMENT_IS_ASKED},
            ),
            iam.PolicyStatement(sid="EndTunnel", actions=["ssm:TerminateSession"], resources=sessions),
            iam.PolicyStatement(sid="FindNodes", actions=["ec2:DescribeInstances"], resources=["*"]),
            iam.PolicyStatement(
                sid="Locks", actions=["eks:DescribeAddonVersions", "ec2:DescribeSpotPriceHistory"], resources=["*"]
            ),
        ]


def kubeconfig(scope: Construct, spec: ClusterSpec, team: str) -> list[iam.PolicyStatement]:
    """What it takes to get into the cluster: EKS asks for its address, a self-managed one has a secret for each team."""
    if spec.cluster.self_managed:
        # Six characters that Secrets Manager makes up end each ARN.
        arn = Stack.of(scope).format_arn(
            service="secretsmanager",
            resource="secret",
            resource_name=f"{spec.name}/kubeconfig/{team}-??????",
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )
        return [iam.PolicyStatement(sid="Kubeconfig", actions=["secretsmanager:GetSecretValue"], resources=[arn])]
    arn = Stack.of(scope).format_arn(service="eks", resource="cluster", resource_name=spec.cluster_name)
    return [iam.PolicyStatement(sid="ClusterAddress", actions=["eks:DescribeCluster"], resources=[arn])]


def grant_work(scope: Construct, spec: ClusterSpec, people: People, bucket: BucketArns) -> None:
    """The trainer's and the reader's rights: in the stack that knows bucket and cluster, which know nothing of people."""
    stack, colon = Stack.of(scope), ArnFormat.COLON_RESOURCE_NAME
    logs = [
        stack.format_arn(service="logs", resource="log-group", resource_name=f"{group}*", arn_format=colon)
        for group in (f"/aws/containerinsights/{spec.cluster_name}/", f"/aws/eks/{spec.cluster_name}/")
    ]
    reading = [
        iam.PolicyStatement(
            sid="Logs",
            actions=["logs:DescribeLogStreams", "logs:FilterLogEvents", "logs:GetLogEvents", "logs:StartQuery"],
            resources=logs,
        ),
        # Answers of queries that somebody may start are not resources of their own.
        iam.PolicyStatement(sid="LogAnswers", actions=["logs:GetQueryResults", "logs:StopQuery"], resources=["*"]),
    ]
    if spec.cluster.self_managed:
        # No logs of it go to CloudWatch; snapshots of etcd hold every secret of the cluster, and are in the same bucket.
        deny, snapshots = iam.Effect.DENY, f"{bucket.bucket}/cluster/*"
        reading = [iam.PolicyStatement(sid="NoSnapshots", effect=deny, actions=["s3:GetObject*"], resources=[snapshots])]

    def look(team: str) -> list[iam.PolicyStatement]:
        return [*kubeconfig(scope, spec, team), *reading, *bucket.may_read()]

    reader = people.reader.allow(scope, "ReaderPolicy", *look("reader"), description=f"Looks at {spec.name}")
    trainer = people.trainer.allow(
        scope,
        "TrainerPolicy",
        *look("trainer"),
        iam.PolicyStatement(
            sid="UploadData",
            actions=["s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"],
            resources=[bucket.sources],
        ),
        iam.PolicyStatement(sid="SealData", actions=["kms:GenerateDataKey"], resources=[bucket.key_arn]),
        description=f"Trains on {spec.name}",
    )
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
        return [
            iam.PolicyStatement(sid="ListData", actions=["s3:ListBucket"], resources=[self.bucket]),
            iam.PolicyStatement(sid="ReadData", actions=["s3:GetObject"], resources=[self.objects]),
            iam.PolicyStatement(sid="OpenData", actions=["kms:Decrypt"], resources=[self.key_arn]),
        ]

"""Empties buckets when their stack is deleted: CloudFormation cannot delete a bucket that holds an object.

Promises: the one Lambda function of the whole library, one for each stack, in use only where a bucket is to go with all
it holds; it may touch those buckets alone.
"""

from __future__ import annotations

from pathlib import Path

from aws_cdk import CustomResource, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from constructs import Construct

from constructs_lib.acknowledged import acknowledge, wildcards
from constructs_lib.log_group import EndingLogGroup

HANDLER = Path(__file__).with_name("bucket_emptier_handler.py")


class BucketEmptier(Construct):
    """The provider of one stack: get it by `of`, then `empty_on_delete(bucket)`."""

    def __init__(self, scope: Construct, id: str, *, encryption_key: kms.IKey | None = None) -> None:
        super().__init__(scope, id)
        log_group = EndingLogGroup(self, "Logs", days=30, encryption_key=encryption_key)
        role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        # A managed policy: inline ones cannot be reviewed or reused on their own.
        task = "Empties this stack's buckets when it is deleted"
        self._policy = iam.ManagedPolicy(self, "Policy", roles=[role], description=task)
        actions = ["logs:CreateLogStream", "logs:PutLogEvents"]
        self._policy.add_statements(iam.PolicyStatement(sid="OwnLogs", actions=actions, resources=[log_group.log_group_arn]))
        # The bare resource: the construct above it brings five more services' modules, a tenth of a whole synth.
        self._function = lambda_.CfnFunction(
            self,
            "Function",
            description=task,
            runtime="python3.14",
            handler="index.handler",
            # Inline: nothing to upload, so that the whole app has no asset.
            code=lambda_.CfnFunction.CodeProperty(zip_file=HANDLER.read_text(encoding="utf-8")),
            timeout=15 * 60,
            memory_size=256,
            role=role.role_arn,
            logging_config=lambda_.CfnFunction.LoggingConfigProperty(log_group=log_group.log_group_name),
        )
        self._function.node.add_dependency(self._policy)

        acknowledge(
            self._function,
            "CloudFormation calls it once, waits for its answer and says why it failed: it needs no reserved concurrency, no "
            "dead-letter queue and no VPC",
            *("NIST.800.53.R5-LambdaConcurrency", "CKV_AWS_115"),
            *("NIST.800.53.R5-LambdaDLQ", "CKV_AWS_116"),
            *("NIST.800.53.R5-LambdaInsideVPC", "CKV_AWS_117"),
        )

    @classmethod
    def of(cls, scope: Construct, *, encryption_key: kms.IKey | None = None) -> BucketEmptier:
        """The emptier of `scope`'s stack, made when it is first asked for; `encryption_key` is for its logs."""
        stack = Stack.of(scope)
        found = stack.node.try_find_child("BucketEmptier")
        if found is None:
            return cls(stack, "BucketEmptier", encryption_key=encryption_key)
        assert isinstance(found, cls)
        return found

    def empty_on_delete(self, bucket: s3.Bucket) -> None:
        """Deletes all of `bucket`'s objects and versions just before the stack deletes `bucket` itself."""
        self._policy.add_statements(
            iam.PolicyStatement(actions=["s3:ListBucketVersions", "s3:PutBucketPolicy"], resources=[bucket.bucket_arn]),
            iam.PolicyStatement(actions=["s3:DeleteObject", "s3:DeleteObjectVersion"], resources=[bucket.arn_for_objects("*")]),
        )
        acknowledge(
            self._policy, "it is there to delete every object of this bucket", *wildcards(self, bucket.arn_for_objects("*"))
        )
        request = CustomResource(
            bucket,
            "EmptyOnDelete",
            resource_type="Custom::EmptyBucket",
            service_token=self._function.attr_arn,
            properties={"BucketName": bucket.bucket_name},
        )
        request.node.add_dependency(self._policy)
        if bucket.policy is not None:
            # Emptied first, then the policy goes, then the bucket.
            request.node.add_dependency(bucket.policy)

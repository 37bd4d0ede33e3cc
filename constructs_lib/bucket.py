"""The bucket of a training cluster: training data and what jobs upload.

Promises: encrypted with a key, reached over TLS only, never public, versioned with an end to old versions, every access
logged to a second bucket that is as closed; and, with RemovalPolicy.DESTROY, gone with all it holds.
"""

from __future__ import annotations

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from constructs_lib.acknowledged import acknowledge
from constructs_lib.bucket_emptier import BucketEmptier

LOG_PREFIX = "bucket/"


class DataBucket(s3.Bucket):
    """A private bucket and its log bucket; everything of `s3.Bucket` (`grant_read`, `from_bucket_name`, ...) is here too.

    Args:
        encryption_key: KMS key of the objects; None: a key that AWS manages (aws/s3).
        keep_old_versions_days: how long an overwritten or deleted object can be brought back.
        keep_logs_days: how long access logs are kept.
        removal_policy: RETAIN keeps both buckets; DESTROY empties and deletes both.

    Attributes:
        log_bucket: where the accesses are logged.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        encryption_key: kms.IKey | None = None,
        keep_old_versions_days: int = 30,
        keep_logs_days: int = 90,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
    ) -> None:
        super().__init__(
            scope,
            id,
            encryption=s3.BucketEncryption.KMS if encryption_key else s3.BucketEncryption.KMS_MANAGED,
            encryption_key=encryption_key,
            bucket_key_enabled=True if encryption_key else None,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            versioned=True,
            lifecycle_rules=[
                s3.LifecycleRule(
                    noncurrent_version_expiration=Duration.days(keep_old_versions_days),
                    abort_incomplete_multipart_upload_after=Duration.days(7),
                    expired_object_delete_marker=True,
                )
            ],
            removal_policy=removal_policy,
        )
        logs = s3.Bucket(
            self,
            "Logs",
            # Log delivery cannot use a customer's key without opening it to a service; AWS's own (SSE-S3) it can.
            encryption=s3.BucketEncryption.S3_MANAGED,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            versioned=True,
            lifecycle_rules=[
                s3.LifecycleRule(
                    expiration=Duration.days(keep_logs_days), noncurrent_version_expiration=Duration.days(keep_old_versions_days)
                )
            ],
            removal_policy=removal_policy,
        )
        self.log_bucket = logs
        # By hand, not by server_access_logs_bucket: that means an ACL in an app without the newer feature flags.
        resource = self.node.default_child
        assert isinstance(resource, s3.CfnBucket)
        resource.logging_configuration = s3.CfnBucket.LoggingConfigurationProperty(
            destination_bucket_name=logs.bucket_name, log_file_prefix=LOG_PREFIX
        )
        logs.add_to_resource_policy(
            iam.PolicyStatement(
                sid="LogDelivery",
                principals=[iam.ServicePrincipal("logging.s3.amazonaws.com")],
                actions=["s3:PutObject"],
                resources=[logs.arn_for_objects(f"{LOG_PREFIX}*")],
                conditions={
                    "ArnLike": {"aws:SourceArn": self.bucket_arn},
                    "StringEquals": {"aws:SourceAccount": Stack.of(self).account},
                },
            )
        )
        for bucket in (self, logs):
            acknowledge(
                bucket,
                "data has its origin elsewhere, and versions bring back what was deleted; a copy in another region would "
                "double the cost",
                "NIST.800.53.R5-S3BucketReplicationEnabled",
            )
        acknowledge(
            logs,
            "log delivery would need a key opened to a service: SSE-S3 seals access logs",
            "NIST.800.53.R5-S3DefaultEncryptionKMS",
        )
        acknowledge(logs, "it is where accesses are logged: a log of its own accesses would feed itself", "CKV_AWS_18")
        if removal_policy == RemovalPolicy.DESTROY:
            emptier = BucketEmptier.of(self, encryption_key=encryption_key)
            emptier.empty_on_delete(self)
            emptier.empty_on_delete(logs)

"""The bucket of a training cluster: private, encrypted, versioned, with every access logged to a
second such bucket.

With RemovalPolicy.DESTROY, a Lambda function, one for each stack, empties these buckets and no
others.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack

import jsii
from aws_cdk import CfnDeletionPolicy, CfnResource, Duration, Lazy, RemovalPolicy, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct, IValidation

from constructs_lib.acknowledged import acknowledge, wildcard_findings
from constructs_lib.metrics import S3, MetricOptions, metric
from constructs_lib.rules import DAYS
from constructs_lib.statements import statements
from constructs_lib.storage import removal
from constructs_lib.storage.stack_end import StackEndFunction
from constructs_lib.validation import check, merge_options, refuse

STATEMENTS = Path(__file__).with_name("bucket_statements.json")
TAG = "paddle-aws/deletion-policy"
"""A bucket's tag: its DeletionPolicy in the template. CloudFormation sets tag and policy in one
step, so no failed or rolled back update sets one without the other.
"""


@jsii.implements(IValidation)
class _GoesTogether:
    """Refuses to empty a bucket that outlives its stack."""

    def __init__(self, bucket: CfnResource, request: CfnResource) -> None:
        self._bucket, self._request = bucket, request

    def validate(self) -> list[str]:
        """Returns why this bucket is refused, if it is."""
        kept = CfnDeletionPolicy.RETAIN, CfnDeletionPolicy.RETAIN_EXCEPT_ON_CREATE
        policy = removal.deletion_policy(self._bucket)
        if policy == "Delete" or self._request.cfn_options.deletion_policy in kept:
            return []
        return [
            f"removal_policy: the bucket is emptied when the stack goes, but its deletion policy "
            f"was set to {policy} later: make it with removal_policy=RemovalPolicy.RETAIN to "
            "keep it, or leave DESTROY in place"
        ]


class BucketEmptier(StackEndFunction):
    """A stack's only provider of this custom resource: call `empty_on_delete(bucket)`."""

    task = "Empties this stack's buckets when it is deleted"
    handler = Path(__file__).with_name("bucket_emptier_handler.py")

    def empty_on_delete(self, bucket: s3.Bucket) -> None:
        """Deletes all objects and versions of `bucket` just before the whole stack, and with it
        `bucket`, is deleted. Synth refuses a bucket whose removal policy is not DESTROY.

        An update that removes the bucket, or this custom resource, from the stack deletes no
        objects.
        """
        objects = bucket.arn_for_objects("*")
        self.policy.add_statements(
            iam.PolicyStatement(
                actions=["s3:GetBucketTagging", "s3:ListBucketVersions", "s3:PutBucketPolicy"],
                resources=[bucket.bucket_arn],
            ),
            iam.PolicyStatement(
                actions=["s3:DeleteObject", "s3:DeleteObjectVersion"], resources=[objects]
            ),
        )
        why = "it is there to delete every object of this bucket"
        acknowledge(self.policy, why, *wildcard_findings(self, objects))
        request = self.request(
            bucket, "EmptyOnDelete", "Custom::EmptyBucket", BucketName=bucket.bucket_name
        )
        resource, asks = bucket.node.default_child, request.node.default_child
        assert isinstance(resource, s3.CfnBucket) and isinstance(asks, CfnResource)
        bucket.node.add_validation(_GoesTogether(resource, asks))
        resource.tags.set_tag(TAG, Lazy.string(removal.DeletionPolicy(resource)))
        if bucket.policy is not None:
            # The bucket is emptied first, then its policy is deleted, then the bucket.
            request.node.add_dependency(bucket.policy)


LOG_PREFIX = "bucket/"


class BucketOptions(TypedDict, total=False):
    """What `s3.Bucket` takes and we do not decide; its documentation has the meanings."""

    bucket_name: str
    bucket_name_prefix: str
    cors: Sequence[s3.CorsRule]
    event_bridge_enabled: bool
    intelligent_tiering_configurations: Sequence[s3.IntelligentTieringConfiguration]
    inventories: Sequence[s3.Inventory]
    metrics: Sequence[s3.BucketMetrics]
    notifications_handler_role: iam.IRole
    notifications_skip_destination_validation: bool
    object_lock_default_retention: s3.ObjectLockRetention
    object_lock_enabled: bool
    replication_role: iam.IRole
    replication_rules: Sequence[s3.ReplicationRule]
    transfer_acceleration: bool


class DataBucket(s3.Bucket):
    """A private bucket and its log bucket, with everything that `s3.Bucket` has (`grant_read`,
    `from_bucket_name`, ...).

    Example; a bucket that goes with its stack:

    >>> from aws_cdk import RemovalPolicy
    >>> bucket = DataBucket(stack, "Bucket", removal_policy=RemovalPolicy.DESTROY)

    Args:
        encryption_key: KMS key of the objects; None: a key that AWS manages (aws/s3).
        keep_old_versions_days: how long an overwritten or deleted object can be restored.
        keep_logs_days: how long access logs are kept.
        removal_policy: RETAIN keeps both buckets; DESTROY empties and deletes both.
        lifecycle_rules: more rules, beside ours for old versions and unfinished uploads.
        options: passed to `s3.Bucket`.

    Raises:
        ValueError: a sentence for each value that is refused.
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
        lifecycle_rules: Sequence[s3.LifecycleRule] = (),
        **options: Unpack[BucketOptions],
    ) -> None:
        refuse(
            f"{scope.node.path}/{id}",
            [
                *check(keep_old_versions_days=(DAYS, keep_old_versions_days)),
                *check(keep_logs_days=(DAYS, keep_logs_days)),
                *removal.no_snapshot(removal_policy),
            ],
        )
        closed: dict[str, Any] = {
            "enforce_ssl": True,
            "minimum_tls_version": 1.2,
            "block_public_access": s3.BlockPublicAccess.BLOCK_ALL,
            "object_ownership": s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            "versioned": True,
            "removal_policy": removal_policy,
        }
        decided = {
            "encryption": s3.BucketEncryption.KMS
            if encryption_key
            else s3.BucketEncryption.KMS_MANAGED,
            "encryption_key": encryption_key,
            "bucket_key_enabled": True if encryption_key else None,
            **closed,
            "lifecycle_rules": [
                s3.LifecycleRule(
                    noncurrent_version_expiration=Duration.days(keep_old_versions_days),
                    abort_incomplete_multipart_upload_after=Duration.days(7),
                    expired_object_delete_marker=True,
                ),
                *lifecycle_rules,
            ],
        }
        super().__init__(scope, id, **merge_options(f"{scope.node.path}/{id}", decided, options))
        self.log_bucket = s3.Bucket(
            self,
            "Logs",
            # Log delivery can use a customer's key only if the key is opened to a service. AWS's
            # own key (SSE-S3) needs nothing.
            encryption=s3.BucketEncryption.S3_MANAGED,
            **closed,
            lifecycle_rules=[
                s3.LifecycleRule(
                    expiration=Duration.days(keep_logs_days),
                    noncurrent_version_expiration=Duration.days(keep_old_versions_days),
                )
            ],
        )
        self._log_accesses()
        for bucket in (self, self.log_bucket):
            removal.retain_if_replaced(bucket)
        self._acknowledge()
        if removal_policy == RemovalPolicy.DESTROY:
            self._empty_on_delete(encryption_key)

    def _log_accesses(self) -> None:
        """Has S3 log every access to the bucket in its log bucket."""
        # Set directly: server_access_logs_bucket would add an ACL in an app without the newer
        # feature flags.
        resource, logs = self.node.default_child, self.log_bucket
        assert isinstance(resource, s3.CfnBucket)
        resource.logging_configuration = s3.CfnBucket.LoggingConfigurationProperty(
            destination_bucket_name=logs.bucket_name, log_file_prefix=LOG_PREFIX
        )
        arns = {
            "bucket": self.bucket_arn,
            "logs": logs.arn_for_objects(f"{LOG_PREFIX}*"),
            "account": Stack.of(self).account,
        }
        (delivery,) = statements(STATEMENTS, "log delivery", **arns)
        logs.add_to_resource_policy(delivery)

    def _acknowledge(self) -> None:
        """Acknowledges findings of the usual checks, with the reasons."""
        why = "versions bring back what was deleted; a copy in another region would double the cost"
        for bucket in (self, self.log_bucket):
            acknowledge(bucket, why, "NIST.800.53.R5-S3BucketReplicationEnabled")
        why = "log delivery would need a key opened to a service: SSE-S3 seals access logs"
        acknowledge(self.log_bucket, why, "NIST.800.53.R5-S3DefaultEncryptionKMS")
        why = "it is where accesses are logged: a log of its own accesses would feed itself"
        acknowledge(self.log_bucket, why, "CKV_AWS_18")

    def _empty_on_delete(self, encryption_key: kms.IKey | None) -> None:
        """Has the stack's emptier empty both buckets before they are deleted."""
        stack, id = Stack.of(self), "BucketEmptier"
        emptier = stack.node.try_find_child(id) or BucketEmptier(
            stack, id, encryption_key=encryption_key
        )
        assert isinstance(emptier, BucketEmptier)
        for bucket in (self, self.log_bucket):
            emptier.empty_on_delete(bucket)

    def metric(
        self, metric_name: str, storage_type: str, **options: Unpack[MetricOptions]
    ) -> cloudwatch.Metric:
        """Returns one of S3's storage metrics, which S3 reports once a day."""
        dimensions = {"BucketName": self.bucket_name, "StorageType": storage_type}
        options.setdefault("period", Duration.days(1))
        return metric(S3, metric_name, dimensions, **options)

    def metric_size_bytes(
        self, storage_type: str = "StandardStorage", **options: Unpack[MetricOptions]
    ) -> cloudwatch.Metric:
        """Returns how many bytes are stored in one storage class."""
        return self.metric("BucketSizeBytes", storage_type, **options)

    def metric_object_count(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Returns how many objects are stored, old versions included."""
        return self.metric("NumberOfObjects", "AllStorageTypes", **options)

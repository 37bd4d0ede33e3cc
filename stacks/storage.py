"""What must not get lost: file system, bucket, image repository."""

from __future__ import annotations

from aws_cdk import CfnOutput, Environment, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms
from constructs import Construct

from constructs_lib.bucket import DataBucket
from constructs_lib.file_system import SharedFileSystem
from constructs_lib.image_repository import ImageRepository
from stacks.cluster_spec import ClusterSpec
from stacks.removal import removal


class StorageStack(Stack):
    """File system, bucket, image repository."""

    def __init__(self, scope: Construct, id: str, *, spec: ClusterSpec, key: kms.IKey, vpc: ec2.IVpc, env: Environment) -> None:
        super().__init__(scope, id, env=env, description=f"{spec.name}: data and images")
        kept = removal(spec)
        self.file_system = SharedFileSystem(self, "FileSystem", vpc=vpc, encryption_key=key, removal_policy=kept)
        self.bucket = DataBucket(self, "Bucket", encryption_key=key, removal_policy=kept)
        self.repository = ImageRepository(
            self, "Images", repository_name=f"{spec.name}/trainer", encryption_key=key, removal_policy=kept
        )
        CfnOutput(self, "KeyArn", value=key.key_arn)
        CfnOutput(self, "BucketName", value=self.bucket.bucket_name)
        CfnOutput(self, "FileSystemId", value=self.file_system.file_system.file_system_id)
        CfnOutput(self, "FileSystemDnsName", value=self.file_system.dns_name)
        CfnOutput(self, "AccessPointId", value=self.file_system.access_point.access_point_id)
        CfnOutput(self, "RepositoryUri", value=self.repository.repository_uri)

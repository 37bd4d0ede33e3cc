"""The resources that hold data: file system, bucket, image repository."""

from aws_cdk import Size
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_efs as efs
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from pydantic.alias_generators import to_pascal

from constructs_lib.storage.bucket import BucketOptions, DataBucket
from constructs_lib.storage.file_system import MountableFileSystem, SharedFileSystem
from constructs_lib.storage.image_repository import ImageRepository
from constructs_lib.storage.lustre import LustreFileSystem
from constructs_lib.storage.shared_file_system import ISharedFileSystem
from constructs_lib.subnets import choose_subnets
from paddle_aws.stacks.cluster_spec import USED_IMAGE
from paddle_aws.stacks.part import Platform, PlatformStack, StoragePart

LUSTRE_BACKUP_DAYS = 35
"""How long FSx keeps daily backups: as long as AWS Backup keeps those of EFS."""


class StorageStack(PlatformStack):
    """File system, bucket, image repository.

    Args:
        platform: the platform that it is a part of.

    Attributes:
        bucket_arn: the bucket's ARN as other stacks see it and as the acknowledgments of grants
        spell it. To the CDK it is no
            reference, so those stacks depend on this one explicitly; else it would be destroyed
            first, which is refused.
        bucket_key: the bucket's KMS key.

    Raises:
        SettingError: one sentence, for settings that do not fit.
    """

    def __init__(self, platform: Platform) -> None:
        super().__init__(platform, "storage", "data and images")
        spec, key = self.spec, platform.access.key
        self.file_system = self.make_file_system(platform.network.vpc, key)
        self.bucket: s3.IBucket
        self.bucket_key = key
        if spec.bucket.existing_name:
            if theirs := spec.bucket.existing_key_arn:
                self.bucket_key = kms.Key.from_key_arn(self, "BucketKey", theirs)
            self.bucket = s3.Bucket.from_bucket_attributes(
                self, "Bucket", bucket_name=spec.bucket.existing_name
            )
            self.bucket_arn = self.bucket.bucket_arn
        else:
            days = spec.bucket.model_dump(include={"keep_old_versions_days", "keep_logs_days"})
            self.bucket = DataBucket(
                self,
                "Bucket",
                encryption_key=key,
                removal_policy=self.removal_policy,
                **days,
                **self.bucket_options(),
            )
            self.bucket_arn = self.export_value(self.bucket.bucket_arn)
        self.repository: ecr.IRepository
        if spec.images.existing:
            self.repository = ecr.Repository.from_repository_name(
                self, "Images", f"{spec.name}/trainer"
            )
        else:
            self.repository = ImageRepository(
                self,
                "Images",
                repository_name=f"{spec.name}/trainer",
                encryption_key=key,
                keep_images=spec.images.keep,
                keep_tags=[f"{USED_IMAGE}*"],
                removal_policy=self.removal_policy,
            )
        if isinstance(self.file_system, LustreFileSystem):
            if folder := spec.file_system.bucket_folder:
                self.file_system.add_data_repository(
                    "Bucket", self.bucket, folder=folder, bucket_key=self.bucket_key
                )
            # As of EFS, below.
            self.export_value(self.file_system.file_system_id)
        if isinstance(self.file_system, MountableFileSystem):
            if spec.file_system.existing is None:
                # Exported even without a budget: otherwise the export would go before the watch
                # stack, which imports it.
                self.export_value(self.file_system.file_system.file_system_id)
            # Likewise, for nodes that mount it until the setting is taken back.
            self.export_value(self.file_system.access_point.access_point_id)
        self.output(**storage_outputs(self))

    def bucket_options(self) -> BucketOptions:
        """Returns more props of the bucket; override it to name it, such as for another account."""
        return {}

    def make_file_system(self, vpc: ec2.IVpc, key: kms.IKey) -> ISharedFileSystem:
        """Returns the file system of the settings; override it to use another one, of any kind."""
        settings = self.spec.file_system
        if settings.lustre:
            zones = ec2.SubnetSelection(availability_zones=[self.spec.file_system_zone])
            in_zone = choose_subnets(vpc, zones).subnets or []
            return LustreFileSystem(
                self,
                "FileSystem",
                vpc=vpc,
                vpc_subnet=in_zone[0],
                storage_capacity_gib=settings.storage_capacity_gib,
                per_unit_storage_throughput=settings.per_unit_storage_throughput,
                encryption_key=key,
                backup_days=LUSTRE_BACKUP_DAYS if self.spec.backup else 0,
                posix_id=settings.posix_id,
                removal_policy=self.removal_policy,
            )
        if existing := settings.existing:
            subnets = {
                subnet.availability_zone: subnet
                for subnet in vpc.select_subnets(one_per_az=True).subnets
            }
            group, missing = None, list(subnets)
            if existing.security_group:
                group = ec2.SecurityGroup.from_security_group_id(
                    self, "MountTargetsGroup", existing.security_group
                )
                missing = existing.zones_without_mount_target
            return SharedFileSystem.from_file_system_attributes(
                self,
                "FileSystem",
                vpc=vpc,
                file_system_id=existing.id,
                security_group=group,
                missing_mount_targets=[subnets[zone] for zone in missing],
                posix_id=settings.posix_id,
            )
        days = settings.infrequent_access_after_days
        unread = "1_DAY" if days == 1 else f"{days}_DAYS"
        provisioned = settings.provisioned_mib_per_second
        return SharedFileSystem(
            self,
            "FileSystem",
            vpc=vpc,
            encryption_key=key,
            throughput_mode=efs.ThroughputMode[settings.throughput.upper()],
            provisioned_throughput_per_second=Size.mebibytes(provisioned) if provisioned else None,
            require_tls=settings.require_tls,
            infrequent_access_after=efs.LifecyclePolicy[f"AFTER_{unread}"] if days else None,
            automatic_backups=self.spec.backup,
            posix_id=settings.posix_id,
            removal_policy=self.removal_policy,
        )


def storage_outputs(storage: StoragePart) -> dict[str, str]:
    """Returns the outputs that commands and people read."""
    source = storage.file_system.volume_source
    return {
        "BucketName": storage.bucket.bucket_name,
        **{to_pascal(name): value for name, value in source.items()},
        "RepositoryUri": storage.repository.repository_uri,
    }

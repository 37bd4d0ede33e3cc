"""cluster.yaml's `key`, `bucket`, `file_system` and `images`: the resources that hold data. Imports
no aws_cdk.
"""

import re
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Literal

from pydantic import Field

from constructs_lib.rules import DAYS, IMAGES, LUSTRE_FOLDER, POSIX_ID, lustre_capacity
from paddle_aws.stacks.conditions import (
    EFS,
    LUSTRE,
    MOUNT_TARGETS,
    NEW_BUCKET,
    NEW_FILES,
    NEW_IMAGES,
    OLD_BUCKET,
    PROVISIONED,
)
from paddle_aws.stacks.rule_settings import apply_rule
from paddle_settings.model import Fault, Refused, Settings, check

_KEY_ARN = r"^arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/(mrk-)?[0-9a-f-]+$"
_KEY_EXAMPLE = "arn:aws:kms:us-west-2:123456789012:key/01234567-89ab-cdef-0123-456789abcdef"

LABEL = "[a-z0-9]([a-z0-9-]*[a-z0-9])?"


class Key(Settings):
    """The KMS key that encrypts data, secrets and logs."""

    existing_arn: str | None = Field(
        default=None,
        pattern=_KEY_ARN,
        examples=[_KEY_EXAMPLE],
    )
    """Use this key. Its policy must let CloudWatch Logs use it (docs/aws.md)."""


class Bucket(Settings):
    """The bucket of training data and of what jobs upload."""

    existing_name: str | None = Field(
        default=None,
        min_length=3,
        max_length=63,
        pattern=rf"^{LABEL}(\.{LABEL})*$",
        examples=["their-training-data"],
    )
    """Use this bucket; it is never changed or deleted."""
    existing_key_arn: Annotated[str | None, OLD_BUCKET] = Field(
        default=None, pattern=_KEY_ARN, examples=[_KEY_EXAMPLE]
    )
    """That bucket's KMS key, if not the cluster's. Its policy must allow this account's IAM
    policies.
    """
    keep_old_versions_days: Annotated[int, NEW_BUCKET] = Field(default=30, ge=DAYS.least)
    """How long overwritten and deleted objects can be restored."""
    keep_logs_days: Annotated[int, NEW_BUCKET] = Field(default=90, ge=DAYS.least)
    """Retention of access logs."""

    def _faults(self) -> Iterator[Fault]:
        if self.existing_name and re.fullmatch(
            r"[\d.]+|xn--.*|.*(-s3alias|--x-s3)", self.existing_name
        ):
            yield Refused(
                "existing_name", self.existing_name, "allowed is one such as their-training-data"
            )


class ExistingFileSystem(Settings):
    """An EFS file system that is there already; its data, policy and throughput stay as they
    are.
    """

    id: str = Field(pattern=r"^fs-[0-9a-f]{8,17}$", examples=["fs-0123456789abcdef0"])
    """The file system's id."""
    security_group: str | None = Field(
        default=None, pattern=r"^sg-[0-9a-f]{8,17}$", examples=["sg-0123456789abcdef0"]
    )
    """Security group of its mount targets; a deploy adds a rule for TCP 2049. Unset: it has no
    mount targets (as after a destroy with `retain: true`), and a deploy adds one in each zone.
    """
    zones_without_mount_target: Annotated[list[str], MOUNT_TARGETS] = Field(default=[])
    """Zones that still need a mount target."""


class FileSystem(Settings):
    """The shared file system of jobs: EFS or FSx for Lustre."""

    kind: Literal["efs", "lustre"] = "efs"
    """efs: Amazon EFS. lustre: FSx for Lustre (docs/file-system.md compares them). A change makes a
    new, empty file system.
    """
    throughput: Annotated[Literal["elastic", "provisioned", "bursting"], EFS, NEW_FILES] = "elastic"
    """Throughput mode; docs/file-system.md compares them."""
    provisioned_mib_per_second: Annotated[int | None, PROVISIONED] = Field(
        default=None, ge=1, le=3414
    )
    """Throughput of mode provisioned, MiB/s."""
    require_tls: Annotated[bool, EFS, NEW_FILES] = True
    """Refuse mounts without TLS. false allows the tutorials' plain NFS; data then crosses the VPC
    unencrypted.
    """
    infrequent_access_after_days: Annotated[
        Literal[0, 1, 7, 14, 30, 60, 90, 180, 270, 365], EFS, NEW_FILES
    ] = 30
    """Days without a read after which a file moves to the cheaper storage class; 0: never."""
    backup: Annotated[bool | None, NEW_FILES] = None
    """Daily backups; unset: as `retain`. Backups of EFS outlive the file system; those of Lustre
    are kept for 35 days and end with it.
    """
    posix_id: int = Field(default=1000, ge=POSIX_ID.least, le=POSIX_ID.most)
    """uid and gid: of every client on EFS, of the root folder's owner on Lustre. The trainer image
    runs as 1000.
    """
    existing: Annotated[ExistingFileSystem | None, EFS] = None
    """Use this file system."""
    storage_capacity_gib: Annotated[
        int, apply_rule(partial(lustre_capacity, "storage_capacity_gib")), LUSTRE
    ] = 1200
    """Size in GiB, 1200 or a multiple of 2400. AWS bills all of it, used or not. It can
    grow, never shrink.
    """
    per_unit_storage_throughput: Annotated[Literal[125, 250, 500, 1000], LUSTRE] = 125
    """MB/s for each TiB."""
    availability_zone: Annotated[str | None, LUSTRE] = None
    """Its zone, which cannot change later; unset: the first zone. Traffic from nodes in
    other zones costs money.
    """
    bucket_folder: Annotated[str | None, LUSTRE] = Field(
        default=None,
        max_length=255,
        pattern=LUSTRE_FOLDER.pattern,
        examples=[LUSTRE_FOLDER.example],
    )
    """A folder that shows the bucket's objects as files and reads them at first use; the
    bucket does not change. FSx then makes no backups.
    """

    def _faults(self) -> Iterator[Fault]:
        yield from check(self._backup, self._throughput)

    def _backup(self) -> Iterator[Fault]:
        if self.backup and self.bucket_folder:
            allowed = (
                "FSx makes no backups of a file system that is linked to a bucket: leave out "
                "{here}bucket_folder, or this"
            )
            yield Refused("backup", True, allowed)

    def _throughput(self) -> Iterator[Fault]:
        if self.throughput == "provisioned" and self.provisioned_mib_per_second is None:
            allowed = "{here}throughput is provisioned: name the MiB/s, 1 to 3414"
            yield Refused("provisioned_mib_per_second", None, allowed)

    @property
    def lustre(self) -> bool:
        """Whether it is FSx for Lustre."""
        return self.kind == "lustre"


class Images(Settings):
    """The ECR repository of trainer images."""

    existing: bool = False
    """Use the existing repository `<name>/trainer`, and keep it."""
    keep: Annotated[int, NEW_IMAGES] = Field(default=50, ge=IMAGES.least)
    """How many of the newest images to keep. Images of submitted jobs are kept in addition."""

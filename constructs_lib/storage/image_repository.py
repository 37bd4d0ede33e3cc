"""The image repository of a cluster: tags are immutable, ECR scans images when they are pushed, and
old images expire.
"""

from collections.abc import Sequence
from typing import TypedDict, Unpack

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_kms as kms
from constructs import Construct

from constructs_lib.rules import IMAGES, TAG_PATTERN
from constructs_lib.storage.removal import no_snapshot, retain_if_replaced
from constructs_lib.validation import check, check_list, merge_options, refuse

UNREACHED = 100_000
"""More images than a repository holds (ECR's quota)."""


class RepositoryOptions(TypedDict, total=False):
    """What `ecr.Repository` takes and we do not decide; its documentation has the meanings."""

    image_tag_mutability_exclusion_filters: Sequence[ecr.ImageTagMutabilityExclusionFilter]
    lifecycle_registry_id: str


class ImageRepository(ecr.Repository):
    """A private repository, with everything that `ecr.Repository` has (`grant_pull`,
    `repository_uri_for_digest`, ...).

    Example; images in use never expire:

    >>> images = ImageRepository(stack, "Images", keep_images=20, keep_tags=["used-*"])

    Args:
        repository_name: name; None: CloudFormation generates one.
        encryption_key: KMS key; None: ECR's own.
        keep_images: how many of the newest images are kept.
        keep_tags: patterns of tags, such as used-*; images that have one of them never expire.
        removal_policy: RETAIN keeps the repository; DESTROY deletes it with its images.
        options: passed to `ecr.Repository`.

    Raises:
        ValueError: a sentence for each value that is refused.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        repository_name: str | None = None,
        encryption_key: kms.IKey | None = None,
        keep_images: int = 50,
        keep_tags: Sequence[str] = (),
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
        **options: Unpack[RepositoryOptions],
    ) -> None:
        refuse(
            f"{scope.node.path}/{id}",
            [
                *check(keep_images=(IMAGES, keep_images)),
                *check_list("keep_tags", TAG_PATTERN, keep_tags),
                *no_snapshot(removal_policy),
            ],
        )
        decided = {
            "repository_name": repository_name,
            "encryption": ecr.RepositoryEncryption.KMS if encryption_key else None,
            "encryption_key": encryption_key,
            "image_scan_on_push": True,
            "image_tag_mutability": ecr.TagMutability.IMMUTABLE,
            "removal_policy": removal_policy,
            "empty_on_delete": removal_policy == RemovalPolicy.DESTROY,
        }
        super().__init__(scope, id, **merge_options(f"{scope.node.path}/{id}", decided, options))
        retain_if_replaced(self)
        self.add_lifecycle_rule(
            description="untagged images go after a week",
            tag_status=ecr.TagStatus.UNTAGGED,
            max_image_age=Duration.days(7),
        )
        for pattern in keep_tags:
            # An image that a rule's tags match is out of reach of all later rules ("How lifecycle
            # policies work", ECR user guide). One rule each: an image must match all patterns of a
            # list.
            self.add_lifecycle_rule(
                description=f"images tagged {pattern} stay",
                tag_status=ecr.TagStatus.TAGGED,
                tag_pattern_list=[pattern],
                max_image_count=UNREACHED,
            )
        self.add_lifecycle_rule(
            description="the newest images stay",
            tag_status=ecr.TagStatus.ANY,
            max_image_count=keep_images,
        )

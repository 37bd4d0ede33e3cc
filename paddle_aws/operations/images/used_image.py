"""Keeps an image that a job names from expiring: the repository's lifecycle policy spares its
tag.
"""

import re
from collections.abc import Callable
from contextlib import suppress

from paddle_aws.operations.account.aws import client
from paddle_aws.operations.errors import BadInput, Unreachable, translate_errors
from paddle_aws.stacks.cluster_spec import USED_IMAGE

PUSHED = re.compile(
    r"(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.[a-z.]+/"
    r"(?P<repository>[^@:]+)@(?P<digest>sha256:(?P<short>[0-9a-f]{32})[0-9a-f]{32})"
)
"""An image as `make push` writes it to image.json."""
MEDIA_TYPES = [
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.oci.image.index.v1+json",
]


def mark_used(image: str, say: Callable[[str], None]) -> None:
    """Tags a pushed image as used, if it is in ECR. Raises BadInput for one that is there no more;
    without the right to tag it says that the image may expire.
    """
    pushed = PUSHED.fullmatch(image)
    if pushed is None:
        return
    place = {"registryId": pushed["account"], "repositoryName": pushed["repository"]}
    try:
        with translate_errors():
            ecr = client("ecr", pushed["region"])
            which = {**place, "imageIds": [{"imageDigest": pushed["digest"]}]}
            images = ecr.batch_get_image(**which, acceptedMediaTypes=MEDIA_TYPES)["images"]
            if not images:
                raise BadInput(
                    f"image {image} is no longer in the repository: `make image push` builds and "
                    "pushes it again"
                )
            errors = ecr.exceptions
            # Tags are immutable: the first job has set it.
            with suppress(
                errors.ImageAlreadyExistsException, errors.ImageTagAlreadyExistsException
            ):
                manifest, tag = images[0]["imageManifest"], f"{USED_IMAGE}{pushed['short']}"
                ecr.put_image(**place, imageManifest=manifest, imageTag=tag)
    except Unreachable as error:
        say(f"warning: {image} may expire while the job needs it: {error}")

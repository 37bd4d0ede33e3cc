"""What a user would bring to the deployed account before a job: the data in the bucket, the image in the repository.

Older versions and a record in the repository are left lying on purpose: the destroy has to cope with both.
"""

from __future__ import annotations

import json
from pathlib import Path

from operations.bucket_upload import Address, put
from rehearsal.cloud import Cloud


def upload(cloud: Cloud, source: Path, address: str) -> None:
    """Put `source` at `address` (s3://bucket/key), over an earlier version of it."""
    client = cloud.client("s3")
    where = Address.parse(address)
    client.put_object(Bucket=where.bucket, Key=where.key, Body=b"an earlier version\n")
    put(client, source, where)


def record_image(cloud: Cloud, repository_uri: str, file: Path, variant: str = "") -> str:
    """Put an image's record into the repository and write `file` as `make push` does; the reference by digest.

    The record's manifest is a real one without layers: the rehearsal's pods run the image's files, not its layers.
    """
    name = repository_uri.split("/", 1)[1]
    empty = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"  # of {}
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": empty, "size": 2},
        "layers": [],
    }
    answer = cloud.client("ecr").put_image(
        repositoryName=name,
        imageManifest=json.dumps(manifest),
        imageManifestMediaType=manifest["mediaType"],
        imageTag="rehearsal",
    )
    reference = f"{repository_uri}@{answer['image']['imageId']['imageDigest']}"
    file.write_text(json.dumps({"variants": {variant: reference}} if variant else {"image": reference}) + "\n")
    return reference

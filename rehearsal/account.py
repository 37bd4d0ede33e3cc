"""What a user uploads to the deployed account before a job, and the AWS credentials that the job's
pods get from the account.

On EKS a pod has credentials if its service account is associated in its namespace, so a stack that
forgets the association fails here as on AWS. On a self-managed cluster the data job's pods have the
nodes' credentials. A pod with credentials also gets this machine's proxy and certificate settings,
because its data may lie at an https:// address; other pods talk only to each other.
"""

import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from operations.account.bucket_upload import object_of
from rehearsal.cloud import Cloud
from rehearsal.pods.pod import Identity

_WAY_OUT = (
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "http_proxy",
    "https_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
)


def upload(cloud: Cloud, source: Path, address: str) -> None:
    """Uploads `source` to `address` (s3://bucket/key), over an earlier version that the destroy has
    to cope with.
    """
    client = cloud.client("s3")
    client.put_object(**object_of(address), Body=b"an earlier version\n")
    client.upload_file(str(source), **object_of(address))


def record_image(cloud: Cloud, repository_uri: str, file: Path, variant: str = "") -> str:
    """Puts an image's record into the repository and writes `file` as `make push` does. Returns the
    reference by digest.

    The record's manifest has no layers: the rehearsal's pods run the image's files.
    """
    kind = "application/vnd.oci.image.manifest.v1+json"
    answer = cloud.client("ecr").put_image(
        repositoryName=repository_uri.split("/", 1)[1],
        imageManifest=json.dumps({"schemaVersion": 2, "mediaType": kind, "layers": []}),
        imageManifestMediaType=kind,
        imageTag="rehearsal",
    )
    reference = f"{repository_uri}@{answer['image']['imageId']['imageDigest']}"
    file.write_text(
        json.dumps({"variants": {variant: reference}} if variant else {"image": reference}) + "\n"
    )
    return reference


def _credentials(cloud: Cloud) -> dict[str, str]:
    """AWS credentials, with this machine's proxy and certificate settings."""
    return {name: os.environ[name] for name in _WAY_OUT if name in os.environ} | cloud.environment


def pod_identity(cloud: Cloud, cluster: str) -> Identity:
    """Credentials through EKS Pod Identity."""
    client = cloud.client("eks")

    @cache
    def variables(namespace: str, account: str) -> Mapping[str, str]:
        found = client.list_pod_identity_associations(
            clusterName=cluster, namespace=namespace, serviceAccount=account
        )
        return _credentials(cloud) if found["associations"] else {}

    return variables


def node_role(cloud: Cloud, data_account: str) -> Identity:
    """Credentials from the instance metadata of a self-managed cluster's nodes, which only the data
    job's pods may reach.
    """
    return lambda namespace, account: _credentials(cloud) if account == data_account else {}

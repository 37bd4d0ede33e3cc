"""Finds what a KMS key still encrypts in its region, with the queries of the Lambda function that
ends an unused key.
"""

from collections.abc import Callable, Iterator
from typing import Any

from constructs_lib.storage.unused_key_handler import SEARCHES
from paddle_aws.operations.account.aws import list_all


def list_encrypted(key: str, client: Callable[[str], Any], region: str) -> list[str]:
    """Returns the sorted names of the resources that the key with id `key` encrypts. Raises
    botocore's errors: an unanswered query must not look like an unused key.
    """
    return sorted({str(name) for name, by in _keys(client, region) if key in str(by)})


def _keys(client: Callable[[str], Any], region: str) -> Iterator[tuple[str, Any]]:
    for service, call, find, arguments in SEARCHES:
        api = client(service)
        try:
            yield from list_all(api, call, find, **arguments)
        except api.exceptions.ClientError as error:
            # An emulator without the service.
            if error.response["Error"]["Code"] != "UnknownOperationException":
                raise
    eks, s3 = client("eks"), client("s3")
    for name in list_all(eks, "list_clusters", "clusters"):
        yield name, eks.describe_cluster(name=name)["cluster"].get("encryptionConfig")
    for name in list_all(s3, "list_buckets", "Buckets[].Name", BucketRegion=region):
        try:
            yield name, s3.get_bucket_encryption(Bucket=name)["ServerSideEncryptionConfiguration"]
        except s3.exceptions.ClientError as error:
            if "EncryptionConfigurationNotFound" not in error.response["Error"]["Code"]:
                raise

"""Schedules a KMS key's deletion as its stack goes, unless it encrypts something or nobody knows.
Runs in AWS Lambda, inline: 4,096 characters at most.
"""

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

# botocore alone: an emulator's Python may have no boto3.
import botocore.session

SEARCHES: list[Any] = [
    ("efs", "describe_file_systems", "FileSystems[].[FileSystemId, KmsKeyId]", {}),
    ("fsx", "describe_file_systems", "FileSystems[].[FileSystemId, KmsKeyId]", {}),
    ("fsx", "describe_backups", "Backups[].[BackupId, KmsKeyId]", {}),
    ("ec2", "describe_volumes", "Volumes[?State != 'deleting'].[VolumeId, KmsKeyId]", {}),
    ("ec2", "describe_snapshots", "Snapshots[].[SnapshotId, KmsKeyId]", {"OwnerIds": ["self"]}),
    (
        "ecr",
        "describe_repositories",
        "repositories[].[repositoryName, encryptionConfiguration.kmsKey]",
        {},
    ),
    ("secretsmanager", "list_secrets", "SecretList[].[Name, KmsKeyId]", {}),
    ("backup", "list_backup_vaults", "BackupVaultList[].[BackupVaultName, EncryptionKeyArn]", {}),
]
"""(service, call, JMESPath of (name, key), arguments)."""


def handler(event: dict[str, Any], context: Any) -> None:
    """Answers in every case: silence would hold the stack for an hour."""
    answer = {key: event[key] for key in ("StackId", "RequestId", "LogicalResourceId")}
    settings = event["ResourceProperties"]
    goes = event["RequestType"] == "Delete"
    key = event["PhysicalResourceId"] if goes else settings["KeyArn"]
    answer |= {"PhysicalResourceId": key, "Status": "SUCCESS"}
    try:
        if goes and settings["DeletionPolicy"] != "Retain" and stack_goes(event["StackId"]):
            end(key, int(settings["PendingWindowInDays"]))
    except Exception as error:
        # A person can delete it later.
        print(f"{key} stays: {error}")
    url, body = event["ResponseURL"], json.dumps(answer).encode()
    request = urllib.request.Request(url, body, {"Content-Type": ""}, method="PUT")
    urllib.request.urlopen(request, timeout=30).close()


def client(service: str) -> Any:
    """Returns a service's client."""
    return botocore.session.get_session().create_client(service)


def stack_goes(stack: str) -> bool:
    """Whether the stack goes. An update keeps the key."""
    (state,) = client("cloudformation").describe_stacks(StackName=stack)["Stacks"]
    return bool(state["StackStatus"] == "DELETE_IN_PROGRESS")


def end(key: str, days: int) -> None:
    """Ends the key if it encrypts nothing."""
    for name, by in encrypted(client):
        if by and by.rpartition("/")[2] == key.rpartition("/")[2]:
            raise RuntimeError(f"it encrypts {name}")
    client("kms").schedule_key_deletion(KeyId=key, PendingWindowInDays=days)


def encrypted(client: Any) -> Iterator[tuple[str, str | None]]:
    """Yields (name, key); `client` makes a service's client."""
    for service, call, find, arguments in SEARCHES:
        api = client(service)
        try:
            yield from api.get_paginator(call).paginate(**arguments).search(find)
        except api.exceptions.ClientError as error:
            # No such service.
            if error.response["Error"]["Code"] != "UnknownOperationException":
                raise
    eks, s3 = client("eks"), client("s3")
    for name in eks.get_paginator("list_clusters").paginate().search("clusters"):
        for use in eks.describe_cluster(name=name)["cluster"].get("encryptionConfig", []):
            yield name, use["provider"]["keyArn"]
    for bucket in s3.list_buckets(BucketRegion=s3.meta.region_name)["Buckets"]:
        try:
            rules = s3.get_bucket_encryption(Bucket=bucket["Name"])
        except s3.exceptions.ClientError as error:
            if "EncryptionConfigurationNotFound" in error.response["Error"]["Code"]:
                continue
            raise
        for rule in rules["ServerSideEncryptionConfiguration"]["Rules"]:
            by = rule.get("ApplyServerSideEncryptionByDefault", {})
            yield bucket["Name"], by.get("KMSMasterKeyID")

"""Empties a bucket when its stack is deleted. Runs in AWS Lambda, inline: 4,096 characters at
most.
"""

import json
import urllib.request
from typing import Any

# botocore, not boto3: it is all that is needed, and all that an emulator's Python may have.
import botocore.session

TAG = "paddle-aws/deletion-policy"


def handler(event: dict[str, Any], context: Any) -> None:
    """Answers CloudFormation in every case: a silent failure would hold the stack for an hour."""
    answer = {key: event[key] for key in ("StackId", "RequestId", "LogicalResourceId")}
    bucket = event["ResourceProperties"]["BucketName"]
    if event["RequestType"] == "Delete":
        # The name of the resource, not of the properties: after a replacement that is the old
        # bucket.
        bucket = event["PhysicalResourceId"]
    answer["PhysicalResourceId"] = bucket
    answer["Status"] = "SUCCESS"
    try:
        if event["RequestType"] == "Delete" and stack_goes(event["StackId"]):
            empty(bucket, context)
    except Exception as error:
        answer["Status"] = "FAILED"
        answer["Reason"] = (
            f"bucket {bucket} was not emptied ({error}): delete the stack again to go on"
        )
    body = json.dumps(answer).encode()
    request = urllib.request.Request(
        event["ResponseURL"], data=body, method="PUT", headers={"Content-Type": ""}
    )
    urllib.request.urlopen(request, timeout=30).close()


def stack_goes(stack: str) -> bool:
    """Whether the bucket goes with its whole stack. An update, and its rollback, keep it."""
    api = botocore.session.get_session().create_client("cloudformation")
    status: str = api.describe_stacks(StackName=stack)["Stacks"][0]["StackStatus"]
    return status in ("DELETE_IN_PROGRESS", "ROLLBACK_IN_PROGRESS")


def empty(bucket: str, context: Any) -> None:
    """Deletes every version and delete marker, a thousand at a time, as long as the function's time
    lasts.
    """
    s3 = botocore.session.get_session().create_client("s3")
    try:
        if not goes(s3, bucket):
            return
        refuse_writes(s3, bucket, context.invoked_function_arn.split(":")[1])
        while True:
            page = s3.list_object_versions(Bucket=bucket, MaxKeys=1000)
            versions = page.get("Versions", []) + page.get("DeleteMarkers", [])
            if not versions:
                return
            if context.get_remaining_time_in_millis() < 20000:
                raise TimeoutError("it holds more objects than 15 minutes can delete")
            objects = [
                {"Key": version["Key"], "VersionId": version["VersionId"]} for version in versions
            ]
            left = s3.delete_objects(Bucket=bucket, Delete={"Objects": objects, "Quiet": True}).get(
                "Errors"
            )
            if left:
                raise RuntimeError(f"{left[0]['Key']}: {left[0].get('Message')}")
    except s3.exceptions.NoSuchBucket:
        return


def goes(s3: Any, bucket: str) -> bool:
    """Whether the bucket itself is deleted: its template's tag says so. A bucket without it is
    kept.
    """
    try:
        tags = s3.get_bucket_tagging(Bucket=bucket)["TagSet"]
    except s3.exceptions.ClientError as error:
        if error.response["Error"]["Code"] != "NoSuchTagSet":
            raise
        tags = []
    return {"Key": TAG, "Value": "Delete"} in tags


def refuse_writes(s3: Any, bucket: str, partition: str) -> None:
    """No new object while we delete: access logs, for one, are still being delivered."""
    deny = {
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:PutObject",
        "Resource": f"arn:{partition}:s3:::{bucket}/*",
    }
    policy = {"Version": "2012-10-17", "Statement": [deny]}
    s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps(policy))

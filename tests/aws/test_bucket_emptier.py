"""The emptier's handler: it answers CloudFormation in every case. (That it empties real versions is shown on the emulator.)"""

import io
import json
import urllib.request
from typing import Any

import botocore.session
import pytest

from constructs_lib.storage.bucket_emptier_handler import handler

KNOWN = {"StackId": "stack", "RequestId": "request", "LogicalResourceId": "Empty"}


class Account:
    """AWS, as far as the handler asks it: a stack that goes, and buckets with two versions each."""

    exceptions = type("exceptions", (), {"NoSuchBucket": KeyError})

    def __init__(self) -> None:
        self.buckets = {
            name: [{"Key": "a", "VersionId": "1"}, {"Key": "a", "VersionId": "2"}] for name in ("old-name", "new-name")
        }
        self.refused: list[dict[str, str]] = []

    def describe_stacks(self, StackName: str) -> dict[str, Any]:
        return {"Stacks": [{"StackStatus": "DELETE_IN_PROGRESS"}]}

    def put_bucket_policy(self, Bucket: str, Policy: str) -> None:
        assert json.loads(Policy)["Statement"][0]["Effect"] == "Deny", "no new object while the old ones go"

    def list_object_versions(self, Bucket: str, MaxKeys: int) -> dict[str, Any]:
        return {"Versions": self.buckets[Bucket]}

    def delete_objects(self, Bucket: str, Delete: dict[str, Any]) -> dict[str, Any]:
        self.buckets[Bucket] = self.refused
        return {"Errors": self.refused}


@pytest.mark.parametrize(
    ("refused", "milliseconds", "answer"),
    [
        ([], 900_000, {"Status": "SUCCESS"}),
        ([{"Key": "a", "Message": "locked"}], 900_000, {"Status": "FAILED", "Reason": "a: locked"}),
        ([], 1, {"Status": "FAILED", "Reason": "it holds more objects than 15 minutes can delete"}),
    ],
)
def test_the_bucket_it_was_made_for_is_emptied_or_a_sentence_says_why_not(
    monkeypatch: pytest.MonkeyPatch, refused: list[dict[str, str]], milliseconds: int, answer: dict[str, str]
) -> None:
    """After a replacement the properties name the new bucket: that one must not be touched. Silence would hold the stack."""
    account, told = Account(), []
    account.refused = refused
    clients = type("Session", (), {"create_client": lambda self, service: account})
    monkeypatch.setattr(botocore.session, "get_session", clients)
    monkeypatch.setattr(urllib.request, "urlopen", lambda request, timeout: told.append(request) or io.BytesIO())
    context = type(
        "Context", (), {"invoked_function_arn": "arn:aws:lambda", "get_remaining_time_in_millis": lambda: milliseconds}
    )
    event = {"RequestType": "Delete", "ResponseURL": "https://waits.example/", "PhysicalResourceId": "old-name"}
    handler({**KNOWN, **event, "ResourceProperties": {"BucketName": "new-name"}}, context)
    said = json.loads(told[0].data)
    if reason := answer.get("Reason"):
        answer = {**answer, "Reason": f"bucket old-name was not emptied ({reason}): delete the stack again to go on"}
    assert said == {**KNOWN, "PhysicalResourceId": "old-name", **answer}
    assert len(account.buckets["new-name"]) == 2
    assert answer["Status"] == "FAILED" or account.buckets["old-name"] == []

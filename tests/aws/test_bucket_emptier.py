"""The emptier's handler answers CloudFormation in every case. (The emulator's tests show that it
empties real versions.)
"""

import io
import json
import urllib.request
from typing import Any
from unittest.mock import Mock

import botocore.session
import pytest
from botocore.exceptions import ClientError

from constructs_lib.storage.bucket_emptier_handler import handler

KNOWN = {"StackId": "stack", "RequestId": "request", "LogicalResourceId": "Empty"}
GOES = {"Key": "paddle-aws/deletion-policy", "Value": "Delete"}
LOCKED = {"Key": "a", "Message": "locked", "VersionId": "1"}


@pytest.mark.parametrize(
    ("refused", "milliseconds", "reason"),
    [
        ([], 900_000, ""),
        ([LOCKED], 900_000, "a: locked"),
        ([], 1, "it holds more objects than 15 minutes can delete"),
    ],
)
def test_the_bucket_it_was_made_for_is_emptied_or_a_sentence_says_why_not(
    monkeypatch: pytest.MonkeyPatch, refused: list[dict[str, str]], milliseconds: int, reason: str
) -> None:
    """After a replacement the properties name the new bucket, which must not be touched. Without an
    answer the stack hangs.
    """
    account, responses = Mock(), []
    account.exceptions.NoSuchBucket, account.exceptions.ClientError = KeyError, ClientError
    account.get_bucket_tagging.return_value = {"TagSet": [GOES]}
    account.describe_stacks.return_value = {"Stacks": [{"StackStatus": "DELETE_IN_PROGRESS"}]}
    account.list_object_versions.side_effect = [
        {"Versions": [LOCKED, {**LOCKED, "VersionId": "2"}]},
        {},
    ]
    account.delete_objects.return_value = {"Errors": refused}
    monkeypatch.setattr(
        botocore.session, "get_session", lambda: Mock(create_client=lambda service: account)
    )
    monkeypatch.setattr(
        urllib.request,
        "urlopen",
        lambda request, timeout: responses.append(request) or io.BytesIO(),
    )
    context = Mock(
        invoked_function_arn="arn:aws:lambda", get_remaining_time_in_millis=lambda: milliseconds
    )
    event = {
        "RequestType": "Delete",
        "ResponseURL": "https://waits.example/",
        "PhysicalResourceId": "old-name",
    }
    handler({**KNOWN, **event, "ResourceProperties": {"BucketName": "new-name"}}, context)
    answer: dict[str, Any] = {
        **KNOWN,
        "PhysicalResourceId": "old-name",
        "Status": "FAILED" if reason else "SUCCESS",
    }
    if reason:
        answer["Reason"] = (
            f"bucket old-name was not emptied ({reason}): delete the stack again to go on"
        )
    assert json.loads(responses[0].data) == answer
    _, _, first, *calls = account.method_calls
    assert json.loads(first.kwargs["Policy"])["Statement"][0]["Effect"] == "Deny", (
        "no new object while the old ones go"
    )
    assert {call.kwargs["Bucket"] for call in (first, *calls)} == {"old-name"}
    deleted = [
        version["VersionId"]
        for call in account.delete_objects.mock_calls
        for version in call.kwargs["Delete"]["Objects"]
    ]
    assert deleted == ([] if milliseconds == 1 else ["1", "2"])


@pytest.mark.parametrize(
    "tags", [[{**GOES, "Value": "Retain"}], [{"Key": "team", "Value": "a"}], None]
)
def test_a_bucket_that_stays_keeps_its_objects(
    monkeypatch: pytest.MonkeyPatch, tags: list[dict[str, str]] | None
) -> None:
    """Also where synth could not see what becomes of the bucket, and where somebody took its
    tags.
    """
    account, responses = Mock(), []
    account.exceptions.NoSuchBucket, account.exceptions.ClientError = KeyError, ClientError
    account.describe_stacks.return_value = {"Stacks": [{"StackStatus": "DELETE_IN_PROGRESS"}]}
    account.get_bucket_tagging.return_value = {"TagSet": tags}
    account.list_object_versions.return_value = {}
    if tags is None:
        no_tags = {"Error": {"Code": "NoSuchTagSet"}}
        account.get_bucket_tagging.side_effect = ClientError(no_tags, "GetBucketTagging")
    monkeypatch.setattr(
        botocore.session, "get_session", lambda: Mock(create_client=lambda service: account)
    )
    monkeypatch.setattr(
        urllib.request,
        "urlopen",
        lambda request, timeout: responses.append(request) or io.BytesIO(),
    )
    event = {
        "RequestType": "Delete",
        "ResponseURL": "https://waits.example/",
        "PhysicalResourceId": "theirs",
    }
    context = Mock(invoked_function_arn="arn:aws:lambda")
    handler({**KNOWN, **event, "ResourceProperties": {"BucketName": "theirs"}}, context)
    assert json.loads(responses[0].data)["Status"] == "SUCCESS"
    assert not account.put_bucket_policy.called and not account.delete_objects.called

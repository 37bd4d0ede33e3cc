"""The emptier's handler: it answers CloudFormation in every case. (That it empties real versions is shown on the emulator.)"""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from constructs_lib.storage import bucket_emptier_handler

pytestmark = pytest.mark.slow

Answers = tuple[str, list[dict[str, Any]]]


@pytest.fixture
def cloudformation() -> Iterator[Answers]:
    """Where CloudFormation waits: its address, and what it was told."""
    told: list[dict[str, Any]] = []

    class Waiting(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Waiting)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/", told
    server.shutdown()
    thread.join()
    server.server_close()


def _event(url: str, kind: str, physical_id: str | None = None) -> dict[str, Any]:
    event = {
        "RequestType": kind,
        "ResponseURL": url,
        "StackId": "stack",
        "RequestId": "request",
        "LogicalResourceId": "Empty",
        "ResourceProperties": {"BucketName": "new-name"},
    }
    return {**event, "PhysicalResourceId": physical_id} if physical_id else event


def test_deleting_empties_the_bucket_it_was_made_for(cloudformation: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a replacement the properties name the new bucket: that one must not be touched."""
    url, told = cloudformation
    emptied: list[str] = []
    monkeypatch.setattr(bucket_emptier_handler, "stack_goes", lambda stack: stack == "stack")
    monkeypatch.setattr(bucket_emptier_handler, "empty", lambda bucket, _: emptied.append(bucket))
    bucket_emptier_handler.handler(_event(url, "Delete", "old-name"), None)
    assert emptied == ["old-name"]
    assert told[0]["Status"] == "SUCCESS"


def test_a_failure_is_answered_with_a_sentence(cloudformation: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence would hold the stack for an hour."""
    url, told = cloudformation

    def fails(*_: Any) -> None:
        raise TimeoutError("it holds more objects than 15 minutes can delete")

    monkeypatch.setattr(bucket_emptier_handler, "stack_goes", lambda stack: stack == "stack")
    monkeypatch.setattr(bucket_emptier_handler, "empty", fails)
    bucket_emptier_handler.handler(_event(url, "Delete", "big"), None)
    assert told[0]["Status"] == "FAILED"
    assert told[0]["Reason"] == (
        "bucket big was not emptied (it holds more objects than 15 minutes can delete): delete the stack again to go on"
    )
    assert {key: told[0][key] for key in ("StackId", "RequestId", "LogicalResourceId")} == {
        "StackId": "stack",
        "RequestId": "request",
        "LogicalResourceId": "Empty",
    }

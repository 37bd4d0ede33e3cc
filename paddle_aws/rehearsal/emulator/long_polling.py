"""Long polling: DescribeStacks answers once no operation on the stack is in progress.

Promises: cdk, which asks every five seconds, learns within 50 ms that a stack is finished. The
answer is MiniStack's own, only later, and always before a client times out. A Lambda function gets
its answer at once, because the stack itself may be waiting for the function.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any
from urllib.parse import parse_qs

from ministack.services import cloudformation

LONGEST_WAIT = 20.0
"""Seconds; clients time out after 60 or more."""


def apply() -> None:
    """Puts the wait in front of MiniStack's CloudFormation."""
    answer = cloudformation.handle_request

    async def answer_when_settled(
        method: str, path: str, headers: dict[str, str], body: bytes, query: dict[str, Any]
    ) -> Any:
        parameters = (
            parse_qs(body.decode(errors="replace"))
            if b"Action=DescribeStacks&" in body + b"&"
            else {}
        )
        name = parameters.get("StackName", [""])[0]
        deadline = time.monotonic() + LONGEST_WAIT
        # MiniStack's functions do not identify themselves, but they use bare botocore, which no
        # command-line client does.
        function = headers.get("user-agent", "").startswith("Botocore/")
        while name and not function and _in_progress(name) and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        return await answer(method, path, headers, body, query)

    cloudformation.handle_request = answer_when_settled


def _in_progress(name: str) -> bool:
    """Returns whether the stack with this name or ARN is being created, changed or deleted."""
    for stack in cloudformation._stacks.values():
        if name in (stack.get("StackName"), stack.get("StackId")):
            status = stack.get("StackStatus", "")
            return bool(status.endswith("_IN_PROGRESS") and status != "REVIEW_IN_PROGRESS")
    return False

"""PaddleJobs and their pods, as their operator writes them."""

import re
from collections.abc import Mapping
from typing import Any

from paddle_aws.operations.jobs.objects.object_fields import NOTICE_SECONDS, Phase, seconds_old

PADDLE_JOB = "batch.paddlepaddle.org/v1"
COMPONENTS = ("worker", "ps", "heter")
"""Components of a PaddleJob's pods."""
_PHASES: dict[str, Phase] = {"Running": "running", "Restarting": "running"}
_PHASES |= {"Completed": "done", "Succeed": "done", "Failed": "failed", "Terminated": "failed"}


def rank(name: str) -> int | None:
    """Returns the number that the operator gave a pod in its name."""
    number = re.search(r"-(\d+)$", name)
    return int(number[1]) if number else None


def waits_for_addresses(message: str) -> bool:
    """Returns whether a pod waits for the ConfigMap that the operator writes once every pod has an
    address, by an event's message.
    """
    return bool(re.search('configmap "[^"]+" not found', message))


def phase_of(job: Mapping[str, Any]) -> Phase:
    """Returns a PaddleJob's phase."""
    return _PHASES.get(str(job.get("status", {}).get("phase", "")), "waiting")


def waits_for_operator(job: Mapping[str, Any]) -> str:
    """Returns why a PaddleJob has no status; empty if it has one, or is new."""
    if job.get("status") or seconds_old(job) <= NOTICE_SECONDS:
        return ""
    return "the PaddleJob operator has not taken it up: does it run (docs/jobs.md)?"

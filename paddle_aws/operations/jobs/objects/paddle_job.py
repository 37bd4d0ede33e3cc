"""PaddleJobs and their pods, as their operator writes them."""

import re
from collections.abc import Mapping
from typing import Any

from paddle_aws.operations.jobs.objects.kind import JobPhase, Kind, Phase
from paddle_aws.operations.jobs.objects.object_fields import NOTICE_SECONDS, seconds_old

PADDLE_JOB = "batch.paddlepaddle.org/v1"
COMPONENTS = ("worker", "ps", "heter")
"""Components of a PaddleJob's pods."""
_PHASES: dict[str, Phase] = {
    "Completed": "done",
    "Succeed": "done",
    "Failed": "failed",
    "Terminated": "failed",
    "Running": "running",
    "Restarting": "running",
}


def rank(name: str) -> int | None:
    """Returns the number that the operator gave a pod in its name."""
    number = re.search(r"-(\d+)$", name)
    return int(number[1]) if number else None


def waits_for_addresses(message: str) -> bool:
    """Returns whether a pod waits for the ConfigMap that the operator writes once every pod has an
    address, by an event's message.
    """
    return bool(re.search('configmap "[^"]+" not found', message))


def _has_ended(job: Mapping[str, Any]) -> bool:
    return _PHASES.get(job.get("status", {}).get("phase", "")) in ("done", "failed")


def _read_phase(job: Mapping[str, Any], running: bool, refused: str) -> JobPhase:
    spec, status, reason = job.get("spec", {}), job.get("status", {}), refused
    if not status and seconds_old(job) > NOTICE_SECONDS:
        reason = "the PaddleJob operator has not taken it up: does it run (docs/jobs.md)?"
    return JobPhase(
        _PHASES.get(str(status.get("phase", "")), "waiting"),
        reason,
        status.get("completionTime"),
        spec.get("worker") or {},
        status.get("worker") or {},
    )


KIND = Kind(f"/apis/{PADDLE_JOB}", _has_ended, _read_phase, reports_refusals=False)

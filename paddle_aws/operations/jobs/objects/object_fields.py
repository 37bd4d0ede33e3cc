"""What a Kubernetes object says of itself: labels, conditions, times."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

Phase = Literal["waiting", "running", "suspended", "done", "failed", "unknown"]
"""Of what runs a job's pods."""
NOTICE_SECONDS = 10.0
"""Seconds within which an operator or a scheduler looks at a new object."""


def label(document: Mapping[str, Any], name: str) -> str:
    """Returns the value of a label; empty if there is none."""
    return str(document["metadata"].get("labels", {}).get(name, ""))


def creation_time(document: Mapping[str, Any]) -> str:
    """Returns when the object was created, as Kubernetes writes it."""
    return str(document["metadata"].get("creationTimestamp") or "")


def seconds_old(document: Mapping[str, Any]) -> float:
    """Returns the seconds since the object was created; 0 if its creation time is unknown."""
    created_at = moment(creation_time(document))
    return (datetime.now(UTC) - created_at).total_seconds() if created_at is not None else 0.0


def condition(
    document: Mapping[str, Any], kind: str, status: str = "True"
) -> Mapping[str, Any] | None:
    """Returns the condition of that kind and status; None if it has another status or is
    missing.
    """
    conditions: list[Mapping[str, Any]] = document.get("status", {}).get("conditions") or []
    wanted = {"type": kind, "status": status}.items()
    return next((entry for entry in conditions if wanted <= entry.items()), None)


def moment(text: object) -> datetime | None:
    """Parses a time as Kubernetes writes it; None if there is none."""
    return datetime.fromisoformat(text).astimezone(UTC) if isinstance(text, str) and text else None

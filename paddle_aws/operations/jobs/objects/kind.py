"""What runs a job's pods: a kind of object, and how to read its state."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Phase = Literal["waiting", "running", "suspended", "done", "failed", "unknown"]


@dataclass(frozen=True)
class JobPhase:
    """Whether an object waits, runs, is done or has failed, and why."""

    phase: Phase
    reason: str
    """Why it failed or waits, in Kubernetes' words; empty if there is nothing to say."""
    finished: object
    """When it ended, as Kubernetes writes it; None if it runs."""
    spec: Mapping[str, Any]
    """The part of its spec, and below of its status, that is about the pods that train."""
    status: Mapping[str, Any]


@dataclass(frozen=True)
class Kind:
    """A kind of object that runs pods."""

    group: str
    """The path of its API group."""
    has_ended: Callable[[Mapping[str, Any]], bool]
    read_phase: Callable[[Mapping[str, Any], bool, str], JobPhase]
    """Returns the phase of an object: (object, whether a pod runs, why its pods are refused)."""
    reports_refusals: bool
    """Whether events of the object say why its pods cannot be created."""

"""The training of a rehearsal, whatever its controller: the job to run, and the sentences about
it.
"""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddle_node.volume.job_folder import JobFolder

from paddle_aws.rehearsal.pods.job import JobResult, Watcher
from paddle_aws.rehearsal.pods.manifests import AnyJob
from paddle_aws.rehearsal.screen import Screen

RunJob = Callable[..., Coroutine[Any, Any, JobResult]]
"""Runs a job to its end: (job, host, addresses, *watchers, cancelled)."""


@dataclass(frozen=True)
class Training:
    """The training of a program that reports no passes."""

    job: AnyJob
    run: RunJob
    watcher: Callable[[Screen], Watcher]
    """Shows its pods on a screen."""
    ended: str
    """The sentence about its pods, once they succeeded."""
    log: Callable[[JobResult], Path]
    """Returns the log of trainer 0."""
    folder: JobFolder | None = None
    """The job's folder on the volume; None if no agent writes there."""
    differences: tuple[str, ...] = ()
    """A sentence for each difference from a cluster."""

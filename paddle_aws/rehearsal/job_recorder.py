"""Records a rehearsal's Jobs and pods as a cluster would report them, for `paddle-aws status` and
similar commands.
"""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

from paddle_node.contract import Variable

from k8s_charts.names import COMPONENT
from k8s_charts.spec import TrainingJob
from paddle_aws.operations.jobs.objects import job_objects
from paddle_aws.operations.jobs.objects.job_objects import JobState
from paddle_aws.operations.jobs.objects.object_fields import Phase
from paddle_aws.operations.jobs.objects.pod_state import PodState
from paddle_aws.operations.jobs.rehearsal_backend import RehearsalRecord, unstarted_job
from paddle_aws.operations.jobs.watch.job_view import JobView
from paddle_aws.rehearsal.pods.job import (
    CANCELLED,
    ENDED,
    POLL_INTERVAL,
    JobResult,
    Watcher,
    last_lines,
)
from paddle_aws.rehearsal.pods.manifests import AnyJob
from paddle_aws.rehearsal.pods.pod import Pod, PodEnd

_PARTS = {"data": "data", "environment": "environment"}
"""The view's field for the Job of each component; `training` for all others."""


class JobRecorder(Watcher):
    """Records one rehearsal. Each change replaces the record on disk as a whole."""

    def __init__(self, job: TrainingJob, folder: Path, interpreter: Path, run: str) -> None:
        """`run` is the rehearsal's id, which its lock names."""
        root = PurePosixPath(job.volume.folder or "", job.name)
        view = JobView(job.name, job.namespace, None, None, ())
        self._folder = folder
        self._record = RehearsalRecord(view, str(root), str(interpreter), None, run)
        self._pods: dict[str, Pod] = {}
        self._job: JobState | None = None
        self._part = "training"
        self._write()

    def begin(self, job: AnyJob) -> None:
        """Records that a Job or PaddleJob was created."""
        self._pods.clear()
        self._part = _PARTS.get(job.template.labels.get(COMPONENT, ""), "training")
        environment = job.template.containers[0].environment
        values = {entry.name: entry.value or "" for entry in environment}
        processes = job_objects.processes(values.get(Variable.PROCESSES, ""))
        started = unstarted_job(job.name, "running", "")
        self._job = replace(started, completions=job.completions, processes=processes)
        self._write()

    def pod_started(self, pod: Pod, index: int | None) -> None:
        self._pods[pod.facts.name] = pod
        component, rank = _component_and_rank(pod, index)
        created = datetime.now(UTC).isoformat()
        self._put(PodState(pod.facts.name, component, rank, "running", "", "", None, created))
        self._count(active=1)

    def pod_ended(self, pod: Pod, index: int | None, end: PodEnd, verdict: str) -> None:
        del self._pods[pod.facts.name]
        container = next(iter(end.codes), "") if end.succeeded else end.failed_container
        code = end.codes.get(container)
        message = last_lines(end.logs[container], 1) if container else ""
        phase, reason, lost = "done", "", False
        if not end.succeeded:
            phase, reason, lost = "failed", f"exit code {code}: {message}", verdict != ENDED
            # One that fails by itself as its Job ends says more than its Job.
            reason = reason if lost or end.is_own else verdict
        (state,) = (state for state in self._record.view.pods if state.name == pod.facts.name)
        state = replace(state, phase=phase, reason=reason, code=code, message=message)
        self._put(replace(state, restarts=pod.restarts))
        self._count(active=-1, succeeded=int(end.succeeded), failed=int(lost))

    async def follow(self) -> None:
        """Records how often containers were restarted in their pods."""
        while True:
            await asyncio.sleep(POLL_INTERVAL)
            for state in self._record.view.pods:
                pod = self._pods.get(state.name)
                if pod is not None and pod.restarts != state.restarts:
                    self._put(replace(state, restarts=pod.restarts))
                    self._write()

    def end(self, result: JobResult) -> None:
        """Records how the Job ended."""
        reason = "it was cancelled" if result.reason == CANCELLED else result.reason
        self._end_job("" if result.succeeded else reason)

    def close(self, reason: str = "") -> None:
        """Records the end of the rehearsal; `reason`: why its training ended early, or never
        began.
        """
        if self._job is not None and self._job.phase == "running":
            self._end_job(reason)
        if reason and (self._job is None or (self._part in _PARTS and self._job.phase == "done")):
            self._part = "training"
            self._job = unstarted_job(self._record.view.name, "failed", reason)
        self._record = replace(self._record, ended=datetime.now(UTC))
        self._write()

    def _count(self, active: int, succeeded: int = 0, failed: int = 0) -> None:
        """Adds to the Job's numbers of pods."""
        if (job := self._job) is not None:
            numbers = {"active": active, "succeeded": succeeded, "failed": failed}
            sums = {name: getattr(job, name) + number for name, number in numbers.items()}
            self._job = replace(job, **sums)
        self._write()

    def _end_job(self, reason: str) -> None:
        if self._job is not None:
            phase: Phase = "failed" if reason else "done"
            finished = datetime.now(UTC)
            self._job = replace(self._job, phase=phase, reason=reason, active=0, finished=finished)
        pods = tuple(
            replace(pod, phase="failed", reason=ENDED) if pod.phase == "running" else pod
            for pod in self._record.view.pods
        )
        self._record = replace(self._record, view=replace(self._record.view, pods=pods))
        self._write()

    def _put(self, state: PodState) -> None:
        pods = {pod.name: pod for pod in self._record.view.pods} | {state.name: state}
        order = sorted(pods.values(), key=lambda pod: (pod.component, pod.rank or 0, pod.created))
        view = replace(self._record.view, pods=tuple(order))
        self._record = replace(self._record, view=view)

    def _write(self) -> None:
        if self._job is not None:
            fields: dict[str, Any] = {self._part: self._job}
            self._record = replace(self._record, view=replace(self._record.view, **fields))
        self._record.write(self._folder)


def _component_and_rank(pod: Pod, index: int | None) -> tuple[str, int | None]:
    if (component := pod.template.labels.get(COMPONENT)) and index is not None:
        return component, index
    *_, role, number = pod.facts.name.rsplit("-", 2)
    if role in ("ps", "worker") and number.isdigit():
        return role, int(number)
    return component or "", None

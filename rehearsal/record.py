"""What a rehearsal records for `paddle-aws status` and similar commands: its Jobs and pods, as a
cluster would report them.
"""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from k8s_charts.names import COMPONENT
from k8s_charts.spec import TrainingJob
from operations.cluster.pod_words import PodState
from operations.jobs.job_objects import JobState
from operations.jobs.job_view import JobView
from operations.jobs.rehearsal_backend import Record
from rehearsal.pods.job import JobResult, last_lines
from rehearsal.pods.manifests import Job, PaddleJob
from rehearsal.pods.pod import PodEnd


class Recorder:
    """Records one rehearsal. The record is on disk after each Job, however the Job ended."""

    def __init__(self, job: TrainingJob, folder: Path, interpreter: Path) -> None:
        root = PurePosixPath(job.volume.folder or "", job.name)
        view = JobView(job.name, job.namespace, None, None, ())
        self._folder, self._record = (
            folder,
            Record(view, str(root), str(interpreter), datetime.now(UTC)),
        )
        self._record.write(folder)  # For commands that run before the first Job ends.

    def ended(self, job: Job | PaddleJob, result: JobResult, began: datetime) -> None:
        """Records the end of a Job or PaddleJob."""
        now, view = datetime.now(UTC), self._record.view
        pods = sorted(
            (_pod(job, end, began) for end in result.ended),
            key=lambda pod: (pod.component, pod.rank or 0),
        )
        succeeded = sum(end.succeeded for end in result.ended)
        state = JobState(
            object=job.name,
            phase="done" if result.succeeded else "failed",
            reason="" if result.succeeded else result.reason,
            wanted=job.completions
            if isinstance(job, Job)
            else sum(role.count for role in job.roles.values()),
            active=0,
            succeeded=succeeded,
            failed=len(pods) - succeeded,
            created=began,
            finished=now,
            image="",
        )
        of_data = any(pod.component == "data" for pod in pods)
        view = replace(view, data=state) if of_data else replace(view, training=state)
        self._record = replace(
            self._record, view=replace(view, pods=(*view.pods, *pods)), ended=now
        )
        self._record.write(self._folder)


def _pod(job: Job | PaddleJob, end: PodEnd, began: datetime) -> PodState:
    if isinstance(job, Job):
        component = job.template.labels[COMPONENT]
        rank = int(end.name.removeprefix(f"{job.name}-").partition("-")[0]) if job.indexed else None
    else:
        *_, component, number = end.name.rsplit("-", 2)
        rank = int(number)
    name = next(iter(end.codes)) if end.succeeded else end.failed_container
    code, said = end.codes[name], last_lines(end.logs[name], 1)
    phase, reason = ("done", "") if end.succeeded else ("failed", f"exit code {code}: {said}")
    return PodState(end.name, component, rank, phase, reason, "", code, began.isoformat(), said)

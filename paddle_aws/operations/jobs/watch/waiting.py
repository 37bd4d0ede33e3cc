"""Waits for a job's end and reports what happens; the wait never ends the job.

The job is polled every two seconds (ten for a thousand pods): a watch could be cut off, or forget
what it missed. The wait outlasts a server's outage of minutes. A hundred pods that wait for the
same reason make one line, and no line is repeated.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

from paddle_aws.operations.cluster.cluster_api import REPORT_AFTER, ClusterApi, Outage
from paddle_aws.operations.errors import Failed, JobFailed
from paddle_aws.operations.jobs.objects.object_fields import seconds_old
from paddle_aws.operations.jobs.objects.pod_state import PodState
from paddle_aws.operations.jobs.watch.job_view import JobView, poll_job

POLL_INTERVAL, PODS_A_SECOND = 2.0, 100
"""Seconds between two polls (longer above 200 pods), and the number of pods that the API server
lists per second.
"""


class Follower:
    """Polls a job, and reports what is new."""

    def __init__(self, cluster: ClusterApi, name: str, namespace: str) -> None:
        self.cluster, self.name, self.namespace = cluster, name, namespace
        self._reported: dict[str, tuple[str, str]] = {}

    def poll(self) -> Iterator[JobView]:
        """Yields the job every two seconds until it, or its training, is gone. Raises errors that
        waiting does not fix.
        """
        outage, began, seen = Outage(self.cluster), False, None
        while True:
            try:
                seen = poll_job(self.cluster, self.name, self.namespace)
            except Exception as error:
                outage.wait(error)
                if seen is not None:
                    yield seen  # The caller has its own deadline.
                continue
            outage.end()
            split = seen.data is not None and not seen.data.ended
            if seen.gone or (began and seen.training is None and not split):
                return
            began = seen.training is not None
            yield seen
            time.sleep(max(POLL_INTERVAL, len(seen.pods) / PODS_A_SECOND))

    def wait_until(
        self, enough: Callable[[JobView], bool], seconds: float | None = None
    ) -> JobView:
        """Follows an existing job until `enough` holds or `seconds` are over, and returns its last
        view.

        Raises Failed if somebody deletes or cancels it.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        for seen in self.poll():
            self.tell(seen)
            if enough(seen) or (deadline is not None and time.monotonic() >= deadline):
                return seen
        raise Failed(f"job {self.name} was deleted while it was waited for")

    def tell(self, view: JobView, only_what_waits: bool = False) -> None:
        """Reports what changed since the last call; `only_what_waits` is for use beside logs, which
        show the rest themselves.
        """
        new = []
        for pod in view.pods:
            if pod.component == "reader" or (only_what_waits and pod.phase != "waiting"):
                continue
            age = seconds_old({"metadata": {"creationTimestamp": pod.created}})
            early = pod.phase == "starting" and age < REPORT_AFTER
            if not early and self._is_new(pod.name, pod.phase, pod.reason):
                new.append(pod)
        for line in describe_pods(new):
            self.cluster.say(line)
        if (why := view.without_environment) and self._is_new("environment", "failed", why):
            self.cluster.say(f"training waits: {why}")
        for word, job in (("the data split", view.data), ("training", view.training)):
            waits = job is not None and job.phase in ("waiting", "running") and job.reason
            if waits and self._is_new(word, "waiting", waits):
                self.cluster.say(f"{word} waits: {waits}")

    def _is_new(self, name: str, phase: str, reason: str) -> bool:
        earlier, self._reported[name] = self._reported.get(name), (phase, reason)
        return earlier != (phase, reason)


def describe_pods(states: Iterable[PodState]) -> list[str]:
    """Returns one line for all pods of the same state: `trainer 0-2 waiting: no node can take
    it`.
    """

    def same(state: PodState) -> tuple[str, str, str]:
        return (state.component, state.phase, state.reason)

    lines_ = []
    in_order = sorted(states, key=lambda state: (*same(state), state.rank or 0))
    for (component, phase, reason), group in groupby(in_order, key=same):
        ranks = [state.rank for state in group if state.rank is not None]
        who = f"{component} {spans(ranks)}" if ranks else component
        lines_.append(f"{who} {phase}" + (f": {reason}" if reason else ""))
    return lines_


def spans(ranks: Iterable[int]) -> str:
    """Writes 0, 1, 2, 5 as 0-2,5."""
    # Consecutive ranks are equally far from their places in the list.
    runs = [
        [rank for _, rank in run]
        for _, run in groupby(enumerate(sorted(set(ranks))), lambda pair: pair[1] - pair[0])
    ]
    return ",".join("-".join(dict.fromkeys((str(run[0]), str(run[-1])))) for run in runs)


def has_training_ended(job: JobView) -> bool:
    """Returns whether the training has ended, or a Job that it needs has failed before it."""
    if job.training is not None:
        return job.training.ended
    return job.unbuilt or (job.data is not None and job.data.phase == "failed")


def has_data_ended(job: JobView) -> bool:
    """Returns whether the data job has ended, or cannot help any more."""
    return job.unbuilt or (job.data is not None and job.data.ended)


ENDS: dict[str, Callable[[JobView], bool]] = {
    "environment": lambda job: job.environment is not None and job.environment.ended,
    "data": has_data_ended,
    "training": has_training_ended,
}
"""When a part of a job has ended."""


def is_settled(job: JobView) -> bool:
    """Returns whether every pod runs, or the reason why it does not is known."""
    training = job.training
    if has_training_ended(job) or (
        training is not None and training.phase == "waiting" and training.reason
    ):
        return True
    pods = [pod for pod in job.pods if pod.part == "training"]
    pods = [pod for pod in pods if pod.phase not in ("failed", "ending")]
    return len(pods) >= (training.completions if training else 1) and all(
        pod.phase in ("running", "done") or (pod.phase == "waiting" and pod.reason) for pod in pods
    )


def require_success(view: JobView) -> str:
    """Returns in one sentence how the job ended. Raises JobFailed with that sentence if it
    failed.
    """
    job = view.deciding
    if job is None:
        raise Failed(f"job {view.name} is not there")
    if not job.ended:
        raise Failed(f"job {view.name} was deleted or cancelled before it ended")
    if job.phase == "failed":
        what = "training" if view.training is not None else "the data split"
        what = "its environment" if view.unbuilt else what
        raise JobFailed(f"job {view.name}: {what} failed: {view.reason or 'no reason given'}")
    return f"job {view.name} is {job.phase}: {job.succeeded} of {job.completions} pods succeeded"

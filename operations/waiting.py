"""Waiting for a job's end, with what happens meanwhile told in lines.

Promises: the wait survives cut watches, a server that is away for minutes and an expired token; it ends with the job,
never before, and never ends the job.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from operations.cluster import Cluster
from operations.errors import Failed, Unreachable
from operations.job_objects import JobState, collections, of_newest, runs
from operations.job_view import JobView, make, view
from operations.narrator import Narrator
from operations.pod_words import pod_state, states
from operations.refused_pods import refusals
from operations.watching import State, follow

GLANCE = 2.0
"""Seconds between two looks at pods that do not start: their reasons are events, which no watch of ours brings."""


def until(
    cluster: Cluster,
    name: str,
    namespace: str,
    enough: Callable[[JobView], bool],
    *,
    narrator: Narrator,
    operator: bool = False,
    seconds: float | None = None,
) -> JobView:
    """Follows a job that is there until `enough` or until `seconds` are over; returns its last view.

    Raises Failed when all objects of the job vanish: somebody deleted it.
    """
    followed = collections(name, namespace, operator)
    deadline = None if seconds is None else time.monotonic() + seconds
    for found in follow(cluster, followed, every=min(GLANCE, seconds or GLANCE)):
        if not runs(found):
            raise Failed(f"job {name} was deleted while it was waited for")
        current = seen(cluster, name, namespace, found)
        _tell(narrator, current)
        if enough(current):
            # Jobs and pods come by two watches, one of which may lag: the last word is read at once.
            current = view(cluster, name, namespace)
            _tell(narrator, current)
            return current
        if deadline is not None and time.monotonic() >= deadline:
            return current
    raise AssertionError("unreachable")


def seen(cluster: Cluster, name: str, namespace: str, found: State) -> JobView:
    """A job as its followed collections show it; asks for what is no part of them: why pods do not start, or are not made.

    A server that does not answer that is away for the watches as well, which wait for it.
    """
    pods = of_newest(found["jobs"].values(), found["pods"].values())
    try:
        refused, shown = refusals(cluster, namespace, found["jobs"].values(), pods), states(cluster, namespace, pods)
    except Unreachable:
        refused, shown = {}, [pod_state(pod) for pod in pods]
    return make(name, namespace, runs(found), shown, refused)


def tell_what_waits(narrator: Narrator, current: JobView) -> None:
    """Beside logs, which tell the rest themselves."""
    _tell(narrator, replace(current, pods=tuple(pod for pod in current.pods if pod.phase == "waiting")))


def _tell(narrator: Narrator, current: JobView) -> None:
    narrator.tell(pod for pod in current.pods if pod.component != "reader")
    for word, job in (("the data split", current.data), ("training", current.training)):
        if job is not None and job.phase in ("waiting", "running") and job.reason:
            narrator.tell_job(word, job.reason)


def training_ended(job: JobView) -> bool:
    """Whether the training, or the data job that it needs, has come to its end."""
    if job.training is not None:
        return job.training.ended
    return job.data is not None and job.data.phase == "failed"


def data_ended(job: JobView) -> bool:
    """Whether the data job has come to its end."""
    return job.data is not None and job.data.ended


def settled(job: JobView) -> bool:
    """Whether every pod runs or a reason is known why it does not."""
    if training_ended(job):
        return True
    if job.training is not None and job.training.phase == "waiting" and job.training.reason:
        return True
    pods = [pod for pod in job.pods if pod.component != "data" and pod.phase not in ("failed", "ending")]
    wanted = job.training.wanted if job.training else 1
    return len(pods) >= wanted and all(
        pod.phase in ("running", "done") or (pod.phase == "waiting" and pod.reason) for pod in pods
    )


def verdict(found: JobView) -> str:
    """How it ended, in one sentence; raises Failed with it where it failed."""
    job: JobState | None = found.training or found.data
    if job is None:
        raise Failed(f"job {found.name} is not there")
    if job.phase == "failed":
        what = "training" if found.training is not None else "the data split"
        pods = [pod for pod in found.pods if pod.phase == "failed" and (component_of(pod.component) == what)]
        culprit = f"; {pods[-1].who}: {pods[-1].reason}" if pods else ""
        raise Failed(f"job {found.name}: {what} failed: {job.reason or 'no reason given'}{culprit}")
    return f"job {found.name} is {job.phase}: {job.succeeded} of {job.wanted} pods succeeded"


def component_of(name: str) -> str:
    """What a pod of that component works at."""
    return "the data split" if name == "data" else "training"

"""The record of a pod (who it is, its phase, how it ended), all pods of a job, and the pod that
best explains a failure. The words of a phase are in pod_phase.py.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Any

from paddle_node.contract import ExitCode, Variable

from paddle_aws.operations.cluster import reasons
from paddle_aws.operations.cluster.cluster_api import ClusterApi, Object
from paddle_aws.operations.cluster.reasons import shorten
from paddle_aws.operations.jobs.objects import paddle_job
from paddle_aws.operations.jobs.objects.job_objects import (
    INDEX,
    JOB_NAME,
    component,
    has_ended,
    is_paddle_job,
    variable,
)
from paddle_aws.operations.jobs.objects.object_fields import condition, creation_time, label
from paddle_aws.operations.jobs.objects.pod_phase import (
    OUT_OF_MEMORY,
    containers_of,
    end_of,
    last_words,
    phase_of,
    restarts,
    time_of,
)

_FIRST = re.compile(r"\b(?:trainer|pserver) (\d+)")
"""The rank that an agent's sentence names first: its process ended first."""
NOT_TRAINING = ("environment", "data", "reader")
"""Components of pods that work before the training, or beside it."""


@dataclass(frozen=True)
class PodState:
    """One pod in words."""

    name: str
    component: str
    rank: int | None
    """Trainer id, or index among the data job's pods; None if the pod has none."""
    phase: str
    """waiting, starting, running, ending, done or failed."""
    reason: str
    """Why it waits or failed; empty if there is nothing to say."""
    node: str
    code: int | None
    """Exit code of an ended container."""
    created: str
    message: str = ""
    """The last line of its container; empty if it was killed without writing one."""
    restarts: int = 0
    """How often its containers were restarted in place."""

    @property
    def failure(self) -> str:
        """The pod that failed, its node, and the reason."""
        return f"{self.who}{' on ' if self.node else ''}{self.node}: {self.reason}"

    @property
    def part(self) -> str:
        """Which part of its job it works for: environment, data, reader or training."""
        return self.component if self.component in NOT_TRAINING else "training"

    @property
    def who(self) -> str:
        """Its short name on the screen."""
        return self.component + ("" if self.rank is None else f" {self.rank}")


def pod_state(
    pod: Mapping[str, Any], events: Iterable[Mapping[str, Any]] = (), *, aws: bool = False
) -> PodState:
    """Puts a pod into words; `events` are those of this pod, if they are known. `aws`: the cluster
    runs in AWS.
    """
    metadata, containers = pod["metadata"], containers_of(pod)
    phase = phase_of(pod, list(events), aws=aws)
    rank = metadata.get("annotations", {}).get(INDEX) or label(pod, INDEX)
    operated = component(pod) in paddle_job.COMPONENTS
    numbered = paddle_job.rank(metadata["name"]) if operated else None
    return PodState(
        name=metadata["name"],
        component=component(pod),
        rank=int(rank) if rank else numbered,
        phase=phase.word,
        reason=phase.reason,
        node=str(pod.get("spec", {}).get("nodeName", "")),
        code=phase.code,
        created=creation_time(pod),
        message=last_words(end_of(containers), component(pod)),
        restarts=restarts(containers),
    )


def pod_states(
    pods: Iterable[Object],
    events: Mapping[str, list[Object]] | None = None,
    *,
    aws: bool = False,
) -> list[PodState]:
    """Puts all pods into words, in order of component, rank and age; `events` by the pods' names.

    Trainers that find each other by the pod list are ranked by their addresses, once all of them
    have one.
    """
    pods = list(pods)
    states_ = {
        (name := pod["metadata"]["name"]): pod_state(pod, (events or {}).get(name, ()), aws=aws)
        for pod in pods
    }
    trainers = [pod for pod in pods if component(pod) == "trainer"]
    unranked = {
        name: ip_address(pod["status"]["podIP"])
        for pod in trainers
        if (trainer_state := states_[name := pod["metadata"]["name"]]).rank is None
        if trainer_state.phase not in ("failed", "ending") and pod.get("status", {}).get("podIP")
    }
    if unranked and str(len(unranked)) == variable(trainers[0]["spec"], Variable.TRAINERS):
        by_address = sorted(unranked, key=lambda it: (unranked[it].version, int(unranked[it])))
        states_ |= {name: replace(states_[name], rank=rank) for rank, name in enumerate(by_address)}
    return sorted(
        states_.values(), key=lambda state: (state.component, state.rank or 0, state.created)
    )


def culprit(pods: Iterable[PodState]) -> PodState | None:
    """Returns the failed pod that explains the failure best: a pod that ran out of memory, else a
    pod with a message that failed on its own and not with others, or whose trainer the message
    names first. Of several, it is the newest.
    """

    def tells(pod: PodState) -> tuple[bool, bool, bool, bool, bool, str]:
        starved, failed = OUT_OF_MEMORY in pod.reason, pod.code not in (None, ExitCode.TERMINATED)
        alone = pod.code != ExitCode.ATTEMPTS_EXHAUSTED
        first = _FIRST.search(pod.message)
        named = first is not None and first[1] == str(pod.rank)
        return starved, bool(pod.message), failed, named, alone, pod.created

    return max((pod for pod in pods if pod.phase == "failed"), key=tells, default=None)


def states(
    cluster: ClusterApi, namespace: str, pods: Iterable[Object], jobs: Iterable[Object] = ()
) -> tuple[list[PodState], dict[str, str]]:
    """Returns the pods in words and, by a Job's name, why its pods are refused; asks for events
    only if either needs them.
    """
    pods = list(pods)
    # No event of a PaddleJob says why its pods cannot be created.
    lacking = [
        job["metadata"]["name"] for job in jobs if not is_paddle_job(job) and _lacks(job, pods)
    ]
    events: dict[str, list[Object]] = {}
    pending = [pod for pod in pods if pod.get("status", {}).get("phase") in (None, "Pending")]
    asked = ["type=Warning"] if lacking or pending else []
    # Karpenter's event about the node that it makes is not a warning.
    if any(condition(pod, "PodScheduled", "False") for pod in pending):
        asked.append("reason=Nominated")
    for fields in asked:
        for event in cluster.items(f"/api/v1/namespaces/{namespace}/events", fields=fields):
            events.setdefault(event.get("involvedObject", {}).get("name", ""), []).append(event)
    refused = {}
    for name in lacking:
        # A refusal that is older than the newest pod no longer holds.
        ages = (creation_time(pod) for pod in pods if label(pod, JOB_NAME) == name)
        failures = [
            event for event in events.get(name, ()) if event.get("reason") == "FailedCreate"
        ]
        last = max(failures, key=time_of, default=None)
        if last is not None and time_of(last) >= max(ages, default=""):
            refused[name] = refusal(str(last.get("message", "")))
    return pod_states(pods, events, aws=cluster.aws), refused


def _lacks(job: Mapping[str, Any], pods: Iterable[Mapping[str, Any]]) -> bool:
    spec = job.get("spec", {})
    if has_ended(job) or spec.get("suspend"):
        return False
    mine = [pod for pod in pods if label(pod, JOB_NAME) == job["metadata"]["name"]]
    there = [pod for pod in mine if pod.get("status", {}).get("phase") != "Failed"]
    return len(there) < int(spec.get("parallelism") or 1)


def refusal(message: str) -> str:
    """Returns the API server's refusal in words, and what to do about it."""
    text = message.removeprefix("Error creating: ")
    return reasons.first_sentence("refused", text, f"its pods cannot be created: {shorten(text)}")

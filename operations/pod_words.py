"""A pod's state in plain words: who it is, what it does, and what keeps it from doing it.

Promises: a Pending pod always gets a reason and, where one is known, what to do; the words are made from what the API
server already knows (conditions, container states, events), so they come within seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from paddle_node.contract import ExitCode

from operations import reasons
from operations.cluster import Cluster, Object
from operations.job_objects import INDEX, JOB_NAME, component, created, ended
from operations.reasons import short

BROKEN_PULLS = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable")
MOUNT_TROUBLE = ("FailedMount", "FailedAttachVolume", "FailedBinding")
SANDBOX_TROUBLE = ("FailedCreatePodSandBox",)


@dataclass(frozen=True)
class PodState:
    """One pod in words."""

    name: str
    component: str
    rank: int | None
    """Trainer id, or index among the data job's pods; None where the pod has none."""
    phase: str
    """waiting, starting, running, done or failed."""
    reason: str
    """Why it waits or failed; empty where there is nothing to say."""
    node: str
    code: int | None
    """Exit code of an ended container."""
    created: str
    message: str = ""
    """The last line of what its container said of its end."""
    restarts: int = 0
    """How often its containers were started again in place."""

    @property
    def failure(self) -> str:
        """Who failed, where, and why."""
        return f"{self.who}{' on ' if self.node else ''}{self.node}: {self.reason}"

    @property
    def who(self) -> str:
        """Its short name on the screen."""
        return self.component + ("" if self.rank is None else f" {self.rank}")


def pod_state(pod: Mapping[str, Any], events: Iterable[Mapping[str, Any]] = ()) -> PodState:
    """A pod in words; `events` are those of this pod, where they are known."""
    metadata = pod["metadata"]
    phase, reason, code = _phase(pod, list(events))
    rank = metadata.get("annotations", {}).get(INDEX, metadata.get("labels", {}).get(INDEX))
    return PodState(
        name=metadata["name"],
        component=component(pod),
        rank=int(rank) if rank is not None else _operators_index(metadata["name"], component(pod)),
        phase=phase,
        reason=reason,
        node=str(pod.get("spec", {}).get("nodeName", "")),
        code=code,
        created=str(metadata.get("creationTimestamp", "")),
        message=last_line(str(_ended(_containers(pod)).get("message") or "")),
        restarts=_restarts(_containers(pod)),
    )


def culprit(pods: Iterable[PodState]) -> PodState | None:
    """Of the failed pods the newest that tells why: by a message, and of its own program before those that ended with it."""

    def tells(pod: PodState) -> tuple[bool, bool, bool, str]:
        failed = pod.code not in (None, ExitCode.TERMINATED)
        return bool(pod.message), failed, pod.code != ExitCode.ATTEMPTS_EXHAUSTED, pod.created

    return max((pod for pod in pods if pod.phase == "failed"), key=tells, default=None)


def states(cluster: Cluster, namespace: str, pods: Iterable[Object]) -> list[PodState]:
    """All pods in words, in order of component, rank and age; asks for events where a pod does not start."""
    pods = list(pods)
    stuck = [pod["metadata"]["name"] for pod in pods if _wants_events(pod)]
    events: dict[str, list[Object]] = {name: [] for name in stuck}
    if stuck:
        for event in cluster.items(f"/api/v1/namespaces/{namespace}/events", fields="involvedObject.kind=Pod"):
            name = event.get("involvedObject", {}).get("name", "")
            if name in events:
                events[name].append(event)
    found = [pod_state(pod, events.get(pod["metadata"]["name"], ())) for pod in pods]
    return sorted(found, key=lambda state: (state.component, state.rank or 0, state.created))


def refusals(cluster: Cluster, namespace: str, jobs: Iterable[Object], pods: Iterable[Object]) -> dict[str, str]:
    """Of each Job that lacks pods and whose pods are refused: its name and the reason in words."""
    pods = list(pods)
    lacking = [job["metadata"]["name"] for job in jobs if job.get("kind") != "PaddleJob" and _lacks(job, pods)]
    if not lacking:
        return {}
    newest: dict[str, Mapping[str, Any]] = {}
    # A refusal from before the newest pod is over.
    since = {name: max((created(pod) for pod in pods if _job(pod) == name), default="") for name in lacking}
    for event in cluster.items(f"/api/v1/namespaces/{namespace}/events", fields="involvedObject.kind=Job,reason=FailedCreate"):
        name = event.get("involvedObject", {}).get("name", "")
        if name in lacking and _when(event) >= max(_when(newest.get(name, {})), since[name]):
            newest[name] = event
    return {name: refusal(str(event.get("message", ""))) for name, event in newest.items()}


def _lacks(job: Mapping[str, Any], pods: Iterable[Mapping[str, Any]]) -> bool:
    spec = job.get("spec", {})
    if ended(job) or spec.get("suspend"):
        return False
    mine = [pod for pod in pods if _job(pod) == job["metadata"]["name"]]
    there = [pod for pod in mine if pod.get("status", {}).get("phase") != "Failed"]
    return len(there) < int(spec.get("parallelism") or 1)


def _job(pod: Mapping[str, Any]) -> str:
    return str(pod["metadata"].get("labels", {}).get(JOB_NAME, ""))


def _when(event: Mapping[str, Any]) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")


def refusal(message: str) -> str:
    """The API server's refusal, and what to do about it."""
    text = message.removeprefix("Error creating: ")
    return reasons.first("refused", text, f"its pods cannot be made: {short(text)}")


def _operators_index(name: str, of_component: str) -> int | None:
    """The PaddleJob operator numbers its pods in their names."""
    match = re.search(r"-(worker|ps|heter)-(\d+)$", name)
    return int(match[2]) if match and of_component in ("worker", "ps", "heter") else None


def _wants_events(pod: Mapping[str, Any]) -> bool:
    status = pod.get("status", {})
    return status.get("phase") in (None, "Pending") and bool(pod.get("spec", {}).get("nodeName"))


def _phase(pod: Mapping[str, Any], events: list[Mapping[str, Any]]) -> tuple[str, str, int | None]:
    status = pod.get("status", {})
    phase = status.get("phase", "Pending")
    containers = _containers(pod)
    if phase == "Succeeded":
        return "done", "", 0
    if phase == "Failed":
        return ("failed", *_failure(status, containers))
    if pod["metadata"].get("deletionTimestamp"):
        return "ending", "", None
    if phase == "Running":
        return "running", _restarted(containers), None
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            if condition.get("reason") == "SchedulingGated":
                return "waiting", "its queue has not let it in yet", None
            return "waiting", unschedulable(str(condition.get("message", ""))), None
    for container in containers:
        waiting = container.get("state", {}).get("waiting") or {}
        if waiting.get("reason") in BROKEN_PULLS:
            return "waiting", image_trouble(str(container.get("image", "")), waiting), None
        if waiting.get("reason") in ("CreateContainerConfigError", "CreateContainerError", "RunContainerError"):
            return "waiting", f"its container cannot be made: {waiting.get('message', waiting['reason'])}", None
    trouble = [event for event in events if event.get("reason") in (*MOUNT_TROUBLE, *SANDBOX_TROUBLE)]
    if trouble:
        last = max(trouble, key=_when)
        if last.get("reason") in SANDBOX_TROUBLE:
            return "waiting", f"its node cannot give it a network: {short(str(last.get('message', '')))}", None
        return "waiting", mount_trouble(str(last.get("message", ""))), None
    if not pod.get("spec", {}).get("nodeName"):
        return "starting", "no node is chosen yet", None
    return "starting", "its image is being pulled and its volume mounted", None


def unschedulable(message: str) -> str:
    """The scheduler's verdict in words, and what to do about it."""
    if not message:
        return "no node can take it, and the scheduler does not say why yet"
    causes = reasons.every("no_room", message) or [short(message)]
    return reasons.first("not_scheduled", message, f"no node can take it: {'; '.join(causes)}")


def image_trouble(image: str, waiting: Mapping[str, Any]) -> str:
    """Why an image cannot be pulled."""
    message = str(waiting.get("message", ""))
    otherwise = f"image {image} cannot be pulled" + (f": {short(message)}" if message else "")
    return reasons.first("image", f"{waiting.get('reason')}: {message}", otherwise, image=image)


def mount_trouble(message: str) -> str:
    """Why a volume cannot be mounted."""
    return reasons.first("mount", message, f"its volume cannot be mounted: {short(message)}")


def _failure(status: Mapping[str, Any], containers: list[Mapping[str, Any]]) -> tuple[str, int | None]:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            return (
                f"its node was taken away ({condition.get('reason', 'disruption')}): it is replaced without costing a retry",
                None,
            )
    if ended := _ended(containers):
        message = "" if ended.get("reason") == "OOMKilled" else last_line(str(ended.get("message") or ""))
        return ": ".join(filter(None, (_why(ended), message))), int(ended["exitCode"])
    if status.get("reason") == "Evicted":
        return f"its node evicted it: {short(str(status.get('message', '')))}", None
    return short(str(status.get("message") or status.get("reason") or "it failed without a word")), None


def _containers(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    status = pod.get("status", {})
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _ended(containers: Iterable[Mapping[str, Any]], when: str = "state") -> Mapping[str, Any]:
    """How the first container ended that failed; empty: none did."""
    ends = [(container.get(when) or {}).get("terminated") or {} for container in containers]
    return next((end for end in ends if end.get("exitCode")), {})


def _restarts(containers: Iterable[Mapping[str, Any]]) -> int:
    return sum(int(one.get("restartCount") or 0) for one in containers)


def _restarted(containers: list[Mapping[str, Any]]) -> str:
    count, last = _restarts(containers), _ended(containers, "lastState")
    return f"restarted in place {count} time{'s' * (count > 1)}, last after {_why(last)}" if count and last else ""


def _why(ended: Mapping[str, Any]) -> str:
    out_of_memory = ended.get("reason") == "OOMKilled"
    return "out of memory: raise resources.memory in job.yaml" if out_of_memory else _meaning(int(ended["exitCode"]))


def _meaning(code: int) -> str:
    try:
        return f"code {code} ({ExitCode(code).name.lower().replace('_', ' ')})"
    except ValueError:
        return f"code {code} (signal {code - 128})" if code > 128 else f"code {code}"


def last_line(text: str) -> str:
    """The last line that says something; a traceback's last line is its reason."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return short(lines[-1]) if lines else ""

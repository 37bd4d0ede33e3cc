"""A pod's state in plain words: who it is, what it does, what blocks it and, if known, what to do.

The words come from what the API server already knows (conditions, container states, events), so
they are there in seconds.
"""

import re
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Any

from paddle_node.contract import ExitCode, Variable

from paddle_aws.operations.cluster import reasons
from paddle_aws.operations.cluster.cluster import Cluster, Object
from paddle_aws.operations.cluster.reasons import short
from paddle_aws.operations.jobs.watch.job_objects import (
    INDEX,
    JOB_NAME,
    SEEN,
    component,
    condition,
    created,
    ended,
    label,
    seconds_old,
    variable,
)
from paddle_aws.operations.jobs.watch.paddle_noise import SOURCE, is_noise
from paddle_aws.operations.screen import span

BROKEN_PULLS = (
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "RegistryUnavailable",
)
NOT_CREATED = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
MOUNT_TROUBLE = ("FailedMount", "FailedAttachVolume", "FailedBinding")
SANDBOX_TROUBLE = "FailedCreatePodSandBox"
KILLED = 128 + signal.SIGKILL
KILLED_FOR_MEMORY = "OOMKilled"
"""Kubernetes' reason of a container's end."""
OUT_OF_MEMORY = "out of memory"
NO_NODE = "Failed to schedule pod, "
"""The start of Karpenter's messages, but not of kube-scheduler's."""
OF_OPERATOR = ("worker", "ps", "heter")
"""Components of a PaddleJob's pods."""


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
    """Its container's last words; empty if it was killed without any."""
    restarts: int = 0
    """How often its containers were restarted in place."""

    @property
    def failure(self) -> str:
        """Who failed, where, and why."""
        return f"{self.who}{' on ' if self.node else ''}{self.node}: {self.reason}"

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
    metadata, containers = pod["metadata"], _containers(pod)
    phase, reason, code = _phase(pod, list(events), aws)
    rank = metadata.get("annotations", {}).get(INDEX) or label(pod, INDEX)
    # The PaddleJob operator numbers its pods in their names.
    numbered = re.search(r"-(\d+)$", metadata["name"]) if component(pod) in OF_OPERATOR else None
    return PodState(
        name=metadata["name"],
        component=component(pod),
        rank=int(rank) if rank else int(numbered[1]) if numbered else None,
        phase=phase,
        reason=reason,
        node=str(pod.get("spec", {}).get("nodeName", "")),
        code=code,
        created=created(pod),
        message=_last_words(_ended(containers), component(pod)),
        restarts=_restarts(containers),
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
        by_address = sorted(
            unranked, key=lambda name: (unranked[name].version, int(unranked[name]))
        )
        states_ |= {name: replace(states_[name], rank=rank) for rank, name in enumerate(by_address)}
    return sorted(
        states_.values(), key=lambda state: (state.component, state.rank or 0, state.created)
    )


def culprit(pods: Iterable[PodState]) -> PodState | None:
    """Returns the failed pod that best tells why: one that ran out of memory, else one with a
    message, which failed on its own and not with others; the newest.
    """

    def tells(pod: PodState) -> tuple[bool, bool, bool, bool, str]:
        starved, failed = OUT_OF_MEMORY in pod.reason, pod.code not in (None, ExitCode.TERMINATED)
        alone = pod.code != ExitCode.ATTEMPTS_EXHAUSTED
        return starved, bool(pod.message), failed, alone, pod.created

    return max((pod for pod in pods if pod.phase == "failed"), key=tells, default=None)


def states(
    cluster: Cluster, namespace: str, pods: Iterable[Object], jobs: Iterable[Object] = ()
) -> tuple[list[PodState], dict[str, str]]:
    """Returns the pods in words and, by a Job's name, why its pods are refused; asks for events
    only if either needs them.
    """
    pods = list(pods)
    lacking = {
        job["metadata"]["name"]: job
        for job in jobs
        if job.get("kind") != "PaddleJob" and _lacks(job, pods)
    }
    events: dict[str, list[Object]] = {}
    pending = [pod for pod in pods if pod.get("status", {}).get("phase") in (None, "Pending")]
    asked = ["type=Warning"] if lacking or pending else []
    # Karpenter's event about the node that it makes is not a warning.
    asked += (
        ["reason=Nominated"]
        if any(condition(pod, "PodScheduled", "False") for pod in pending)
        else []
    )
    for fields in asked:
        for event in cluster.items(f"/api/v1/namespaces/{namespace}/events", fields=fields):
            events.setdefault(event.get("involvedObject", {}).get("name", ""), []).append(event)
    refused = {}
    for name in lacking:
        # A refusal that is older than the newest pod no longer holds.
        since = max((created(pod) for pod in pods if label(pod, JOB_NAME) == name), default="")
        messages = [
            warning
            for warning in events.get(name, ())
            if warning.get("reason") == "FailedCreate" and _when(warning) >= since
        ]
        if messages:
            refused[name] = refusal(str(max(messages, key=_when).get("message", "")))
    return pod_states(pods, events, aws=cluster.aws), refused


def _lacks(job: Mapping[str, Any], pods: Iterable[Mapping[str, Any]]) -> bool:
    spec = job.get("spec", {})
    if ended(job) or spec.get("suspend"):
        return False
    mine = [pod for pod in pods if label(pod, JOB_NAME) == job["metadata"]["name"]]
    there = [pod for pod in mine if pod.get("status", {}).get("phase") != "Failed"]
    return len(there) < int(spec.get("parallelism") or 1)


def _when(event: Mapping[str, Any]) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")


def refusal(message: str) -> str:
    """Returns the API server's refusal in words, and what to do about it."""
    text = message.removeprefix("Error creating: ")
    return reasons.first("refused", text, f"its pods cannot be made: {short(text)}")


def _phase(
    pod: Mapping[str, Any], events: list[Mapping[str, Any]], aws: bool
) -> tuple[str, str, int | None]:
    status, spec = pod.get("status", {}), pod.get("spec", {})
    phase, containers = status.get("phase", "Pending"), _containers(pod)
    if phase == "Succeeded":
        return "done", "", 0
    if phase == "Failed":
        return ("failed", *_failure(pod, containers))
    # Only the node controller clears Ready of a pod whose containers are ready: the kubelet sets
    # both.
    lost = (
        phase == "Running"
        and condition(pod, "Ready", "False")
        and condition(pod, "ContainersReady")
    )
    silent = (
        f"node {spec.get('nodeName')} does not answer: Kubernetes replaces the pod some minutes "
        "later"
        if lost
        else ""
    )
    if pod["metadata"].get("deletionTimestamp"):
        return "ending", silent, None
    if phase == "Running":
        return (
            ("waiting", silent, None)
            if lost
            else ("running", _restarted(containers, resources_of(pod)), None)
        )
    if unscheduled := condition(pod, "PodScheduled", "False"):
        if unscheduled.get("reason") == "SchedulingGated":
            return "waiting", "its queue has not let it in yet", None
        if news := [
            event
            for event in events
            if event.get("reason") == "Nominated" or NO_NODE in str(event.get("message"))
        ]:
            words = str(max(news, key=_when).get("message"))
            if node := re.search("nodeclaim/[^, ]+|node/[^, ]+", words):
                return (
                    "waiting",
                    f"a node is made for it, {node[0]}; it has waited for {span(seconds_old(pod))}",
                    None,
                )
            return (
                "waiting",
                reasons.first(
                    "no_node_made", words, short(words), aws=aws, resources=resources_of(pod)
                ),
                None,
            )
        if not (message := str(unscheduled.get("message", ""))):
            return "waiting", "no node can take it, and the scheduler does not say why yet", None
        facts = {"resources": resources_of(pod), "where": " in cluster.yaml" if aws else ""}
        causes = reasons.every("no_room", message, aws=aws, **facts) or [short(message)]
        otherwise = f"no node can take it: {'; '.join(causes)}"
        return "waiting", reasons.first("not_scheduled", message, otherwise, aws=aws), None
    for container in containers:
        waiting = container.get("state", {}).get("waiting") or {}
        if waiting.get("reason") in BROKEN_PULLS:
            image, reason = (
                container.get("image", ""),
                ": ".join(filter(None, (waiting["reason"], waiting.get("message")))),
            )
            otherwise = f"image {image} cannot be pulled: {short(reason)}"
            return "waiting", reasons.first("image", reason, otherwise, aws=aws, image=image), None
        if waiting.get("reason") in NOT_CREATED:
            return (
                "waiting",
                f"its container cannot be made: {waiting.get('message', waiting['reason'])}",
                None,
            )
    if trouble := [
        event for event in events if event.get("reason") in (*MOUNT_TROUBLE, SANDBOX_TROUBLE)
    ]:
        last = max(trouble, key=_when)
        message = str(last.get("message", ""))
        if last.get("reason") == SANDBOX_TROUBLE:
            text = short(message)
            otherwise = f"its node cannot make its sandbox: {text}"
            return "waiting", reasons.first("sandbox", message, otherwise, text=text), None
        if component(pod) in OF_OPERATOR and re.search('configmap "[^"]+" not found', message):
            return (
                "starting",
                "the PaddleJob operator writes its ConfigMap once every pod has an address",
                None,
            )
        otherwise = f"its volume cannot be mounted: {short(message)}"
        return "waiting", reasons.first("mount", message, otherwise, aws=aws), None
    if spec.get("nodeName"):
        return "starting", "its image is being pulled and its volume mounted", None
    scheduler = spec.get("schedulerName", "default-scheduler")
    if scheduler != "default-scheduler" and seconds_old(pod) > SEEN:
        return (
            "waiting",
            f"scheduler {scheduler} has not looked at it: does it run (docs/jobs.md)?",
            None,
        )
    return "starting", "no node is chosen yet", None


def resources_of(pod: Mapping[str, Any]) -> str:
    """Returns the job.yaml setting for the pod's resource requests."""
    return "data_resources" if component(pod) == "data" else "resources"


def _failure(pod: Mapping[str, Any], containers: list[Mapping[str, Any]]) -> tuple[str, int | None]:
    status = pod["status"]
    if disruption := condition(pod, "DisruptionTarget"):
        taken = f"its node was taken away ({disruption.get('reason', 'disruption')})"
        return f"{taken}: it is replaced without costing a retry", None
    if ended := _ended(containers):
        code, before = int(ended["exitCode"]), _ended(containers, "lastState")
        if code == ExitCode.KILLED_AGAIN and before.get("reason") == KILLED_FOR_MEMORY:
            count = _restarts(containers)
            return f"{_why(before, resources_of(pod))} (it was restarted {count} times)", code
        words = [_why(ended, resources_of(pod)), _last_words(ended, component(pod))]
        if code == KILLED and ended.get("reason") != KILLED_FOR_MEMORY and not words[1]:
            # On cgroup v1 a container runtime may miss that the kernel was short of memory.
            memory = f"perhaps out of memory: raise {resources_of(pod)}.memory"
            return f"code {code} (signal 9, {memory})", code
        return ": ".join(filter(None, words)), code
    if status.get("reason") == "Evicted":
        return f"its node evicted it: {short(str(status.get('message', '')))}", None
    return short(
        str(status.get("message") or status.get("reason") or "it failed without a word")
    ), None


def _containers(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    status, spec = pod.get("status", {}), pod.get("spec") or {}
    containers = [
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ]
    if status.get("phase") == "Pending":
        return containers
    # A sidecar is ended after the pod's program, and its end says nothing about that.
    sidecars = {
        container.get("name")
        for container in spec.get("initContainers") or ()
        if container.get("restartPolicy") == "Always"
    }
    return [container for container in containers if container.get("name", "") not in sidecars]


def _ended(containers: Iterable[Mapping[str, Any]], when: str = "state") -> Mapping[str, Any]:
    """Returns how the first failed container ended; empty if none failed."""
    ends = [(container.get(when) or {}).get("terminated") or {} for container in containers]
    return next((end for end in ends if end.get("exitCode")), {})


def _restarts(containers: Iterable[Mapping[str, Any]]) -> int:
    return sum(int(container.get("restartCount") or 0) for container in containers)


def _restarted(containers: list[Mapping[str, Any]], resources: str) -> str:
    count, last = _restarts(containers), _ended(containers, "lastState")
    return (
        f"restarted in place {count} time{'s' * (count > 1)}, last after {_why(last, resources)}"
        if count and last
        else ""
    )


def _why(ended: Mapping[str, Any], resources: str) -> str:
    if ended.get("reason") == KILLED_FOR_MEMORY:
        return f"{OUT_OF_MEMORY}: raise {resources}.memory in job.yaml"
    code = int(ended["exitCode"])
    if code in list(ExitCode):
        return f"code {code} ({ExitCode(code).name.lower().replace('_', ' ')})"
    return f"code {code} (signal {code - 128})" if code > 128 else f"code {code}"


def _last_words(ended: Mapping[str, Any], component: str) -> str:
    """Returns the last line of a container's termination message, which for a traceback is its
    reason.

    Kubernetes takes the end of the log for the message of a container that left none: what a
    program said before somebody killed it is no reason, and neither is what Paddle says of itself.
    """
    if not ended or ended.get("reason") == KILLED_FOR_MEMORY:
        return ""
    lines = [line.rstrip() for line in str(ended.get("message") or "").splitlines()]
    line = next((line for line in reversed(lines) if line.strip() and not is_noise(line)), "")
    if ended["exitCode"] == KILLED and (component != "trainer" or SOURCE.match(line)):
        return ""
    return short(line)

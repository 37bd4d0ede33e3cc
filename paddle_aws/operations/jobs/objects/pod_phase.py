"""What a pod does and what delays it, in plain words and, if known, with a remedy.

The words come from what the API server already knows (conditions, container states, events), so
they are there in seconds.
"""

import re
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paddle_node.contract import ExitCode

from paddle_aws.operations.cluster import reasons
from paddle_aws.operations.cluster.reasons import shorten
from paddle_aws.operations.jobs.objects import paddle_job
from paddle_aws.operations.jobs.objects.job_objects import component
from paddle_aws.operations.jobs.objects.object_fields import NOTICE_SECONDS, condition, seconds_old
from paddle_aws.operations.jobs.objects.paddle_noise import SOURCE, is_noise
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

Pod = Mapping[str, Any]
Event = Mapping[str, Any]
Container = Mapping[str, Any]
"""A container's status."""


@dataclass(frozen=True)
class PodPhase:
    """A pod's phase, and why it waits or failed."""

    word: str
    """waiting, starting, running, ending, done or failed."""
    reason: str = ""
    """Why it waits or failed; empty if there is nothing to say."""
    code: int | None = None
    """Exit code of an ended container."""


def phase_of(pod: Pod, events: Sequence[Event], *, aws: bool) -> PodPhase:
    """Returns a pod's phase; `events` are its own, if they are known. `aws`: the cluster runs in
    AWS.
    """
    phase = pod.get("status", {}).get("phase", "Pending")
    containers = containers_of(pod)
    if phase == "Succeeded":
        return PodPhase("done", code=0)
    if phase == "Failed":
        return PodPhase("failed", *_failure(pod, containers))
    silence = _silence_of_node(pod)
    if pod["metadata"].get("deletionTimestamp"):
        return PodPhase("ending", silence)
    if phase == "Running":
        if silence:
            return PodPhase("waiting", silence)
        return PodPhase("running", _describe_restarts(containers, resources_of(pod)))
    return (
        _scheduling(pod, events, aws)
        or _making_containers(containers, aws)
        or _trouble_on_node(pod, events, aws)
        or _pulling_or_unscheduled(pod)
    )


def _silence_of_node(pod: Pod) -> str:
    """Says that a running pod's node does not answer; empty if it does."""
    # Only the node controller clears Ready of a pod whose containers are ready: the kubelet sets
    # both.
    cleared = condition(pod, "Ready", "False") and condition(pod, "ContainersReady")
    if pod.get("status", {}).get("phase") != "Running" or not cleared:
        return ""
    node = pod.get("spec", {}).get("nodeName")
    return f"node {node} does not answer: Kubernetes replaces the pod some minutes later"


def _scheduling(pod: Pod, events: Sequence[Event], aws: bool) -> PodPhase | None:
    """Says why the pod has no node yet; None if one was chosen, or nobody has looked."""
    unscheduled = condition(pod, "PodScheduled", "False")
    if unscheduled is None:
        return None
    if unscheduled.get("reason") == "SchedulingGated":
        return PodPhase("waiting", "its queue has not let it in yet")
    news = [
        event
        for event in events
        if event.get("reason") == "Nominated" or NO_NODE in str(event.get("message"))
    ]
    if news:
        message = str(max(news, key=time_of).get("message"))
        if node := re.search("nodeclaim/[^, ]+|node/[^, ]+", message):
            since = span(seconds_old(pod))
            return PodPhase(
                "waiting", f"a node is being created for it, {node[0]}; it has waited for {since}"
            )
        reason = reasons.first_sentence(
            "no_node_made", message, shorten(message), aws=aws, resources=resources_of(pod)
        )
        return PodPhase("waiting", reason)
    if not (message := str(unscheduled.get("message", ""))):
        return PodPhase("waiting", "no node can take it, and the scheduler does not say why yet")
    where = " in cluster.yaml" if aws else ""
    causes = reasons.list_sentences(
        "no_room", message, aws=aws, resources=resources_of(pod), where=where
    )
    otherwise = f"no node can take it: {'; '.join(causes or [shorten(message)])}"
    return PodPhase("waiting", reasons.first_sentence("not_scheduled", message, otherwise, aws=aws))


def _making_containers(containers: Iterable[Container], aws: bool) -> PodPhase | None:
    """Says why a container has no image or cannot be made; None: not known."""
    for container in containers:
        waiting = container.get("state", {}).get("waiting") or {}
        if waiting.get("reason") in BROKEN_PULLS:
            image = container.get("image", "")
            cause = ": ".join(filter(None, (waiting["reason"], waiting.get("message"))))
            otherwise = f"image {image} cannot be pulled: {shorten(cause)}"
            reason = reasons.first_sentence("image", cause, otherwise, aws=aws, image=image)
            return PodPhase("waiting", reason)
        if waiting.get("reason") in NOT_CREATED:
            cause = waiting.get("message", waiting["reason"])
            return PodPhase("waiting", f"its container cannot be created: {cause}")
    return None


def _trouble_on_node(pod: Pod, events: Iterable[Event], aws: bool) -> PodPhase | None:
    """Says why the node cannot mount the pod's volume or make its sandbox."""
    kinds = (*MOUNT_TROUBLE, SANDBOX_TROUBLE)
    troubles = [event for event in events if event.get("reason") in kinds]
    if not troubles:
        return None
    last = max(troubles, key=time_of)
    message = str(last.get("message", ""))
    if last.get("reason") == SANDBOX_TROUBLE:
        text = shorten(message)
        otherwise = f"its node cannot create its sandbox: {text}"
        return PodPhase("waiting", reasons.first_sentence("sandbox", message, otherwise, text=text))
    if component(pod) in paddle_job.COMPONENTS and paddle_job.waits_for_addresses(message):
        return PodPhase(
            "starting", "the PaddleJob operator writes its ConfigMap once every pod has an address"
        )
    otherwise = f"its volume cannot be mounted: {shorten(message)}"
    return PodPhase("waiting", reasons.first_sentence("mount", message, otherwise, aws=aws))


def _pulling_or_unscheduled(pod: Pod) -> PodPhase:
    """Returns the phase of a pending pod of which no obstacle is known."""
    spec = pod.get("spec", {})
    if spec.get("nodeName"):
        return PodPhase("starting", "its image is being pulled and its volume mounted")
    scheduler = spec.get("schedulerName", "default-scheduler")
    if scheduler != "default-scheduler" and seconds_old(pod) > NOTICE_SECONDS:
        return PodPhase(
            "waiting", f"scheduler {scheduler} has not looked at it: does it run (docs/jobs.md)?"
        )
    return PodPhase("starting", "no node is chosen yet")


def resources_of(pod: Pod) -> str:
    """Returns the job.yaml setting for the pod's resource requests."""
    return "data_resources" if component(pod) in ("data", "environment") else "resources"


def _failure(pod: Pod, containers: list[Container]) -> tuple[str, int | None]:
    """Returns why a pod failed, and its exit code; None if none of its containers failed."""
    status = pod["status"]
    if disruption := condition(pod, "DisruptionTarget"):
        taken = f"its node was taken away ({disruption.get('reason', 'disruption')})"
        return f"{taken}: it is replaced without costing a retry", None
    if ended := end_of(containers):
        code, before = int(ended["exitCode"]), end_of(containers, "lastState")
        if code == ExitCode.KILLED_AGAIN and before.get("reason") == KILLED_FOR_MEMORY:
            count = restarts(containers)
            return f"{_why(before, resources_of(pod))} (it was restarted {count} times)", code
        words = [_why(ended, resources_of(pod)), last_words(ended, component(pod))]
        if code == KILLED and ended.get("reason") != KILLED_FOR_MEMORY and not words[1]:
            # On cgroup v1 a container runtime may miss that the kernel was short of memory.
            memory = f"perhaps out of memory: raise {resources_of(pod)}.memory"
            return f"code {code} (signal 9, {memory})", code
        return ": ".join(filter(None, words)), code
    if status.get("reason") == "Evicted":
        return f"its node evicted it: {shorten(str(status.get('message', '')))}", None
    return shorten(
        str(status.get("message") or status.get("reason") or "it failed without a message")
    ), None


def containers_of(pod: Pod) -> list[Container]:
    """Returns the statuses of a pod's containers; once it runs, without its sidecars."""
    status, spec = pod.get("status", {}), pod.get("spec") or {}
    kinds = ("initContainerStatuses", "containerStatuses")
    containers = [container for kind in kinds for container in status.get(kind) or ()]
    if status.get("phase") == "Pending":
        return containers
    # A sidecar is ended after the pod's program, and its end says nothing about that.
    sidecars = {
        container.get("name")
        for container in spec.get("initContainers") or ()
        if container.get("restartPolicy") == "Always"
    }
    return [container for container in containers if container.get("name", "") not in sidecars]


def end_of(containers: Iterable[Container], when: str = "state") -> Mapping[str, Any]:
    """Returns how the first failed container ended; empty if none failed."""
    ends = [(container.get(when) or {}).get("terminated") or {} for container in containers]
    return next((end for end in ends if end.get("exitCode")), {})


def restarts(containers: Iterable[Container]) -> int:
    """Returns how often containers were restarted in place."""
    return sum(int(container.get("restartCount") or 0) for container in containers)


def _describe_restarts(containers: list[Container], resources: str) -> str:
    count, last = restarts(containers), end_of(containers, "lastState")
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


def last_words(ended: Mapping[str, Any], component: str) -> str:
    """Returns the last line of a container's termination message, which for a traceback is its
    reason.

    If a container leaves no message, Kubernetes takes the end of its log instead. The last lines of
    a killed program are not the reason for its end, and neither are Paddle's own log lines.
    """
    if not ended or ended.get("reason") == KILLED_FOR_MEMORY:
        return ""
    lines = [line.rstrip() for line in str(ended.get("message") or "").splitlines()]
    line = next((line for line in reversed(lines) if line.strip() and not is_noise(line)), "")
    if ended["exitCode"] == KILLED and (component != "trainer" or SOURCE.match(line)):
        return ""
    return shorten(line)


def time_of(event: Event) -> str:
    """Returns when an event was seen last, as Kubernetes writes it."""
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")

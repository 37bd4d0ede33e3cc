"""Why a Job has no pods: what the cluster answered when its controller tried to make them.

Promises: nothing is asked of the cluster while a Job has the pods that it wants. Such a Job looks like one that only waits;
its reason is in no pod, but in the events of the Job itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from operations.cluster import Cluster, Object
from operations.job_objects import JOB_NAME, created, ended
from operations.pod_words import short

LIMIT = re.compile(r"(maximum|minimum) (\S+) usage per (Pod|Container) is (\S+), but (?:limit|request) is ([^\s,\]]+)")


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
    return {name: words(str(event.get("message", ""))) for name, event in newest.items()}


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


def words(message: str) -> str:
    """The API server's refusal, and what to do about it."""
    text = message.removeprefix("Error creating: ")
    if match := re.search(r"exceeded quota: ([^,]+), requested: (.+), used: (.+), limited: (.+)", text):
        return (
            f"its pods are more than the namespace's quota {match[1]} allows (a pod wants {match[2]}; used {match[3]} "
            f"of {match[4]}): wait for other jobs, or raise namespace_limits"
        )
    if match := re.search(r"failed quota: ([^:]+): must specify (.+)", text):
        return f"the namespace's quota {match[1]} wants pods to say {match[2]}: set them in resources"
    if match := re.search(r'violates PodSecurity "([^"]+)": (.+)', text):
        return f"the namespace's Pod Security ({match[1]}) refuses its pods: {short(match[2])}"
    if match := re.search(r'error looking up service account \S+: serviceaccount "([^"]+)" not found', text):
        return f"its service account {match[1]} does not exist: submit the job again"
    if match := re.search(r"no PriorityClass with name (\S+) was found", text):
        return f"priority class {match[1]} does not exist on this cluster: correct scheduling.priority_class, or make it"
    if match := LIMIT.search(text):
        which, what, whose, allowed, wanted = match.groups()
        bound = "at most" if which == "maximum" else "at least"
        return f"the namespace allows a {whose.lower()} {bound} {allowed} of {what}, and it wants {wanted}: change resources"
    if match := re.search(r'admission webhook "([^"]+)" denied the request: (.+)', text):
        return f"the cluster's own rules ({match[1]}) refuse its pods: {short(match[2])}"
    return f"its pods cannot be made: {short(text)}"

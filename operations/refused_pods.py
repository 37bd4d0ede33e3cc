"""Why a Job has no pods: what the cluster answered when its controller tried to make them.

Promises: nothing is asked of the cluster while a Job has the pods that it wants. Such a Job looks like one that only waits;
its reason is in no pod, but in the events of the Job itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from operations import reasons
from operations.cluster import Cluster, Object
from operations.job_objects import JOB_NAME, created, ended


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
    return reasons.first("refused", text, f"its pods cannot be made: {reasons.short(text)}")

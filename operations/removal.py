"""A job's objects, ended and removed in an order that loses nothing: pods save and leave before what they use goes.

Promises: only objects that carry this job's labels, in its namespace; data on the volume is never touched.
"""

from __future__ import annotations

import time

from operations.cluster import ApiError, Cluster, Object
from operations.job_objects import PADDLE_JOB, ended, jobs, pods, selector
from operations.job_view import operator_jobs
from operations.submission import remove

NAMESPACED = (
    ("v1", "services"),
    ("networking.k8s.io/v1", "networkpolicies"),
    ("policy/v1", "poddisruptionbudgets"),
    ("rbac.authorization.k8s.io/v1", "rolebindings"),
    ("rbac.authorization.k8s.io/v1", "roles"),
    ("v1", "serviceaccounts"),
    ("v1", "configmaps"),
    ("scheduling.volcano.sh/v1beta1", "podgroups"),
    ("v1", "persistentvolumeclaims"),
)
"""What the charts make for one job, beside its Jobs and its volume; in the order of removal."""
CLAIMS = "/api/v1/namespaces/{}/persistentvolumeclaims"
LEAVES = 20.0
"""Seconds for claims and volumes to leave: their controllers need a few once no pod is left that uses them."""


def running(cluster: Cluster, name: str, namespace: str) -> list[str]:
    """Names of the job's Jobs and PaddleJobs that have not ended."""
    return [path.rsplit("/", 1)[-1] for path, document in _runs(cluster, name, namespace) if not ended(document)]


def end_running(cluster: Cluster, name: str, namespace: str) -> list[str]:
    """Deletes the Jobs that run, waits until their pods have left, and returns the Jobs' names."""
    gone = []
    for path, document in _runs(cluster, name, namespace):
        if not ended(document):
            remove(cluster, path)
            gone.append(document["metadata"]["name"])
    return gone


def remove_all(cluster: Cluster, name: str, namespace: str) -> list[str]:
    """Deletes every object of the job and returns what it was, as kind/name."""
    gone = []
    for path, _ in _runs(cluster, name, namespace):
        remove(cluster, path)
        gone.append(_short(path))
    for pod in cluster.items(pods(namespace), selector(name)):
        # Readers, and pods whose Job was deleted without them.
        cluster.delete(f"{pods(namespace)}/{pod['metadata']['name']}")
    for version, plural in NAMESPACED:
        path = f"{_base(version)}/namespaces/{namespace}/{plural}"
        for found in _items(cluster, path, name):
            cluster.delete(f"{path}/{found['metadata']['name']}")
            gone.append(f"{plural}/{found['metadata']['name']}")
    for volume in _volumes(cluster, name, namespace):
        cluster.delete(f"/api/v1/persistentvolumes/{volume['metadata']['name']}")
        gone.append(f"persistentvolumes/{volume['metadata']['name']}")
    return gone


def still_held(cluster: Cluster, name: str, namespace: str) -> list[str]:
    """Waits until the claims and volumes that were deleted are gone; of each that stays, a sentence with what holds it.

    A claim on its way out takes a new submission's changes, and then lets none of its pods start.
    """
    deadline = time.monotonic() + LEAVES
    while leaving := _leaving(cluster, name, namespace):
        if time.monotonic() > deadline:
            return _held(leaving, _uses(cluster, namespace))
        cluster.sleep(0.5)
    return []


def _leaving(cluster: Cluster, name: str, namespace: str) -> list[Object]:
    """Claims before volumes, as a claim holds its volume."""
    found = [*cluster.items(CLAIMS.format(namespace), selector(name)), *_volumes(cluster, name, namespace)]
    return [document for document in found if document["metadata"].get("deletionTimestamp")]


def _uses(cluster: Cluster, namespace: str) -> dict[str, list[str]]:
    """Of each claim, the pods that name it, anybody's."""
    found: dict[str, list[str]] = {}
    for pod in cluster.items(pods(namespace)):
        for volume in pod["spec"].get("volumes", ()):
            if claim := volume.get("persistentVolumeClaim", {}).get("claimName"):
                found.setdefault(claim, []).append(pod["metadata"]["name"])
    return found


def _held(leaving: list[Object], uses: dict[str, list[str]]) -> list[str]:
    names = {document["metadata"]["name"] for document in leaving}
    told = []
    for document in leaving:
        known, claim = document["metadata"]["name"], document["spec"].get("claimRef", {}).get("name")
        if claim in names:
            # It goes when its claim has gone, of which there is a sentence already.
            continue
        what = "claim" if claim is None else "volume"
        holders = uses.get(known, []) if claim is None else []
        more = f" and {len(holders) - 3} more" if len(holders) > 3 else ""
        finalizers = ", ".join(document["metadata"].get("finalizers") or ())
        why = f"used by pod {', '.join(holders[:3])}{more}" if holders else f"no controller has taken {finalizers} off it"
        told.append(f"{what} {known} is still there after {LEAVES:.0f} s, {why}: wait until it is gone before you submit again")
    return told


def _volumes(cluster: Cluster, name: str, namespace: str) -> list[Object]:
    """Volumes have no namespace: one of a job of the same name elsewhere is not ours."""
    found = cluster.items("/api/v1/persistentvolumes", selector(name))
    return [volume for volume in found if volume.get("spec", {}).get("claimRef", {}).get("namespace", namespace) == namespace]


def _runs(cluster: Cluster, name: str, namespace: str) -> list[tuple[str, Object]]:
    path = f"/apis/{PADDLE_JOB}/namespaces/{namespace}/paddlejobs"
    operators = [(f"{path}/{d['metadata']['name']}", d) for d in operator_jobs(cluster, namespace, name)]
    batch = [(f"{jobs(namespace)}/{d['metadata']['name']}", d) for d in cluster.items(jobs(namespace), selector(name))]
    return [*operators, *batch]


def _items(cluster: Cluster, path: str, name: str) -> list[Object]:
    try:
        return cluster.items(path, selector(name))
    except ApiError as error:
        if error.status == 404:
            return []
        raise


def _base(version: str) -> str:
    return f"/apis/{version}" if "/" in version else f"/api/{version}"


def _short(path: str) -> str:
    return "/".join(path.split("/")[-2:])

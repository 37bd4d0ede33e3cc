"""A job's objects, ended and removed in an order that loses nothing: pods save and leave before what they use goes.

Promises: only objects that carry this job's labels, in its namespace; data on the volume is never touched.
"""

from __future__ import annotations

import time

from operations.cluster import NOTICED, Cluster, Object
from operations.errors import Failed
from operations.job_objects import ended, jobs, paddle_jobs, pods, selector

CLAIMS = "/api/v1/namespaces/{}/persistentvolumeclaims"
NAMESPACED = (
    "/api/v1/namespaces/{}/services",
    "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "/api/v1/namespaces/{}/serviceaccounts",
    "/api/v1/namespaces/{}/configmaps",
    "/apis/scheduling.volcano.sh/v1beta1/namespaces/{}/podgroups",
    CLAIMS,
)
"""What the charts make for one job, beside its Jobs and its volume; in the order of removal."""
LEAVES = 20.0
"""Seconds for claims and volumes to leave: their controllers need a few once no pod is left that uses them."""
GONE = 60.0
"""Seconds for a deleted Job's pods to leave, behind the grace period in which they save."""


def running(cluster: Cluster, name: str, namespace: str) -> dict[str, str]:
    """The job's Jobs and PaddleJobs that have not ended: their paths by name."""
    return {path.rsplit("/", 1)[-1]: path for path, document in _runs(cluster, name, namespace) if not ended(document)}


def end_running(cluster: Cluster, name: str, namespace: str) -> list[str]:
    """Deletes the Jobs that run, waits until their pods have left, and returns the Jobs' names."""
    its = running(cluster, name, namespace)
    if its:
        cluster.say(f"ending {', '.join(its)}: the pods get their time to save")
    for path in its.values():
        remove(cluster, path)
    return list(its)


def remove_all(cluster: Cluster, name: str, namespace: str) -> list[str]:
    """Deletes every object of the job and returns what it was, as kind/name."""
    gone = []
    for path, _ in _runs(cluster, name, namespace):
        remove(cluster, path)
        gone.append(_short(path))
    for path, _ in _its(cluster, pods(namespace), name):
        # Readers, and pods whose Job was deleted without them.
        cluster.delete(path)
    its = (one for collection in NAMESPACED for one in _its(cluster, collection.format(namespace), name))
    for path, _ in [*its, *_volumes(cluster, name, namespace)]:
        cluster.delete(path)
        gone.append(_short(path))
    return gone


def still_held(cluster: Cluster, name: str, namespace: str) -> list[str]:
    """Waits until the claims and volumes that were deleted are gone; of each that stays, a sentence with what holds it.

    A claim on its way out takes a new submission's changes, and then lets none of its pods start.
    """
    deadline = time.monotonic() + LEAVES
    while leaving := _leaving(cluster, name, namespace):
        if time.monotonic() > deadline:
            return _held(leaving, _uses(cluster, namespace))
        time.sleep(0.5)
    return []


def _leaving(cluster: Cluster, name: str, namespace: str) -> list[Object]:
    """Claims before volumes, as a claim holds its volume."""
    found = [*_its(cluster, CLAIMS.format(namespace), name), *_volumes(cluster, name, namespace)]
    return [document for _, document in found if document["metadata"].get("deletionTimestamp")]


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


def _its(cluster: Cluster, collection: str, name: str) -> list[tuple[str, Object]]:
    """The job's objects in a collection, by their paths."""
    return [(f"{collection}/{one['metadata']['name']}", one) for one in cluster.items(collection, selector(name))]


def _volumes(cluster: Cluster, name: str, namespace: str) -> list[tuple[str, Object]]:
    """Volumes have no namespace: one of a job of the same name elsewhere is not ours."""
    found = _its(cluster, "/api/v1/persistentvolumes", name)
    return [one for one in found if one[1].get("spec", {}).get("claimRef", {}).get("namespace", namespace) == namespace]


def _runs(cluster: Cluster, name: str, namespace: str) -> list[tuple[str, Object]]:
    operators = [(path, {"kind": "PaddleJob", **one}) for path, one in _its(cluster, paddle_jobs(namespace), name)]
    return [*operators, *_its(cluster, jobs(namespace), name)]


def _short(path: str) -> str:
    return "/".join(path.split("/")[-2:])


def remove(cluster: Cluster, path: str) -> None:
    """Deletes an object and waits until it is gone, its pods before it. Says so where that takes its time."""
    found = cluster.find(path)
    if found is None or not cluster.delete(path):
        return
    began, patience, told = time.monotonic(), grace(found) + GONE, False
    while (found := cluster.find(path)) is not None:
        name, passed = path.rsplit("/", 1)[-1], time.monotonic() - began
        # Kubernetes' own finalizers wait for the pods; any other waits for the controller that put it there.
        its = [one for one in found.get("metadata", {}).get("finalizers", ()) if "/" in one]
        waits = f"{', '.join(its)} holds it: does its controller run?" if its else "a pod of it does not end"
        if passed > patience:
            raise Failed(f"{name} is not gone after {patience:.0f} s: {waits}")
        if passed > NOTICED and not told:
            told = True
            cluster.say(f"{name} is not gone yet ({waits if its else 'its pods save'}): waiting up to {patience:.0f} s")
        time.sleep(0.5)


def grace(document: Object) -> float:
    """Seconds that the pods of a Job or PaddleJob, or a pod, may take to save."""
    spec = document.get("spec", {})
    templates = [spec, spec.get("template", {}).get("spec", {})]
    templates += [spec.get(role, {}).get("template", {}).get("spec", {}) for role in ("worker", "ps")]
    return float(max(template.get("terminationGracePeriodSeconds") or 0 for template in templates))

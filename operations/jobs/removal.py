"""A job's objects, ended and removed in an order that loses nothing: pods save and leave before what they use goes.

Only objects that carry this job's labels, in its namespace; data on the volume is never touched.
"""

import time

from operations.cluster.cluster import NOTICED, Cluster, Object
from operations.errors import Failed
from operations.jobs.job_objects import ended, path, pods, runs, selector

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
"""Seconds for claims and volumes to leave: their controllers need a few once no pod uses them."""
GONE = 60.0
"""Seconds for a deleted Job's pods to leave, after the grace period in which they save."""
LOOK = 0.5
"""Seconds between two looks at what is on its way out."""


def running(cluster: Cluster, name: str, namespace: str) -> dict[str, str]:
    """The job's Jobs and PaddleJobs that have not ended: their paths by name."""
    its = runs(cluster, namespace, selector(name))
    return {run["metadata"]["name"]: path(run) for run in its if not ended(run)}


def end_running(cluster: Cluster, name: str, namespace: str) -> list[str]:
    """Deletes the Jobs that run, waits until their pods have left, and returns the Jobs' names."""
    its = running(cluster, name, namespace)
    if its:
        cluster.say(f"ending {', '.join(its)}: the pods get their time to save")
    for place in its.values():
        remove(cluster, place)
    return list(its)


def remove_all(cluster: Cluster, name: str, namespace: str) -> list[str]:
    """Deletes every object of the job and returns what it was, as kind/name."""
    gone = [path(run) for run in runs(cluster, namespace, selector(name))]
    for place in gone:
        remove(cluster, place)
    for place, _ in _its(cluster, pods(namespace), name):
        # Inspection pods, and pods whose Job was deleted without them.
        cluster.delete(place)
    its = [one for collection in NAMESPACED for one in _its(cluster, collection.format(namespace), name)]
    for place, _ in [*its, *_volumes(cluster, name, namespace)]:
        cluster.delete(place)
        gone.append(place)
    return ["/".join(place.split("/")[-2:]) for place in gone]


def still_held(cluster: Cluster, name: str, namespace: str) -> list[str]:
    """Waits until the claims and volumes that were deleted are gone; of each that stays, a sentence with what holds it.

    A claim on its way out takes a new submission's changes, and then lets none of its pods start.
    """
    deadline = time.monotonic() + LEAVES
    while True:
        found = [*_its(cluster, CLAIMS.format(namespace), name), *_volumes(cluster, name, namespace)]
        leaving = [document for _, document in found if document["metadata"].get("deletionTimestamp")]
        if not leaving or time.monotonic() > deadline:
            break
        time.sleep(LOOK)
    names = {document["metadata"]["name"] for document in leaving}
    # A volume goes when its claim has gone, of which there is a sentence already.
    return [_held(cluster, one, namespace) for one in leaving if one["spec"].get("claimRef", {}).get("name") not in names]


def _held(cluster: Cluster, document: Object, namespace: str) -> str:
    name, is_claim = document["metadata"]["name"], "claimRef" not in document["spec"]
    holders = [
        pod["metadata"]["name"]
        for pod in (cluster.items(pods(namespace)) if is_claim else ())
        if any(one.get("persistentVolumeClaim", {}).get("claimName") == name for one in pod["spec"].get("volumes", ()))
    ]
    more = f" and {len(holders) - 3} more" if len(holders) > 3 else ""
    finalizers = ", ".join(document["metadata"].get("finalizers") or ())
    why = f"used by pod {', '.join(holders[:3])}{more}" if holders else f"no controller has taken {finalizers} off it"
    what = f"{'claim' if is_claim else 'volume'} {name} is still there after {LEAVES:.0f} s"
    return f"{what}, {why}: wait until it is gone before you submit again"


def _its(cluster: Cluster, collection: str, name: str) -> list[tuple[str, Object]]:
    """The job's objects in a collection, by their paths."""
    return [(f"{collection}/{one['metadata']['name']}", one) for one in cluster.items(collection, selector(name))]


def _volumes(cluster: Cluster, name: str, namespace: str) -> list[tuple[str, Object]]:
    """Volumes have no namespace: one of a job of the same name elsewhere is not ours."""
    found = _its(cluster, "/api/v1/persistentvolumes", name)
    return [one for one in found if one[1].get("spec", {}).get("claimRef", {}).get("namespace", namespace) == namespace]


def remove(cluster: Cluster, place: str) -> None:
    """Deletes an object and waits until it is gone, its pods before it. Says so where that takes its time."""
    found = cluster.find(place)
    if found is None or not cluster.delete(place):
        return
    began, most, told = time.monotonic(), grace(found) + GONE, False
    while (found := cluster.find(place)) is not None:
        name, passed = place.rsplit("/", 1)[-1], time.monotonic() - began
        # Kubernetes' own finalizers wait for the pods; any other waits for the controller that put it there.
        its = [one for one in found.get("metadata", {}).get("finalizers", ()) if "/" in one]
        waits = f"{', '.join(its)} holds it: does its controller run?" if its else "a pod of it does not end"
        if passed > most:
            raise Failed(f"{name} is not gone after {most:.0f} s: {waits}")
        # A controller that runs takes its finalizer off within the first look.
        if not told and passed > (LOOK if its else NOTICED):
            told = True
            cluster.say(f"{name} is not gone yet ({waits if its else 'its pods save'}): waiting up to {most:.0f} s")
        time.sleep(LOOK)


def grace(document: Object) -> float:
    """Seconds that the pods of a Job or PaddleJob, or a pod, may take to save."""
    spec = document.get("spec", {})
    templates = [spec, *(role.get("template", {}).get("spec", {}) for role in (spec, spec.get("worker", {}), spec.get("ps", {})))]
    return float(max(template.get("terminationGracePeriodSeconds") or 0 for template in templates))

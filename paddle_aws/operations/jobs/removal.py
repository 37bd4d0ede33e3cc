"""Ends and removes a job's objects in an order that loses nothing: pods save and exit before what
they use is removed.

Touches only objects with this job's labels, in its namespace, and never the data on the volume.
"""

import time
from contextlib import suppress
from datetime import UTC, datetime

from paddle_aws.operations.cluster.cluster_api import REPORT_AFTER, ClusterApi, Object
from paddle_aws.operations.errors import Failed, OperationError
from paddle_aws.operations.jobs.objects.job_objects import (
    CANCELLED,
    has_ended,
    path,
    pods,
    runs,
    selector,
)

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
)
"""Kinds of objects that the charts make for one job besides its Jobs, claim and volume, in the
order of removal.
"""
DELETION_DEADLINE = 60.0
"""Seconds for a deleted object to disappear; for a Job's pods, after the grace period in which they
save.
"""
LOOK_INTERVAL = 0.5
"""Seconds between two looks at an object that is being deleted."""


def list_running(cluster: ClusterApi, name: str, namespace: str) -> dict[str, str]:
    """Returns the paths, by name, of the job's Jobs and PaddleJobs that have not ended."""
    runs_ = runs(cluster, namespace, selector(name))
    return {run["metadata"]["name"]: path(run) for run in runs_ if not has_ended(run)}


def end_running(cluster: ClusterApi, name: str, namespace: str) -> list[str]:
    """Deletes the Jobs that run, waits until their pods are gone, and returns the Jobs' names.

    Marks the job's other Jobs, such as the data job that has ended, because nothing else records
    that the job was cancelled.
    """
    runs_ = list_running(cluster, name, namespace)
    if runs_:
        cluster.say(f"ending {', '.join(runs_)}: the pods have time to save")
        for run in runs(cluster, namespace, selector(name)):
            if has_ended(run):
                # A user who may delete but not annotate can cancel, too.
                with suppress(OperationError):
                    cluster.annotate(path(run), CANCELLED, datetime.now(UTC).isoformat())
    for place in runs_.values():
        remove(cluster, place)
    return list(runs_)


def remove_all(cluster: ClusterApi, name: str, namespace: str) -> list[str]:
    """Deletes every object of the job and returns them as kind/name.

    Waits for claim and volume: a claim that is being deleted takes a new submission's changes, and
    then lets no pod start.
    """
    gone = [path(run) for run in runs(cluster, namespace, selector(name))]
    for place in gone:
        remove(cluster, place)
    # Inspection pods, and pods whose Job was deleted without them.
    for place in _list_objects(cluster, pods(namespace), name):
        cluster.delete(place)
    objects: list[str] = []
    for kind in NAMESPACED:
        objects += _list_objects(cluster, kind.format(namespace), name)
    for place in objects:
        cluster.delete(place)
    volumes = list(_list_objects(cluster, CLAIMS.format(namespace), name))
    # A volume has no namespace: one of an equally named job in another namespace is not ours.
    every = _list_objects(cluster, "/api/v1/persistentvolumes", name)
    for place, volume in every.items():
        claim = volume.get("spec", {}).get("claimRef", {})
        volumes += [place] if claim.get("namespace", namespace) == namespace else []
    for place in volumes:
        cluster.delete(place)
    for place in volumes:
        remove(cluster, place)
    return ["/".join(place.split("/")[-2:]) for place in (*gone, *objects, *volumes)]


def _list_objects(cluster: ClusterApi, collection: str, name: str) -> dict[str, Object]:
    """Returns the job's objects in a collection, by their paths."""
    return {
        f"{collection}/{document['metadata']['name']}": document
        for document in cluster.items(collection, selector(name))
    }


def remove(cluster: ClusterApi, place: str) -> None:
    """Deletes an object and waits until it is gone, its pods before it. Says so if that takes
    long.
    """
    document = cluster.find(place)
    if document is None or not cluster.delete(place):
        return
    began, most, reported = time.monotonic(), grace(document) + DELETION_DEADLINE, False
    while (document := cluster.find(place)) is not None:
        name, passed = "/".join(place.split("/")[-2:]), time.monotonic() - began
        # Kubernetes' own finalizers wait for the pods; any other waits for the controller that set
        # it.
        finalizers = document.get("metadata", {}).get("finalizers", ())
        holders = [
            finalizer for finalizer in finalizers if "/" in finalizer.removeprefix("kubernetes.io/")
        ]
        waits = "a pod that belongs to it or uses it has not ended"
        if holders:
            waits = f"{', '.join(holders)} holds it: does its controller run?"
        if passed > most:
            raise Failed(
                f"{name} is not gone after {most:.0f} s: {waits}; run this command again once it "
                "is gone"
            )
        # A running controller removes its finalizer before the second look.
        if not reported and passed > (LOOK_INTERVAL if holders else REPORT_AFTER):
            reported = True
            cluster.say(
                f"{name} is not gone yet ({waits if holders else 'its pods end'}): waiting up to "
                f"{most:.0f} s"
            )
        time.sleep(LOOK_INTERVAL)


def grace(document: Object) -> float:
    """Returns the seconds that the pods of a Job or PaddleJob, or a pod, may take to save."""
    spec = document.get("spec", {})
    roles = (spec, spec.get("worker", {}), spec.get("ps", {}))
    templates = [spec, *(role.get("template", {}).get("spec", {}) for role in roles)]
    return float(max(template.get("terminationGracePeriodSeconds") or 0 for template in templates))

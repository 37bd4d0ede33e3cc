"""A job's objects on a cluster, found by the labels that the charts gave them, and what their state
means.
"""

import json
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from paddle_node.contract import PROJECT, Label, Variable

from paddle_aws.operations.cluster import reasons
from paddle_aws.operations.cluster.cluster_api import ClusterApi, Object
from paddle_aws.operations.jobs.objects import paddle_job
from paddle_aws.operations.jobs.objects.object_fields import (
    Phase,
    condition,
    creation_time,
    label,
    moment,
)

PART_OF = f"{Label.PART_OF}={PROJECT}"
INSTANCE, COMPONENT = Label.INSTANCE.value, Label.COMPONENT.value
INDEX, JOB_NAME = Label.INDEX.value, Label.JOB_NAME.value
GROUPS = {"Job": "/apis/batch/v1", "PaddleJob": f"/apis/{paddle_job.PADDLE_JOB}"}
"""The kinds of objects that run a job's pods, and the paths of their API groups."""
CANCELLED = "paddle-aws/cancelled"
"""The annotation of a Job whose job was cancelled later: the time when."""

_IDENTITY = {
    *(Variable.JOB_NAME, Variable.JOB_NAMESPACE, Variable.JOB_OBJECT, Variable.TRAIN_CONFIG_DIR),
    *(Variable.SERVICE, Variable.DISCOVERY, Variable.RUN_ID, Variable.DATA_JOB),
}
"""Variables that name the job, whatever it trains."""


def collection(kind: str, namespace: str | None) -> str:
    """Returns the path of the Jobs, PaddleJobs or Pods of a namespace; None: of all namespaces."""
    place = f"/namespaces/{namespace}" if namespace else ""
    return f"{GROUPS.get(kind, '/api/v1')}{place}/{kind.lower()}s"


def pods(namespace: str | None) -> str:
    """Returns the path of the pods of a namespace; None: of all namespaces."""
    return collection("Pod", namespace)


def runs(cluster: ClusterApi, namespace: str | None, labels: str = PART_OF) -> list[Object]:
    """Returns the Jobs, and the PaddleJobs if their operator is installed, each with its kind,
    which a list leaves out.
    """
    return [
        {"kind": kind, **document}
        for kind in GROUPS
        for document in cluster.items(collection(kind, namespace), labels)
    ]


def path(run: Mapping[str, Any]) -> str:
    """Returns the path of a Job or PaddleJob."""
    return f"{collection(run['kind'], run['metadata']['namespace'])}/{run['metadata']['name']}"


def selector(job: str) -> str:
    """Returns the label selector for everything that belongs to one job."""
    return f"{PART_OF},{INSTANCE}={job}"


def variable(spec: Mapping[str, Any], name: str) -> str:
    """Returns an environment variable of a pod's first container; empty if it is not set."""
    environment = spec["containers"][0].get("env") or ()
    return next((str(entry.get("value", "")) for entry in environment if entry["name"] == name), "")


def processes(text: str) -> int:
    """Returns how many processes train in each pod, by the value of its variable."""
    return int(text) if text.isdecimal() else 1


def template(run: Mapping[str, Any]) -> Object:
    """Returns the pod template of a Job, or of a PaddleJob's workers."""
    pod: Object = run["spec"].get("worker", run["spec"])["template"]
    return pod


def component(document: Mapping[str, Any]) -> str:
    """Returns data, trainer, worker, ps or reader; empty for a PaddleJob."""
    return label(document, COMPONENT)


def newest(documents: Iterable[Object], of_component: str) -> Object | None:
    """Returns a component's Job, or the PaddleJob: the one that has not ended, else the one that
    was created last.
    """
    candidates = [document for document in documents if component(document) == of_component]
    return max(candidates, key=lambda it: (not has_ended(it), creation_time(it)), default=None)


def newest_training(documents: Sequence[Object]) -> Object | None:
    """Returns the newest training Job, or PaddleJob."""
    return newest(documents, "trainer") or newest(documents, "")


def settings_of(
    run: Mapping[str, Any], read_config: Callable[[str], Mapping[str, str]]
) -> dict[str, str]:
    """Returns what the pods of a training are made with, by name: the variables of its program, its
    number of pods, its image and its resources; not what names the job itself. A command is a shell
    line. `read_config` returns the data of a ConfigMap.
    """
    (container, *_) = template(run)["spec"]["containers"]
    found = {
        "pods": run["spec"].get("completions"),
        "image": container.get("image"),
        **container.get("resources", {}).get("requests", {}),
        **{
            key: value
            for source in container.get("envFrom", ())
            if "configMapRef" in source
            for key, value in read_config(source["configMapRef"]["name"]).items()
        },
        **{entry["name"]: entry.get("value") for entry in container.get("env", ())},
    }
    for name in (Variable.COMMAND, Variable.RESUME):
        with suppress(KeyError, TypeError, ValueError):
            found[name] = shlex.join(json.loads(found[name]))
    return {
        key.removeprefix("PADDLE_NODE_").lower(): str(value)
        for key, value in found.items()
        if value is not None and key not in _IDENTITY
    }


def drop_earlier_pods(jobs: Iterable[Object], pods: Iterable[Object]) -> list[Object]:
    """Leaves out the pods of earlier runs, whose Jobs the cluster has not forgotten yet."""
    jobs_ = list(jobs)
    last = [newest(jobs_, of_component) for of_component in {component(job) for job in jobs_}]
    earlier = {job["metadata"]["name"] for job in jobs_ if job not in last}
    return [pod for pod in pods if label(pod, JOB_NAME) not in earlier]


def is_paddle_job(run: Mapping[str, Any]) -> bool:
    """Returns whether a PaddleJob, and no Job, runs the pods."""
    return run.get("kind") == "PaddleJob"


def has_ended(job: Mapping[str, Any]) -> bool:
    """Returns whether a Job or a PaddleJob has ended."""
    if is_paddle_job(job):
        return paddle_job.phase_of(job) in ("done", "failed")
    return condition(job, "Complete") is not None or condition(job, "Failed") is not None


def _read_phase(job: Object, running: bool, refused: str) -> tuple[Phase, str]:
    """Returns the phase of a Job or PaddleJob, and why it failed or waits."""
    if is_paddle_job(job):
        return paddle_job.phase_of(job), paddle_job.waits_for_operator(job) or refused
    if condition(job, "Complete"):
        return "done", ""
    if failed := condition(job, "Failed"):
        message = ": ".join(filter(None, (failed.get("reason"), failed.get("message"))))
        return "failed", reasons.first_sentence("failed", message, message)
    if job.get("spec", {}).get("suspend"):
        return "suspended", "it waits for its queue, or was suspended"
    return "running" if running else "waiting", refused


@dataclass(frozen=True)
class JobState:
    """One Job object in words."""

    object: str
    phase: Phase
    reason: str
    """Why it failed or waits, in Kubernetes' words; empty if there is nothing to say."""
    completions: int
    """Pods that have to succeed."""
    active: int
    succeeded: int
    failed: int
    """Pods that failed, replaced ones included."""
    created: datetime | None
    finished: datetime | None
    image: str
    cancelled: bool = False
    """Whether its job was cancelled later: this is the data job of the cancelled training, or an
    earlier run.
    """
    processes: int = 1
    """Processes that train in each pod."""

    @property
    def wanted(self) -> int:
        """The old name of `completions`."""
        return self.completions

    @property
    def ended(self) -> bool:
        return self.phase in ("done", "failed")

    def seconds(self, now: datetime) -> float | None:
        """Returns how long it has run, or ran."""
        return ((self.finished or now) - self.created).total_seconds() if self.created else None


def read_state(job: Object, running: bool = False, refused: str = "") -> JobState:
    """Puts a Job's conditions, or a PaddleJob's status, into words; for a Job, `running` says
    whether one of its pods runs.

    `refused`: why its pods cannot be created.
    """
    phase, reason = _read_phase(job, running, refused)
    spec, status = job.get("spec", {}), job.get("status", {})
    end = condition(job, "Complete") or condition(job, "Failed") or {}
    finished = status.get("completionTime") if is_paddle_job(job) else end.get("lastTransitionTime")
    if is_paddle_job(job):
        spec, status = spec.get("worker") or {}, status.get("worker") or {}
    containers = spec.get("template", {}).get("spec", {}).get("containers") or [{}]
    return JobState(
        object=job["metadata"]["name"],
        phase=phase,
        reason=reason,
        completions=int(
            spec.get("replicas") or spec.get("completions") or spec.get("parallelism") or 1
        ),
        # A PaddleJob counts its running pods.
        active=int(status.get("active") or status.get("running") or 0),
        succeeded=int(status.get("succeeded") or 0),
        failed=int(status.get("failed") or 0),
        created=moment(creation_time(job)),
        finished=moment(finished),
        image=str(containers[0].get("image", "")),
        cancelled=CANCELLED in (job["metadata"].get("annotations") or {}),
        processes=processes(variable({"containers": containers}, Variable.PROCESSES)),
    )

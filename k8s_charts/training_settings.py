"""How to train: the job's own settings and the user's variables, in an immutable ConfigMap whose name carries its hash.

What says who a pod is and how it finds its peers and its data stays in the pod's own `env`, where the tutorials have it.
The kubelet hands a ConfigMap's values on as they are: nothing in them is expanded, so nothing has to be escaped.
"""

from __future__ import annotations

import json

from cdk8s_plus_33 import k8s
from constructs import Construct
from paddle_node import contract
from paddle_node.contract import Variable

from k8s_charts import names
from k8s_charts.spec import TrainingJob
from k8s_charts.value_types import amount

GRACE_MARGIN = 5
"""Seconds of the grace period that are left for the container to leave."""
STAGE = f"{contract.HOME}/shard"


def values(job: TrainingJob) -> dict[str, str]:
    """The ConfigMap's data."""
    found: dict[Variable, object] = {
        Variable.RUNTIME: job.chosen_runtime,
        Variable.PASSES: job.passes,
        Variable.KEEP_PASSES: job.keep_passes,
        Variable.ATTEMPTS: job.limits.attempts,
        Variable.PEER_DEADLINE: job.limits.peer_deadline_seconds,
        Variable.GRACE: job.limits.grace_period_seconds - GRACE_MARGIN,
        Variable.STALL: job.limits.stall_seconds,
        Variable.SEED: job.seed,
    }
    if job.checkpoint_minutes:
        found[Variable.CHECKPOINT] = f"{60 * job.checkpoint_minutes:g}"
    if job.resume_from != "same":
        found[Variable.RESUME_FROM] = job.resume_from
    if job.data is not None and job.data.stage != "never" and not job.data.shared:
        found[Variable.STAGE_TO] = STAGE
        found[Variable.STAGE] = job.data.stage
        # Said, because a pod sees its node's disk and not its own share of it, and is evicted when it takes more.
        found[Variable.STAGE_ROOM] = int(amount(job.resources.scratch))
    if job.gpus.count:
        found[Variable.GPUS] = job.gpus.count
    if job.command is not None:
        found |= {
            Variable.COMMAND: json.dumps(job.command),
            Variable.PROCESSES: job.chosen_processes,
            Variable.RESUME: json.dumps(job.resume),
            Variable.PROGRESS: job.progress or "",
            Variable.SUCCESS: job.success or "",
            Variable.TEMPLATES: ",".join(name for name, text in job.environment.items() if "{" in text or "}" in text),
        }
        found = {name: value for name, value in found.items() if value not in ("", "[]")}
    return {**{str(name): str(value) for name, value in found.items()}, **job.environment}


def add(scope: Construct, job: TrainingJob) -> str:
    """Adds the ConfigMap; returns its name. A changed setting is another ConfigMap, and so another Job: none changes in a run."""
    data = values(job)
    name = names.hashed(f"{job.name}-settings", data)
    metadata = k8s.ObjectMeta(name=name, namespace=job.namespace, labels=names.labels(job, "trainer"))
    k8s.KubeConfigMap(scope, "Settings", metadata=metadata, immutable=True, data=data)
    return name

"""The training as a PaddleJob: parameter servers and workers in pods of their own, run by the PaddleJob operator.

The operator (batch.paddlepaddle.org/v1) names the pods `<job>-ps-<i>` and `<job>-worker-<i>` and tells each its role
and its peers by environment variables; what runs in them is the image's affair, or `command`'s.
"""

from __future__ import annotations

from typing import Any

from cdk8s import Chart
from cdk8s_plus_33 import k8s
from constructs import Construct
from paddle_node import contract
from paddle_node.contract import Variable

from k8s_charts import custom_object, gang, names, network, own_program, placement, pod, variables
from k8s_charts.namespace import takes_the_node
from k8s_charts.outputs import ClusterOutputs
from k8s_charts.spec import TrainingJob

CONTAINER = "paddle"
SERVICE_PORT = 36000
"""Where pods that meet by Service listen: the operator's own choice."""
DATA_JOB_ANNOTATION = "paddle-aws/data-job"
"""Which data job a pod's shards come from: for people, since the pods run programs that know nothing of it."""


def _environment(job: TrainingJob) -> list[k8s.EnvVar]:
    """Where a program of our image finds its data; an image without a volume needs none of it."""
    own = [
        variables.plain(Variable.JOB_NAME, job.name),
        variables.plain(Variable.JOB_PATH, variables.literal(job.volume.mount_path)),
        variables.plain(Variable.TRAIN_CONFIG_DIR, variables.literal(job.program.folder)),
        variables.plain(Variable.THREADS, job.threads),
        variables.plain(Variable.PASSES, job.passes),
        variables.plain(Variable.SEED, job.seed),
    ]
    more = [variables.plain(name, value) for name, value in _told_beside_the_operator(job).items() if name not in job.environment]
    return [*(own if job.data is not None else []), *more, *variables.users(job.environment.items())]


def _told_beside_the_operator(job: TrainingJob) -> dict[str, str]:
    """What programs need and its operator, release v0.3.5, does not tell; a user's own value goes before it."""
    found = {}
    if job.image is not None:
        # A foreign image knows no user 1000, whose home would be /, which is read-only.
        found["HOME"] = contract.HOME
    if job.operator.intranet == "Service":
        # The endpoints it tells have this port, and the PADDLE_PORT that it tells is another: Paddle's servers refuse to start.
        found["PADDLE_PORT"] = str(SERVICE_PORT)
    if job.operator.etcd_server is not None:
        found["PADDLE_ELASTIC_SERVER"] = job.operator.etcd_server
    return found


class PaddleJobChart(Chart):
    """PaddleJob, PodGroup where a gang is asked for, NetworkPolicies and PodDisruptionBudget."""

    def __init__(
        self, scope: Construct, job: TrainingJob, outputs: ClusterOutputs, image: str, *, data_job: str | None = None
    ) -> None:
        super().__init__(scope, f"{job.name}-training")
        self._job, self._outputs, self._image = job, outputs, image
        # With a data job the program comes to the volume; without one it is mounted in the pods themselves.
        self._program = None if job.splits else own_program.add(self, job, "worker")
        servers = job.parameter_servers or 0
        roles: list[names.Role] = ["ps", "worker"] if servers else ["worker"]
        members = servers + job.trainers
        # Pods on their node's network are beyond a NetworkPolicy.
        if not takes_the_node(job):
            more = [] if job.data is not None else [network.to_anywhere(443)]
            if job.operator.etcd_server is not None:
                more.append(network.to_anywhere(int(job.operator.etcd_server.rpartition(":")[2])))
            network.peers(self, job, roles, more=more)
        # None may be evicted: nothing brings a PaddleJob's training back that has lost a pod, so a drain waits for its end.
        # Elastic workers may come and go.
        least = members if job.operator.elastic is None else members - 1
        labels = names.labels(job)
        either = {"key": names.COMPONENT, "operator": "In", "values": list(roles)}
        selector = {"matchExpressions": [either], "matchLabels": dict(sorted(labels.items()))}
        pod.disruption_budget(self, job, least, selector, labels)
        gang.pod_group(self, job, members=members, with_gpus=members if job.gpus.parameter_servers else job.trainers)
        metadata = {"name": job.name, "namespace": job.namespace, "labels": names.labels(job)}
        kind = {"apiVersion": "batch.paddlepaddle.org/v1", "kind": "PaddleJob", "metadata": metadata}
        custom_object.add(self, {**kind, "spec": self._spec(servers, data_job)})

    def _spec(self, servers: int, data_job: str | None) -> dict[str, Any]:
        settings = self._job.operator
        spec: dict[str, Any] = {"cleanPodPolicy": settings.clean_pod_policy, "intranet": settings.intranet}
        if settings.with_gloo is not None:
            spec["withGloo"] = settings.with_gloo
        if settings.elastic is not None:
            spec["elastic"] = settings.elastic
        if servers:
            spec["ps"] = {"replicas": servers, "template": self._template("ps", data_job)}
        spec["worker"] = {"replicas": self._job.trainers, "template": self._template("worker", data_job)}
        return spec

    def _template(self, role: names.Role, data_job: str | None) -> Any:
        job = self._job
        gpus = job.gpus.count if role == "worker" or job.gpus.parameter_servers else 0
        container = pod.container(
            job,
            name=CONTAINER,
            image=self._image,
            command=[variables.literal(part) for part in job.command] if job.command is not None else None,
            arguments=[variables.literal(argument) for argument in job.arguments],
            environment=_environment(job),
            resources=job.resources,
            gpus=gpus,
            program=self._program,
            # A foreign image starts where its own WORKDIR says.
            working_dir=contract.HOME if job.image is None else None,
        )
        template = pod.template(
            job,
            role=role,
            container=container,
            resources=job.resources,
            placement=placement.of(job, role, gpus=gpus > 0, spread=True),
            service_account=names.TRAINER_ACCOUNT,
            claim=names.claim(job, self._outputs),
            # A PaddleJob has no time limit of its own.
            deadline_seconds=int(job.limits.hours * 3600),
            # Only the workers name Volcano: the operator takes the job's scheduler from them.
            scheduler=gang.scheduler(job) if role == "worker" else None,
            program=self._program,
            annotations={DATA_JOB_ANNOTATION: data_job} if data_job else None,
        )
        manifest = k8s.KubePodTemplate.manifest(template=template)
        return manifest["template"]

"""The training as a PaddleJob: parameter servers and workers in pods of their own, run by the
PaddleJob operator.

The operator (batch.paddlepaddle.org/v1) names the pods `<job>-ps-<i>` and `<job>-worker-<i>`, and
tells each its role and peers in environment variables. What runs in the pods is up to the image, or
to `command`.
"""

from collections.abc import Mapping
from typing import Any

from constructs import Construct
from paddle_node import contract
from paddle_node.contract import Variable

from k8s_charts import names, yaml_documents
from k8s_charts.job_chart import JobChart
from k8s_charts.kinds.data_job import WaitingChart
from k8s_charts.pods import network, pod, scheduling
from k8s_charts.pods.pod import literal
from k8s_charts.spec import TrainingJob

SERVICE_PORT = 36000
"""Where pods that meet through Services listen; the operator chose this port."""
HOST_PORTS = range(36_000, 56_020)
"""Ports of pods on their nodes' network: the operator (v0.3.5, paddlejob_helper.go) draws the first
of twenty.
"""


class OperatorChart(JobChart):
    """The PaddleJob operator, for a cluster without one: one per job namespace, with rights in that
    namespace only.
    """

    def __init__(
        self, scope: Construct, job: TrainingJob, *, labels: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(scope, "paddle-operator", job, labels=labels)
        image = job.operator.operator_image
        (definition,) = yaml_documents.template("paddle_job_definition.yaml")
        space, account, role, binding, policy, deployment = yaml_documents.template(
            "operator.yaml",
            namespace=job.namespace,
            image=image,
            pull_policy=pod.pull_policy(image),
        )
        policy["spec"]["egress"] = [network.RULES["names"], network.RULES["api-server"]]
        if job.gang.kind == "volcano":
            groups = {"apiGroups": ["scheduling.volcano.sh"], "resources": ["podgroups"]}
            role["rules"].append({**groups, "verbs": ["get", "list", "watch", "create", "delete"]})
            deployment["spec"]["template"]["spec"]["containers"][0]["args"].append(
                "--scheduling=volcano"
            )
        yaml_documents.add(self, definition, space, account, role, binding, policy, deployment)


def _environment(job: TrainingJob) -> dict[Any, object]:
    """Returns where a program of our image finds its data, what the operator (v0.3.5) leaves out,
    and the user's variables.
    """
    ours: dict[Any, object] = {
        Variable.JOB_NAME: job.name,
        Variable.JOB_PATH: literal(job.volume.mount_path),
        Variable.TRAIN_CONFIG_DIR: literal(job.program.folder),
        Variable.THREADS: job.threads,
        Variable.PASSES: job.passes,
        Variable.SEED: job.seed,
    }
    return {
        **(ours if job.data is not None else {}),
        # A foreign image has no user 1000, whose home would be /, which is read-only.
        "HOME": contract.HOME if job.image is not None else None,
        # The operator's endpoints have this port, but its PADDLE_PORT is another: Paddle's servers
        # would refuse to start.
        "PADDLE_PORT": SERVICE_PORT if job.operator.intranet == "Service" else None,
        "PADDLE_ELASTIC_SERVER": job.operator.etcd_server,
        **{name: literal(value) for name, value in job.environment.items()},
    }


class PaddleJobChart(WaitingChart):
    """PaddleJob, PodGroup if a gang is asked for, NetworkPolicies and PodDisruptionBudget.

    Args:
        job: the job.
        outputs: the stacks' outputs.
        image: the trainer image, by digest.
        data_job: the identity of the split whose shards the trainers wait for.
        labels: labels of all objects in the chart.
        customize: changes a pod's template in place.
    """

    role = "worker"

    def _add_objects(self) -> None:
        job, outputs = self._job, self._outputs
        # With a data job the program is on the volume; without one the pods mount it themselves.
        if not job.splits:
            self._mount_program()
        servers = job.parameter_servers or 0
        roles: list[names.Role] = ["ps", "worker"] if servers else ["worker"]
        members = servers + job.trainers
        # NetworkPolicies do not apply to pods on their node's network.
        if not job.takes_the_node:
            more = [] if job.data is not None else [network.allow_ports(443)]
            if job.operator.etcd_server is not None:
                more.append(network.allow_ports(int(job.operator.etcd_server.rpartition(":")[2])))
            network.add_peer_policy(self, job, roles, outputs, more=more)
        # No pod may be evicted: a PaddleJob's training does not recover from a lost pod, so a drain
        # waits for its end. Elastic workers may come and go.
        least = members if job.operator.elastic is None else members - 1
        common = names.labels(job)
        either = {"key": names.COMPONENT, "operator": "In", "values": list(roles)}
        selector = {"matchExpressions": [either], "matchLabels": dict(sorted(common.items()))}
        self._add_disruption_budget(least, selector, common)
        with_gpus = members if job.gpus.parameter_servers else job.trainers
        scheduling.add_pod_group(self, job, members=members, with_gpus=with_gpus)
        metadata = {"name": job.name, "namespace": job.namespace, "labels": common}
        template, settings = self._role_template, job.operator
        spec = {
            "cleanPodPolicy": settings.clean_pod_policy,
            "intranet": settings.intranet,
            "withGloo": settings.with_gloo,
            "elastic": settings.elastic,
            "ps": {"replicas": servers, "template": template("ps")} if servers else None,
            "worker": {"replicas": job.trainers, "template": template("worker")},
        }
        yaml_documents.add(
            self,
            {
                "apiVersion": "batch.paddlepaddle.org/v1",
                "kind": "PaddleJob",
                "metadata": metadata,
                "spec": {field: value for field, value in spec.items() if value is not None},
            },
        )

    def _role_template(self, role: names.Role) -> pod.Object:
        job = self._job
        container = {
            "name": "paddle",
            "command": [literal(word) for word in job.command or ()],
            "args": [literal(argument) for argument in job.arguments],
            "env": pod.environment(_environment(job)),
            "envFrom": pod.environment_from(job),
            # A foreign image starts where its own WORKDIR says.
            "workingDir": contract.HOME if job.image is None else None,
        }
        # Only the workers name Volcano: the operator takes the job's scheduler from them.
        volcano = job.gang.kind == "volcano" and role == "worker"
        spec = {
            "serviceAccountName": names.TRAINER_ACCOUNT,
            # A PaddleJob has no time limit of its own.
            "activeDeadlineSeconds": int(job.limits.hours * 3600),
            "schedulerName": "volcano" if volcano else None,
        }
        # For people who read the object: the programs in the pods do not use it.
        note = {"paddle-aws/data-job": self.data_job} if self.data_job else None
        return self._template(role, container, spec, note)

"""The training Job: one pod a trainer, each with a parameter server and a trainer in it.

Discovery by index: an Indexed Job, whose indexes survive the pods, and a headless Service by which peers find each
other. Discovery by pod-list is the tutorials' way: the pods ask the API server, which takes an account with that right.
"""

from __future__ import annotations

from cdk8s import Chart
from cdk8s_plus_33 import k8s
from constructs import Construct
from paddle_node import contract
from paddle_node.contract import Variable

from k8s_charts import custom_object, gang, names, network, placement, pod, training_settings, variables
from k8s_charts.outputs import ClusterOutputs
from k8s_charts.spec import TrainingJob


def _pserver_ports(job: TrainingJob) -> dict[str, int]:
    """The tutorials' names: jobport0 and so on."""
    return {f"jobport{i}": port for i, port in enumerate(job.ports.pserver)}


def _container_ports(job: TrainingJob) -> list[k8s.ContainerPort]:
    on_host = job.ports.on_host
    named = {"control": job.ports.control, **_pserver_ports(job)}
    others = [port for port in on_host if port not in named.values()]
    named |= {f"jobport{f'-{port}' if len(others) > 1 else ''}": port for port in others}
    return [
        k8s.ContainerPort(name=name, container_port=port, host_port=port if port in on_host else None, protocol="TCP")
        for name, port in named.items()
    ]


def _probe(*, period: int, failures: int) -> k8s.Probe:
    return k8s.Probe(
        exec=k8s.ExecAction(command=[contract.PROBE_ENTRY_POINT]),
        period_seconds=period,
        timeout_seconds=10,
        failure_threshold=failures,
    )


def _environment(job: TrainingJob, data_job: str | None) -> list[k8s.EnvVar]:
    by_index = job.discovery == "index"
    return [
        *variables.identity(job_name=job.name, namespace=job.namespace),
        variables.plain(Variable.JOB_PATH, variables.literal(job.volume.mount_path)),
        variables.plain(Variable.TRAIN_CONFIG_DIR, variables.literal(job.program.name)),
        *variables.archive(job),
        variables.plain(Variable.NIC, variables.literal(job.network_device)),
        variables.plain(Variable.PORT, job.ports.first),
        variables.plain(Variable.PORTS_NUM, job.ports.dense),
        variables.plain(Variable.PORTS_NUM_SPARSE, job.ports.sparse),
        variables.plain(Variable.TRAINERS, job.trainers),
        variables.plain(Variable.THREADS, job.threads),
        *([variables.plain(Variable.SERVICE, names.service(job))] if by_index else []),
        variables.plain(Variable.DISCOVERY, job.discovery),
        variables.plain(Variable.CONTROL_PORT, job.ports.control),
        *([variables.plain(Variable.DATA_JOB, data_job)] if data_job is not None else []),
    ]


class TrainingChart(Chart):
    """Job, its settings, NetworkPolicy, PodDisruptionBudget, and the headless Service or the rights that discovery takes.

    `data_job` is the identity of the data job whose shards the trainers wait for: new data or a new program make a new
    training Job as well.
    """

    def __init__(
        self, scope: Construct, job: TrainingJob, outputs: ClusterOutputs, image: str, *, data_job: str | None = None
    ) -> None:
        super().__init__(scope, f"{job.name}-training")
        self._job = job
        self._labels = names.labels(job, "trainer")
        by_index = job.discovery == "index"
        if by_index:
            self._service()
        else:
            account = names.pod_list_account(job)
            for document in custom_object.written("pod_list.yaml", account=account, namespace=job.namespace, job=job.name):
                custom_object.add(self, document)
        network.peers(self, job, ["trainer"], more=[] if by_index else [network.RULES["api-server"]])
        # One pod at a time may be evicted: that costs all of them the pass they are in, and lets a drained node go.
        # None at all would hold every drain up until the job ends.
        pod.disruption_budget(self, job, job.trainers - 1, {"matchLabels": dict(sorted(self._labels.items()))}, self._labels)
        gang.pod_group(self, job, members=job.trainers, with_gpus=job.trainers)
        self._training(outputs, image, data_job)

    def _service(self) -> None:
        job = self._job
        (service,) = custom_object.written("peers.yaml", name=names.service(job), namespace=job.namespace, job=job.name)
        ports = {"control": job.ports.control, **_pserver_ports(job)}
        service["spec"]["ports"] = [{"name": name, "port": port, "protocol": "TCP"} for name, port in ports.items()]
        custom_object.add(self, service)

    def _training(self, outputs: ClusterOutputs, image: str, data_job: str | None) -> None:
        job = self._job
        by_index = job.discovery == "index"
        container = pod.container(
            job,
            name="trainer",
            image=image,
            command=[contract.ENTRY_POINT],
            arguments=[variables.literal(argument) for argument in job.arguments],
            environment=_environment(job, data_job),
            settings=training_settings.add(self, job),
            resources=job.resources,
            gpus=job.gpus.count,
            ports=_container_ports(job),
            # Five minutes to come up. A silent agent is killed by the probe itself (paddle_node.agent.health) before the kubelet
            # would end the pod for it, which takes all of the pod's grace period; a step that hangs is the kubelet's.
            startup_probe=_probe(period=5, failures=60),
            liveness_probe=_probe(period=15, failures=6),
        )
        template = pod.template(
            job,
            role="trainer",
            container=container,
            resources=job.resources,
            placement=placement.of(job, "trainer", gpus=job.gpus.count > 0, spread=True),
            service_account=names.TRAINER_ACCOUNT if by_index else names.pod_list_account(job),
            token=not by_index,
            subdomain=names.service(job) if by_index else None,
            scheduler=gang.scheduler(job),
            claim=names.claim(job, outputs),
            annotations=gang.pod_annotations(job),
            probe_may_kill=True,
        )
        spec = pod.job_spec(job, template, job.trainers, indexed=by_index, suspend=gang.suspended(job))
        document = pod.with_restart_rules(k8s.KubeJob.manifest(spec=spec), outputs)
        metadata = {
            "name": names.immutable(job, job.name, document),
            "namespace": job.namespace,
            "labels": {**self._labels, **gang.queue_labels(job)},
        }
        custom_object.add(self, {**document, "metadata": metadata})

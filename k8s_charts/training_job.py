"""The training Job: one pod a trainer, each with an index that survives the pod, found by name through a headless Service."""

from __future__ import annotations

from cdk8s import Chart
from cdk8s_plus_33 import k8s
from constructs import Construct
from paddle_node import contract
from paddle_node.contract import Variable

from k8s_charts import names, network, pod, variables
from k8s_charts.spec import TrainingJob


def _ports() -> dict[str, int]:
    """Every port that a trainer pod listens on under a fixed number, by its name."""
    count = contract.PORTS_NUM + contract.PORTS_NUM_SPARSE
    return {"control": contract.CONTROL_PORT, **{f"pserver{i}": contract.FIRST_PORT + i for i in range(count)}}


def _probe(*, period: int, failures: int) -> k8s.Probe:
    return k8s.Probe(
        exec=k8s.ExecAction(command=[contract.PROBE_ENTRY_POINT]),
        period_seconds=period,
        timeout_seconds=10,
        failure_threshold=failures,
    )


def _environment(job: TrainingJob) -> list[k8s.EnvVar]:
    return [
        *variables.identity(job_name=job.name),
        variables.plain(Variable.JOB_PATH, contract.VOLUME_MOUNT),
        variables.plain(Variable.TRAIN_CONFIG_DIR, variables.literal(job.program.folder)),
        variables.plain(Variable.NIC, "eth0"),
        variables.plain(Variable.PORT, contract.FIRST_PORT),
        variables.plain(Variable.PORTS_NUM, contract.PORTS_NUM),
        variables.plain(Variable.PORTS_NUM_SPARSE, contract.PORTS_NUM_SPARSE),
        variables.plain(Variable.TRAINERS, job.trainers),
        variables.plain(Variable.THREADS, job.threads),
        variables.plain(Variable.SERVICE, names.service(job)),
        variables.plain(Variable.DISCOVERY, "index"),
        variables.plain(Variable.RUNTIME, "fleet-ps"),
        variables.plain(Variable.PASSES, job.passes),
        variables.plain(Variable.KEEP_PASSES, job.keep_passes),
        variables.plain(Variable.ATTEMPTS, job.limits.attempts),
        variables.plain(Variable.CONTROL_PORT, contract.CONTROL_PORT),
        variables.plain(Variable.PEER_DEADLINE, job.limits.peer_deadline_seconds),
        variables.plain(Variable.SEED, job.seed),
        *variables.users(job.environment.items()),
    ]


class TrainingChart(Chart):
    """Headless Service, NetworkPolicy, PodDisruptionBudget and Indexed Job."""

    def __init__(self, scope: Construct, job: TrainingJob, image: str) -> None:
        super().__init__(scope, f"{job.name}-training")
        selected = names.labels(job, "trainer")
        ports = _ports()
        k8s.KubeService(
            self,
            "Service",
            metadata=k8s.ObjectMeta(name=names.service(job), namespace=job.namespace, labels=selected),
            spec=k8s.ServiceSpec(
                cluster_ip="None",
                # Peers look for each other before any of them is ready: that is how they become ready.
                publish_not_ready_addresses=True,
                selector=selected,
                ports=[k8s.ServicePort(name=name, port=number, protocol="TCP") for name, number in ports.items()],
            ),
        )
        network.trainers(self, job)
        k8s.KubePodDisruptionBudget(
            self,
            "DisruptionBudget",
            metadata=k8s.ObjectMeta(name=names.service(job), namespace=job.namespace, labels=selected),
            spec=k8s.PodDisruptionBudgetSpec(
                # Every pod holds a part of the parameters. An integer: Kubernetes takes no percentage for a Job's pods.
                min_available=k8s.IntOrString.from_number(job.trainers),
                selector=k8s.LabelSelector(match_labels=selected),
                unhealthy_pod_eviction_policy="AlwaysAllow",
            ),
        )
        container = pod.container(
            role="trainer",
            image=image,
            command=contract.ENTRY_POINT,
            arguments=[variables.literal(argument) for argument in job.arguments],
            environment=_environment(job),
            resources=job.resources,
            ports=[k8s.ContainerPort(name=name, container_port=number, protocol="TCP") for name, number in ports.items()],
            # Five minutes to come up, then a minute and a half of silence counts as hung.
            startup_probe=_probe(period=5, failures=60),
            liveness_probe=_probe(period=30, failures=3),
        )
        template = pod.template(
            job,
            role="trainer",
            container=container,
            resources=job.resources,
            service_account=names.TRAINER_ACCOUNT,
            subdomain=names.service(job),
            spread=[
                k8s.TopologySpreadConstraint(
                    max_skew=1,
                    topology_key="kubernetes.io/hostname",
                    # A wish: on a cluster of one node the job still runs.
                    when_unsatisfiable="ScheduleAnyway",
                    label_selector=k8s.LabelSelector(match_labels=selected),
                )
            ],
        )
        spec = k8s.JobSpec(
            template=template,
            completion_mode="Indexed",
            parallelism=job.trainers,
            completions=job.trainers,
            backoff_limit=job.limits.retries,
            pod_failure_policy=pod.failure_policy("trainer"),
            # A replacement starts when its predecessor is gone: never two pods under one index.
            pod_replacement_policy="Failed",
            active_deadline_seconds=int(job.limits.hours * 3600),
            ttl_seconds_after_finished=int(job.limits.keep_finished_hours * 3600),
        )
        k8s.KubeJob(
            self,
            "Job",
            metadata=k8s.ObjectMeta(
                name=names.hashed(job.name, k8s.KubeJob.manifest(spec=spec)), namespace=job.namespace, labels=selected
            ),
            spec=spec,
        )

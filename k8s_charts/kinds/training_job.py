"""The training Job: one pod per trainer, each with a trainer and, in mode parameter-server, a
parameter server in it.

Discovery by index: an Indexed Job, whose indexes survive the pods, and a headless Service by which
peers find each other. Discovery by pod-list is the tutorials' way: the pods ask the API server,
which requires an account with that right.

A pod's `env` says who it is and how it finds its peers and its data, as in the tutorials. An
immutable ConfigMap says how to train. The kubelet hands its values on unchanged: nothing in them is
expanded, so nothing has to be escaped.
"""

import json
from typing import Any

from paddle_node import contract
from paddle_node.contract import Variable

from k8s_charts import names, yaml_documents
from k8s_charts.kinds.data_job import WaitingChart
from k8s_charts.pods import network, pod, scheduling
from k8s_charts.pods.pod import literal
from k8s_charts.spec import TrainingJob
from k8s_charts.spec.value_types import amount


def settings(job: TrainingJob) -> dict[str, str]:
    """Returns the ConfigMap's data: how to train, including the user's variables."""
    data = job.data
    stages = data is not None and data.stage == "always" and not data.shared
    local = job.checkpoints == "local"
    variables: dict[Any, object] = {
        Variable.RUNTIME: job.way.runtime,
        **pod.settings_by_variable(job),
        **pod.settings_by_variable(job.limits),
        # Five seconds of the grace period are left for the container to exit.
        Variable.GRACE: job.limits.grace_period_seconds - 5,
        Variable.CHECKPOINT: 60 * job.checkpoint_minutes or None,
        Variable.RESUME_FROM: job.resume_from if job.resume_from != "same" else None,
        Variable.METRICS_PORT: job.ports.metrics if job.scrape is not None else None,
        Variable.STAGE_TO: f"{contract.HOME}/shard" if stages else None,
        # A pod sees its node's disk, not its own share of it, and is evicted if it uses more than
        # its share.
        Variable.STAGE_ROOM: int(amount(job.resources.scratch)) if stages or local else None,
        Variable.CHECKPOINTS: "local" if local else None,
        Variable.GPUS: job.gpus.count or None,
        **(
            {Variable.EFA: job.resources.efa, **scheduling.EFA_VARIABLES}
            if job.resources.efa
            else {}
        ),
    }
    if job.way.command:
        variables |= {
            Variable.COMMAND: json.dumps(job.command),
            Variable.PROCESSES: job.chosen_processes,
            Variable.RESUME: json.dumps(job.resume) if job.resume else None,
            **_recipe(job),
            Variable.METRICS: json.dumps(job.metrics) if job.metrics else None,
            Variable.NAN: "fail" if job.limits.nan == "fail" else None,
            Variable.APART: "true" if job.apart else None,
            Variable.TEMPLATES: ",".join(
                name for name, text in job.environment.items() if "{" in text or "}" in text
            )
            or None,
        }
    return {
        **{str(name): pod.text(value) for name, value in variables.items() if value is not None},
        **job.environment,
    }


def _recipe(job: TrainingJob) -> dict[Any, object]:
    """Returns the part of the job's recipe that the pods read."""
    if (recipe := job.applied_recipe) is None:
        return {}
    return {
        Variable.RECIPE: recipe.sentence,
        Variable.RESUME_LINE: json.dumps(recipe.resume_line) if recipe.resume_line else None,
        Variable.CHECKPOINT_FILES: json.dumps(recipe.files) if recipe.files else None,
        Variable.CHECKPOINT_LAST: recipe.last or None,
        Variable.MODEL: recipe.model or None,
    }


def _pserver_ports(job: TrainingJob) -> dict[str, int]:
    """Returns the ports by the tutorials' names: jobport0 and so on."""
    return {f"jobport{i}": port for i, port in enumerate(job.ports.pserver)}


def _container_ports(job: TrainingJob) -> list[pod.Object]:
    on_host = job.ports.on_host
    named = {"control": job.ports.control, **_pserver_ports(job)}
    others = [port for port in on_host if port not in named.values()]
    named |= {"metrics": job.ports.metrics} if job.scrape is not None else {}
    named |= {f"jobport{f'-{port}' if len(others) > 1 else ''}": port for port in others}
    return [
        {
            "name": name,
            "containerPort": port,
            "hostPort": port if port in on_host else None,
            "protocol": "TCP",
        }
        for name, port in named.items()
    ]


def _scrape_annotations(job: TrainingJob) -> dict[str, str]:
    """Returns the annotations by which a Prometheus finds what to scrape."""
    if job.scrape is None:
        return {}
    return {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(job.ports.metrics),
        "prometheus.io/path": contract.METRICS_PATH,
    }


def _environment(
    job: TrainingJob, data_job: str | None, service: str | None, image: str
) -> dict[Any, object]:
    return {
        **pod.identity(job),
        Variable.JOB_PATH: literal(job.volume.mount_path),
        Variable.TRAIN_CONFIG_DIR: literal(job.program.name),
        Variable.PROGRAM_ARCHIVE: job.program.archive.digest if job.program.archive else None,
        Variable.NIC: literal(job.network_device),
        **pod.settings_by_variable(job.ports),
        Variable.TRAINERS: job.trainers,
        Variable.THREADS: job.threads,
        Variable.SERVICE: service,
        Variable.DISCOVERY: job.discovery,
        Variable.CONTROL_PORT: job.ports.control,
        Variable.DATA_JOB: data_job,
        Variable.ENVIRONMENT: names.environment(job, image),
    }


class TrainingChart(WaitingChart):
    """Job, its settings, NetworkPolicy, PodDisruptionBudget, and the headless Service or the rights
    that discovery requires.

    `data_job` is the identity of the data job whose shards the trainers wait for, so new data or a
    new program makes a new training Job as well. Default: of the job's DataChart in `scope`, else
    of the one that these arguments would make.

    Args:
        job: the job.
        outputs: the stacks' outputs.
        image: the trainer image, by digest.
        data_job: the identity of the split whose shards the trainers wait for.
        labels: labels of all objects in the chart.
        customize: changes a pod's template in place.

    Raises:
        SettingError: one sentence, for settings that do not fit.
    """

    role = "trainer"

    def _add_objects(self) -> None:
        job, outputs, indexed = self._job, self._outputs, self._job.discovery == "index"
        trainers = names.labels(job, "trainer")
        ports = {"control": job.ports.control, **_pserver_ports(job)}
        service, account = (job.name if indexed else None), names.TRAINER_ACCOUNT
        if indexed:
            (peers,) = yaml_documents.template("peers.yaml", namespace=job.namespace, job=job.name)
            peers["spec"]["ports"] = [
                {"name": name, "port": port, "protocol": "TCP"} for name, port in ports.items()
            ]
            yaml_documents.add(self, peers)
        else:
            account = f"{job.name}-pod-list"
            rights = yaml_documents.template(
                "pod_list.yaml", account=account, namespace=job.namespace, job=job.name
            )
            yaml_documents.add(self, *rights)
        # Pods that ask the API server get a token, and may reach it.
        rules = [] if indexed else [network.RULES["api-server"]]
        network.add_peer_policy(self, job, ["trainer"], outputs, more=rules)
        # One pod at a time may be evicted. That costs all pods their current pass, but a budget of
        # no pods would block every drain until the job ends.
        selector = {"matchLabels": dict(sorted(trainers.items()))}
        self._add_disruption_budget(job.trainers - 1, selector, trainers)
        scheduling.add_pod_group(self, job, members=job.trainers, with_gpus=job.trainers)
        config = self._add_config_map("settings", settings(job))
        (parts,) = yaml_documents.template(
            "trainer.yaml",
            entry_point=contract.ENTRY_POINT,
            home=contract.HOME,
            probe=contract.PROBE_ENTRY_POINT,
        )
        container = parts["container"] | {
            "args": [literal(argument) for argument in job.arguments],
            "env": pod.environment(_environment(job, self.data_job, service, self._trainer_image)),
            "envFrom": pod.environment_from(job, config),
            "ports": _container_ports(job),
            **pod.restart_rules(outputs),
        }
        volcano = job.gang.kind == "volcano"
        spec = parts["spec"] | {
            "serviceAccountName": account,
            "automountServiceAccountToken": not indexed,
            "subdomain": service,
            "schedulerName": "volcano" if volcano else None,
        }
        # Volcano finds a pod's PodGroup by this annotation.
        group = {"scheduling.k8s.io/group-name": job.name} if volcano else {}
        notes = {**group, **_scrape_annotations(job)}
        template = self._template("trainer", container, spec, notes)
        # Kueue starts a job by clearing its `suspend`.
        suspend = True if job.gang.kind == "kueue" else None
        self._add_job(
            pod.job_document(job, template, job.trainers, indexed=indexed, suspend=suspend),
            stem=job.name,
            labels=scheduling.queue_labels(job),
        )

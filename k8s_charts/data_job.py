"""The data-split Job: stages the source, splits it into one shard a trainer, and puts the program on the volume."""

from __future__ import annotations

from cdk8s import Chart
from cdk8s_plus_33 import k8s
from constructs import Construct
from paddle_node import contract
from paddle_node.contract import Variable

from k8s_charts import names, network, pod, variables
from k8s_charts.outputs import ClusterOutputs
from k8s_charts.spec import TrainingJob


def source(job: TrainingJob, outputs: ClusterOutputs) -> str:
    """Where the data job reads: a local file lies in the deployed bucket by then, under the job's name."""
    local = job.data.local_file
    if local is None:
        return variables.literal(job.data.source)
    # The bucket may be a token of a CDK app, which must stay whole: only the user's part is escaped.
    return f"s3://{outputs.bucket_name}/sources/{job.name}/{variables.literal(local.name)}"


def program(job: TrainingJob) -> str:
    """The image's folder that the data job copies to the volume; empty: the volume has it."""
    return f"{contract.PROGRAMS}/{job.program.folder}" if job.program.origin == "image" else ""


class DataChart(Chart):
    """Job and NetworkPolicy of the split."""

    def __init__(self, scope: Construct, job: TrainingJob, outputs: ClusterOutputs, image: str) -> None:
        super().__init__(scope, f"{job.name}-data")
        seed = job.data.shuffle_seed
        container = pod.container(
            role="data",
            image=image,
            command=contract.DATA_ENTRY_POINT,
            arguments=(),
            environment=[
                *variables.identity(job_name=job.name),
                variables.plain(Variable.JOB_PATH, contract.VOLUME_MOUNT),
                variables.plain(Variable.OUT_DIR, f"{contract.VOLUME_MOUNT}/{job.name}"),
                variables.plain(Variable.SPLIT_COUNT, job.trainers),
                variables.plain(Variable.DATA_SOURCE, source(job, outputs)),
                variables.plain(Variable.DATA_FORMAT, variables.literal(job.data.format)),
                variables.plain(Variable.HOLD_OUT, f"{job.data.hold_out:g}"),
                variables.plain(Variable.SHUFFLE_SEED, "" if seed is None else seed),
                variables.plain(Variable.PROGRAM_FROM, variables.literal(program(job))),
                variables.plain(Variable.TRAIN_CONFIG_DIR, variables.literal(job.program.folder)),
            ],
            resources=job.data_resources,
        )
        template = pod.template(
            job, role="data", container=container, resources=job.data_resources, service_account=names.DATA_ACCOUNT
        )
        spec = k8s.JobSpec(
            template=template,
            parallelism=1,
            completions=1,
            backoff_limit=job.limits.retries,
            pod_failure_policy=pod.failure_policy("data"),
            pod_replacement_policy="Failed",
            active_deadline_seconds=int(job.limits.hours * 3600),
            ttl_seconds_after_finished=int(job.limits.keep_finished_hours * 3600),
        )
        network.data(self, job)
        k8s.KubeJob(
            self,
            "Job",
            metadata=k8s.ObjectMeta(
                name=names.hashed(f"{job.name}-data", k8s.KubeJob.manifest(spec=spec)),
                namespace=job.namespace,
                labels=names.labels(job, "data"),
            ),
            spec=spec,
        )

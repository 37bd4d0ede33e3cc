"""The data-split Job: stages the source, splits it into shards, and puts the program on the volume."""

from __future__ import annotations

from cdk8s import Chart
from cdk8s_plus_33 import k8s
from constructs import Construct
from paddle_node import contract
from paddle_node.contract import Variable

from k8s_charts import job_folder, names, network, own_program, placement, pod, variables
from k8s_charts.outputs import ClusterOutputs
from k8s_charts.own_program import OwnProgram
from k8s_charts.spec import DATA_ENDING, TrainingJob


def source(job: TrainingJob, outputs: ClusterOutputs) -> str:
    """Where the data job reads: a local file lies in the deployed bucket by then, under the job's name."""
    if job.data is None or job.data.source is None:
        return ""
    local = job.data.local_file
    if local is None:
        return variables.literal(job.data.source)
    # The bucket may be a token of a CDK app, which must stay whole: only the user's part is escaped.
    return f"s3://{outputs.bucket_name}/sources/{job.name}/{variables.literal(local.name)}"


def program(job: TrainingJob) -> str:
    """The container's folder that the data job copies to the volume; empty: the volume has it."""
    places = {"image": contract.PROGRAMS, "configmap": own_program.PLACE}
    place = places.get(job.program.origin)
    return f"{place}/{job.program.folder}" if place else ""


def _environment(job: TrainingJob, outputs: ClusterOutputs, identity: str) -> list[k8s.EnvVar]:
    data = job.data
    if data is None:
        raise ValueError("a job without data has no data job")
    profile = outputs.data_job_credentials == "instance-profile"
    return [
        *variables.identity(job_name=job.name, namespace=job.namespace),
        variables.field(Variable.POD_UID, "metadata.uid"),
        variables.plain(Variable.JOB_PATH, variables.literal(job.volume.mount_path)),
        variables.plain(Variable.OUT_DIR, variables.literal(f"{job.volume.mount_path}/{job.name}")),
        variables.plain(Variable.SPLIT_COUNT, 1 if data.shared else data.shards or job.trainers),
        variables.plain(Variable.SPLIT_PODS, data.splitters),
        variables.plain(Variable.DATA_SOURCE, source(job, outputs)),
        variables.plain(Variable.DATA_FORMAT, "files" if data.shared else variables.literal(data.format)),
        *([variables.plain(Variable.SHARED, copies)] if (copies := job_folder.shared(job)) else []),
        variables.plain(Variable.HOLD_OUT, repr(data.hold_out).removesuffix(".0")),
        *([] if data.shuffle_seed is None or data.shared else [variables.plain(Variable.SHUFFLE_SEED, data.shuffle_seed)]),
        *([variables.plain(Variable.PROGRAM_FROM, variables.literal(program(job)))] if program(job) else []),
        variables.plain(Variable.TRAIN_CONFIG_DIR, variables.literal(job.program.name)),
        *(variables.archive(job) if ":" in data.format else []),
        *([variables.plain(Variable.DATA_JOB, identity)] if identity else []),
        # The pod identity agent tells the region with the credentials; an instance's profile does not.
        *([variables.plain("AWS_REGION", outputs.region)] if profile and outputs.region else []),
    ]


class DataChart(Chart):
    """Job and NetworkPolicy of the split, and the ConfigMap of a program that came with the job file."""

    job_name: str
    """The Job object's name."""
    identity: str
    """Hash of the Job's spec: the split says in its manifest whose it is, and trainers wait for that."""

    def __init__(self, scope: Construct, job: TrainingJob, outputs: ClusterOutputs, image: str) -> None:
        super().__init__(scope, f"{job.name}{DATA_ENDING}")
        own = own_program.add(self, job, "data")
        network.data(self, job, outputs)
        self.identity = names.fingerprint(k8s.KubeJob.manifest(spec=self._spec(job, outputs, image, own, "")))
        self.job_name = names.data_job(job, self.identity)
        k8s.KubeJob(
            self,
            "Job",
            metadata=k8s.ObjectMeta(name=self.job_name, namespace=job.namespace, labels=names.labels(job, "data")),
            spec=self._spec(job, outputs, image, own, self.identity),
        )

    @staticmethod
    def _spec(job: TrainingJob, outputs: ClusterOutputs, image: str, own: OwnProgram | None, identity: str) -> k8s.JobSpec:
        container = pod.container(
            job,
            name="data",
            image=image,
            command=[contract.DATA_ENTRY_POINT],
            arguments=(),
            environment=_environment(job, outputs, identity),
            resources=job.data_resources,
            program=own,
            reads_source=True,
        )
        template = pod.template(
            job,
            role="data",
            container=container,
            resources=job.data_resources,
            placement=placement.of(job, "data", gpus=False, spread=False),
            service_account=names.DATA_ACCOUNT,
            claim=names.claim(job, outputs),
            program=own,
        )
        # One pod counts its failures; of several one index lost is the split lost.
        splitters = job.data.splitters if job.data is not None else 1
        return pod.job_spec(job, template, splitters, indexed=splitters > 1)

"""The data-split Job: stages the source, splits it into shards, and puts the program on the
volume.
"""

import json
from collections.abc import Mapping
from typing import Any

from cdk8s import App
from constructs import Construct
from paddle_node import contract
from paddle_node.contract import Variable

from k8s_charts import names
from k8s_charts.deployed import ClusterOutputs
from k8s_charts.pods import job_folder, network, pod
from k8s_charts.pods.pod import literal
from k8s_charts.spec import TrainingJob
from k8s_charts.spec.data import Data, FromJob
from k8s_charts.spec.job_settings import DATA_ENDING


def source(job: TrainingJob, outputs: ClusterOutputs) -> str:
    """Returns where the data job reads. A local file is in the deployed bucket by then, under the
    job's name, or in the job's folder on the volume.
    """
    if job.data is None or job.data.source is None:
        return ""
    if (local := job.local_file) is None:
        return literal(job.data.source)
    if (uploaded := job.uploaded) is not None:
        return literal(f"{job.volume.mount_path}/{uploaded}")
    # The bucket may be a token of a CDK app, which must stay whole: only the user's part is
    # escaped.
    return f"s3://{outputs.bucket_name}/sources/{job.name}/{literal(local.name)}"


def input_source(job: TrainingJob, name: str, outputs: ClusterOutputs) -> str:
    """Returns where the data job reads an input, as `contract.Variable.INPUTS` has it. A local file
    is there by then.
    """
    source = job.inputs[name]
    if isinstance(source, FromJob):
        return f"job:{source.from_job}" + (f"/{source.path}" if source.path else "")
    if name not in job.input_files:
        return source
    path = job.place_of_input(name)
    if not job.uploads_to_bucket:
        return f"{job.volume.mount_path}/{path}"
    _, _, *below = path.parts
    return f"s3://{outputs.bucket_name}/{'/'.join((contract.SOURCES, job.name, *below))}"


def _program(job: TrainingJob) -> str | None:
    """Returns the container's folder that the data job copies to the volume; None if it copies
    none.
    """
    place = {"image": contract.PROGRAMS, "configmap": pod.INLINE_PROGRAMS}.get(job.program.origin)
    return place and literal(f"{place}/{job.program.folder}")


def _environment(
    job: TrainingJob, data: Data | None, outputs: ClusterOutputs, image: str, identity: str
) -> dict[Any, object]:
    # The pod identity agent supplies the region with the credentials; an instance profile does not.
    inputs = {name: literal(input_source(job, name, outputs)) for name in job.inputs}
    shared, form = (data.shared, data.format) if data is not None else (False, "")
    region = outputs.region if outputs.data_job_credentials == "instance-profile" else ""
    return {
        **pod.identity(job),
        Variable.POD_UID: pod.FieldPath("metadata.uid"),
        Variable.JOB_PATH: literal(job.volume.mount_path),
        Variable.OUT_DIR: literal(f"{job.volume.mount_path}/{job.name}"),
        Variable.SPLIT_COUNT: 1 if shared else (data and data.shards) or job.trainers,
        Variable.SPLIT_PODS: data.splitters if data is not None else None,
        Variable.DATA_SOURCE: source(job, outputs) if data is not None else None,
        Variable.DATA_FORMAT: "files" if shared else literal(form) or None,
        Variable.HEADER: 1 if data is not None and data.header else None,
        Variable.INPUTS: json.dumps(inputs) if inputs or data is None else None,
        Variable.SHARED: job_folder.shared_copy(job),
        **({} if shared or data is None else pod.settings_by_variable(data)),
        Variable.PROGRAM_FROM: _program(job),
        Variable.TRAIN_CONFIG_DIR: literal(job.program.name),
        Variable.PROGRAM_ARCHIVE: job.program.archive.digest
        if job.program.archive and ":" in form
        else None,
        Variable.ENVIRONMENT: names.environment(job, image) if job.reads_records else None,
        Variable.DATA_JOB: identity or None,
        "AWS_REGION": region or None,
        **outputs.proxy_variables,
    }


class DataChart(pod.PodChart):
    """Job and NetworkPolicy of the split, and the ConfigMap of a program that came with the job
    file.

    Args:
        job: the job.
        outputs: the stacks' outputs.
        image: the trainer image, by digest.
        labels: labels of all objects in the chart.
        customize: changes a pod's template in place.
    """

    ending = DATA_ENDING
    role = "data"
    identity: str
    """Hash of the Job's spec. The split writes it into its manifest, and trainers wait for a
    manifest with it.
    """

    def _add_objects(self) -> None:
        self._mount_program()
        self._mount_certificates()
        network.add_data_policy(self, self._job, self._outputs)
        self.identity = names.fingerprint(self._document(""))
        self._add_job(
            self._document(self.identity),
            stem=f"{self._job.name}{DATA_ENDING}",
            fingerprint=self.identity,
        )

    def _document(self, identity: str) -> pod.Object:
        """Returns the Job without its metadata."""
        job = self._job
        splitters = job.data.splitters if job.data is not None else 1
        variables = _environment(job, job.data, self._outputs, self._trainer_image, identity)
        container = {
            "name": "data",
            "command": [contract.DATA_ENTRY_POINT],
            "env": pod.environment(variables),
            "workingDir": contract.HOME,
        }
        template = self._template("data", container, {"serviceAccountName": names.DATA_ACCOUNT})
        # A single pod counts its failures. If one of several indexes is lost, so is the split.
        return pod.job_document(job, template, splitters, indexed=splitters > 1)


class WaitingChart(pod.PodChart):
    """A training's chart. Its pods wait for the shards of one data job.

    Args:
        data_job: that data job's identity. Default: of the job's DataChart in `scope`, else of the
            one that these arguments would make.
    """

    ending = "-training"

    def __init__(
        self,
        scope: Construct,
        job: TrainingJob,
        outputs: ClusterOutputs,
        image: str,
        *,
        data_job: str | None = None,
        labels: Mapping[str, str] | None = None,
        customize: pod.Customize | None = None,
    ) -> None:
        if not data_job and job.splits:
            beside = scope.node.try_find_child(f"{job.name}{DATA_ENDING}")
            chart = (
                beside if isinstance(beside, DataChart) else DataChart(App(), job, outputs, image)
            )
            data_job = chart.identity
        self.data_job = data_job
        super().__init__(scope, job, outputs, image, labels=labels, customize=customize)

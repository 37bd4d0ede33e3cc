"""Submits a job's documents to a cluster: checks them first, then applies them in order, the data
split before the training.

Never overwrites a running job. An interrupted submission continues: each step server-side applies
the same documents.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from k8s_charts.deployed import Deployed
from k8s_charts.spec import TrainingJob
from paddle_aws.operations.cluster.cluster_api import ClusterApi, NotInstalled, Object
from paddle_aws.operations.errors import BadInput, Failed
from paddle_aws.operations.jobs import early_checks
from paddle_aws.operations.jobs.job_source import JobSource
from paddle_aws.operations.jobs.objects.job_objects import (
    component,
    has_ended,
    path,
    runs,
    selector,
)
from paddle_aws.operations.jobs.objects.object_fields import creation_time
from paddle_aws.operations.jobs.removal import remove
from paddle_aws.operations.options import job_arguments
from paddle_aws.operations.screen import age

KIND_DEADLINE = 60.0
"""Seconds within which the API server has to serve a new kind of object; it takes a few."""


@dataclass(frozen=True)
class Submission:
    """A job to submit, with its documents."""

    job: TrainingJob
    source: JobSource
    deployed: Deployed
    documents: tuple[Object, ...]

    @classmethod
    def load(cls, source: JobSource, outputs_file: Path, image_file: Path) -> Self:
        """Loads the job, and the files that deploy and push wrote. Raises SettingError with one
        sentence.
        """
        # Imported here: cdk8s starts Node, and `paddle-aws --help` need not wait for that.
        from k8s_charts import documents

        job = source.load(fetch=True)
        deployed = Deployed.load(job, outputs_file, image_file)
        early_checks.check_deployed(job, outputs_file)
        early_checks.check_host_path(job, deployed.outputs)
        return cls(
            job, source, deployed, tuple(documents.documents(job, deployed.outputs, deployed.image))
        )

    @property
    def name(self) -> str:
        return self.job.name

    @property
    def namespace(self) -> str:
        return self.job.namespace

    @property
    def file(self) -> Path:
        """The job file, or what stands for it in the folder of its local paths."""
        return self.source.file

    @property
    def plain_job_file(self) -> Path | None:
        """The job file, if no option overrides it: then it describes the job's volume."""
        return None if self.source.overrides else self.source.file

    @property
    def data_job(self) -> Object | None:
        """The data-split Job, if there is one."""
        jobs = (document for document in self.documents if document["kind"] == "Job")
        return next((job for job in jobs if component(job) == "data"), None)

    @property
    def training(self) -> Object:
        """The Job or PaddleJob that trains."""
        return self.documents[-1]

    @property
    def local_file(self) -> Path | None:
        """The local data file to upload first, if there is one."""
        local = self.job.local_file
        return self.file.parent / local if local is not None else None

    @property
    def input_files(self) -> dict[str, Path]:
        """The local files among the inputs, by name."""
        return {name: self.file.parent / file for name, file in self.job.input_files.items()}

    def documents_before_data(self) -> list[Object]:
        """Returns the documents to apply before the data Job, in order; none if there is no data
        Job.
        """
        return list(self.documents[: self.documents.index(self.data_job)]) if self.data_job else []

    def documents_after_data(self) -> list[Object]:
        """Returns the documents to apply once the data is on the volume."""
        after = self.documents.index(self.data_job) + 1 if self.data_job else 0
        return list(self.documents[after:])

    def check(self, cluster: ClusterApi, again: bool = False) -> None:
        """Raises BadInput if this cluster cannot take the job now; `again` allows a finished run to
        be repeated.
        """
        if self.deployed.missing:
            raise BadInput(
                f"{self.deployed.missing}; deploy with `cdk deploy --all --outputs-file "
                "outputs.json`, or name your own in the job file: any Kubernetes is enough then "
                "(docs/jobs.md)"
            )
        early_checks.check_data(self.job, self.file, cluster.say)
        early_checks.check_inputs(self.job, self.file)
        definitions = [d for d in self.documents if d["kind"] == "CustomResourceDefinition"]
        defined = {definition["spec"]["names"]["kind"] for definition in definitions}
        for document in self.documents:
            if document["kind"] not in defined:
                cluster.path(document)
        name = self.name
        before = [
            document["metadata"]["name"]
            for document in self.documents
            if document["kind"] == "Job" and component(document) in ("data", "environment")
        ]
        for run in self._runs(cluster):
            run_name, since = run["metadata"]["name"], age(creation_time(run))
            if not has_ended(run):
                if run_name in before:
                    continue
                raise BadInput(
                    f"job {name} runs already ({run_name}, for {since}): wait for it, end it with "
                    f"`paddle-aws cancel {job_arguments(name, self.namespace)}`, or give this one "
                    "another name"
                )
            if run_name == self.training["metadata"]["name"] and not again:
                raise BadInput(
                    f"this job has run already ({run_name}, {since} ago): `paddle-aws resume` "
                    "continues it from its newest pass, `paddle-aws delete "
                    f"{job_arguments(name, self.namespace)}` removes it from the cluster"
                )

    def apply(self, cluster: ClusterApi, documents: list[Object]) -> None:
        """Applies documents in order; an API server takes a moment to serve a newly defined
        kind.
        """
        deadline = time.monotonic() + KIND_DEADLINE
        if any(component(document) == "environment" for document in documents):
            # It may have failed; where the environment is on the volume, a new one ends at once.
            for run in self._runs(cluster):
                if component(run) == "environment" and has_ended(run):
                    remove(cluster, path(run))
        for document in documents:
            while True:
                try:
                    cluster.apply(document)
                    break
                except NotInstalled as error:
                    if time.monotonic() > deadline:
                        raise Failed(
                            f"{error}, {KIND_DEADLINE:.0f} s after its definition was applied"
                        ) from None
                    time.sleep(0.5)
        if documents:
            names = ", ".join(dict.fromkeys(document["kind"] for document in documents))
            cluster.say(f"applied {len(documents)} objects to cluster {cluster.name}: {names}")

    def data_jobs(self, cluster: ClusterApi) -> list[Object]:
        """Returns this job's data Jobs that the cluster still has, including those of earlier job
        files.
        """
        return [run for run in self._runs(cluster) if component(run) == "data"]

    def _runs(self, cluster: ClusterApi) -> list[Object]:
        return runs(cluster, self.namespace, selector(self.name))

    def delete_ended(self, cluster: ClusterApi, *, data: bool) -> None:
        """Deletes this job's ended training, so that it can run again; with `data`, all its ended
        data Jobs instead. The next one splits again, and is the only one that says whose the shards
        are.
        """
        training = self.training["metadata"]["name"]
        for run in self._runs(cluster):
            meant = component(run) == "data" if data else run["metadata"]["name"] == training
            if meant and has_ended(run):
                remove(cluster, path(run))

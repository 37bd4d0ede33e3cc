"""A job's volume where the cluster has forgotten the job: its image, its claim and its volume as the job file describes them.

Promises: what is on the cluster already is used as it is; what had to be made is removed again, unless the job has come
back meanwhile and needs it. The folder on the file system is never touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from operations.cluster import Cluster, Object
from operations.errors import BadInput
from operations.job_objects import PADDLE_JOB, jobs, selector
from operations.job_view import operator_jobs
from operations.submission import Submission, remove

VOLUME = ("Namespace", "PersistentVolume", "PersistentVolumeClaim")


@dataclass
class DescribedVolume:
    """What a job file says of a job's volume."""

    job: str
    namespace: str
    documents: Sequence[Object]
    template: Object
    _made: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, job: str, namespace: str, file: Path | None) -> DescribedVolume:
        """From the job file that was named, or job.yaml where that is this job's. Raises BadInput where there is none."""
        found = file or Path("job.yaml")
        gone = f"job {job} has no Job or PaddleJob ({PADDLE_JOB}) in namespace {namespace} any more"
        if not found.is_file():
            raise BadInput(f"{gone}, and there is no job.yaml here that describes its volume: name its job file instead")
        submission = Submission.load(found, Path("outputs.json"), Path("image.json"))
        if (submission.job.name, submission.job.namespace) != (job, namespace):
            raise BadInput(f"{gone}, and {found} describes another one ({submission.job.name}): name its job file instead")
        if submission.outputs.placeholders:
            raise BadInput(f"{gone}, and outputs.json does not exist: `cdk deploy --all --outputs-file outputs.json` writes it")
        return cls.of(submission)

    @classmethod
    def of(cls, submission: Submission) -> DescribedVolume:
        """From a job file that is read already."""
        training = submission.training
        spec = training["spec"] if submission.operator else {"worker": training["spec"]}
        return cls(submission.job.name, submission.job.namespace, submission.documents, spec["worker"]["template"])

    def bring(self, cluster: Cluster) -> None:
        """Makes the namespace, the volume and the claim where they are not there."""
        for document in self.documents:
            if document["kind"] in VOLUME:
                path = cluster.path(document)
                if cluster.find(path) is None:
                    cluster.apply(document)
                    if document["kind"] != "Namespace":
                        self._made.append(path)

    def remove(self, cluster: Cluster, pod: str) -> None:
        """Removes what `bring` made, once the pod that used it is gone, and waits: a claim on its way out lets no pod start."""
        if not self._made:
            return
        remove(cluster, pod)
        if cluster.items(jobs(self.namespace), selector(self.job)) or operator_jobs(cluster, self.namespace, self.job):
            return
        for path in reversed(self._made):
            remove(cluster, path)
        self._made.clear()

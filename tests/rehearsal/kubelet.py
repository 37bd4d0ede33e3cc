"""Runs the Jobs of the tests' Kubernetes API as a rehearsal runs them: submitted jobs train.

Limits: those of the API (tests/operations) and of a rehearsal's pods; a pod's log appears only when
its Job has ended.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from job_controller import JobController, Script

from paddle_aws.rehearsal.folder import RehearsalFolder
from paddle_aws.rehearsal.pods import manifests
from paddle_aws.rehearsal.pods.addresses import AddressBlock
from paddle_aws.rehearsal.pods.job import run_job
from paddle_aws.rehearsal.pods.pod import Identity

Object = dict[str, Any]
OF_THE_API = {"uid", "creationTimestamp", "resourceVersion"}


class Kubelet(JobController):
    """A cluster that runs its Jobs below `folder`, with the image and the programs of `project`."""

    def __init__(self, project: Path, folder: RehearsalFolder, identity: Identity) -> None:
        super().__init__()
        self.volume = folder.volume
        self._project, self._folder, self._identity = project, folder, identity

    def control(self, document: Object) -> None:
        if document["kind"] != "Job":
            return super().control(document)
        try:
            self._run_job(document)
        except Exception as error:
            self.finish(document, 1, f"the tests' kubelet: {error!r}")
            raise

    def _run_job(self, document: Object) -> None:
        names = []
        for index in range(document["spec"]["completions"]):
            pod = self.pod(document, index)
            self.run(pod, Script(lines=()))
            names.append(pod["metadata"]["name"])
        read = manifests.read(
            [
                as_written(one)
                for one in list(self.objects.values())
                if one["kind"] not in ("Pod", "Event")
            ]
        )
        host = self._folder.host(
            self._project, read, self._project / ".venv-image" / "bin", self._identity
        )
        job = next(job for job in read.jobs if job.name == document["metadata"]["name"])
        with AddressBlock() as addresses:
            result = asyncio.run(run_job(job, host, addresses))
        for end in result.ended:
            of = next(
                (name for name in names if name.rpartition("-")[0] == end.name.rpartition("-")[0]),
                names[0],
            )
            for log in end.logs.values():
                for line in log.read_text().splitlines():
                    self.say(of, line)
        culprit = result.culprit
        self.finish(document, culprit.codes[culprit.failed_container] or 1 if culprit else 0)


def as_written(document: Object) -> Mapping[str, Any]:
    """Returns the document without what the API adds."""
    metadata = {
        name: value for name, value in document["metadata"].items() if name not in OF_THE_API
    }
    return {name: value for name, value in document.items() if name != "status"} | {
        "metadata": metadata
    }

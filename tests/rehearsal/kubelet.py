"""Runs the Jobs of the tests' Kubernetes API as a rehearsal runs them: submitted jobs train, and a
pod that is deleted ends, and is replaced.

Limits: those of the API (tests/operations) and of a rehearsal's pods.
"""

import asyncio
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from job_controller import JobController, Script

from paddle_aws.rehearsal.folder import RehearsalFolder
from paddle_aws.rehearsal.pods import manifests
from paddle_aws.rehearsal.pods.addresses import AddressBlock
from paddle_aws.rehearsal.pods.job import Watcher, run_job
from paddle_aws.rehearsal.pods.pod import Identity, Pod, PodEnd

Object = dict[str, Any]
OF_SETUP = ("paddle-deployers", "paddle-readers")
"""What `paddle-aws setup` applies, by how its names begin: none is a job's."""
OF_THE_API = {"uid", "creationTimestamp", "resourceVersion"}


class Kubelet(JobController):
    """A cluster that runs its Jobs below `folder`, with the image and the programs of `project`."""

    def __init__(self, project: Path, folder: RehearsalFolder, identity: Identity) -> None:
        super().__init__()
        self.volume = folder.volume
        self.living: dict[str, Reporter] = {}
        """Who reports each pod that runs, by the pod's name."""
        self._project, self._folder, self._identity = project, folder, identity
        self._jobs: list[threading.Thread] = []

    def __exit__(self, *error: object) -> None:
        for reporter in list(self.living.values()):
            reporter.cancel()
        for job in self._jobs:
            job.join(60)
        super().__exit__(*error)

    def control(self, document: Object) -> None:
        if document["kind"] != "Job":
            return super().control(document)
        thread = threading.Thread(target=self._run_or_fail, args=(document,), daemon=True)
        self._jobs.append(thread)
        thread.start()

    def remove(self, document: Object, finalizers: bool = True) -> None:
        reporter = self.living.get(document["metadata"]["name"])
        if document["kind"] != "Pod" or reporter is None:
            return super().remove(document, finalizers)
        document["metadata"]["deletionTimestamp"] = "2026-11-29T00:00:00Z"
        reporter.terminate(document)

    def _run_or_fail(self, document: Object) -> None:
        try:
            self._run_job(document)
        except Exception as error:
            self.finish(document, 1, f"the tests' kubelet: {error!r}")
            raise

    def _run_job(self, document: Object) -> None:
        read = manifests.read(
            [
                as_written(one)
                for one in list(self.objects.values())
                if one["kind"] not in ("Pod", "Event", "DaemonSet", "Node")
                and not one["metadata"]["name"].startswith(OF_SETUP)
            ]
        )
        host = self._folder.host(
            self._project, read, self._project / ".venv-image" / "bin", self._identity
        )
        job = next(job for job in read.jobs if job.name == document["metadata"]["name"])
        reporter = Reporter(self, document)
        with AddressBlock() as addresses:
            result = asyncio.run(
                run_job(job, host, addresses, reporter, cancelled=lambda: reporter.cancelled)
            )
        culprit = result.culprit
        code = culprit.codes[culprit.failed_container] or 1 if culprit else 0
        self.conclude(document, code, job.completions)


class Reporter(Watcher):
    """Tells the API of one Job's pods."""

    def __init__(self, api: Kubelet, job: Object) -> None:
        self._api, self._job, self._told = api, job, dict[Path, int]()
        self._pods: dict[str, Pod] = {}
        self._loop = asyncio.new_event_loop()
        self._failed = 0
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True

    def terminate(self, document: Object) -> None:
        pod = self._pods[document["metadata"]["name"]]
        asyncio.run_coroutine_threadsafe(pod.terminate(), self._loop)

    def pod_started(self, pod: Pod, index: int | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._pods[pod.facts.name] = pod
        self._api.living[pod.facts.name] = self
        self._api.run(self._document(pod, index), Script(lines=()))

    def pod_ended(self, pod: Pod, index: int | None, end: PodEnd, verdict: str) -> None:
        self._copy(pod)
        del self._api.living[pod.facts.name]
        document = self._document(pod, index)
        there = self._api.objects.get(self._api.path(document))
        if there is None:
            return
        code = 0 if end.succeeded else end.codes[end.failed_container] or 1
        if code and verdict == "retry":
            self._failed += 1
            self._api.put(self._job | {"status": {"failed": self._failed}})
        if "deletionTimestamp" in there["metadata"]:
            self._api.remove(there)
        else:
            self._api.end(document, code)

    async def follow(self) -> None:
        while True:
            for pod in list(self._pods.values()):
                self._copy(pod)
            await asyncio.sleep(0.1)

    def _document(self, pod: Pod, index: int | None) -> Object:
        document = self._api.pod(self._job, index or 0)
        document["metadata"]["name"] = pod.facts.name
        return document

    def _copy(self, pod: Pod) -> None:
        """Copies the new whole lines of its containers' logs."""
        for container in (*pod.template.init_containers, *pod.template.containers):
            log, name = pod.log(container.name), pod.facts.name
            if log.exists():
                text = log.read_bytes()[self._told.get(log, 0) :]
                whole = text[: text.rfind(b"\n") + 1]
                self._told[log] = self._told.get(log, 0) + len(whole)
                for line in whole.decode(errors="replace").splitlines():
                    self._api.say(name, line)


def as_written(document: Object) -> Mapping[str, Any]:
    """Returns the document without what the API adds."""
    metadata = {
        name: value for name, value in document["metadata"].items() if name not in OF_THE_API
    }
    return {name: value for name, value in document.items() if name != "status"} | {
        "metadata": metadata
    }

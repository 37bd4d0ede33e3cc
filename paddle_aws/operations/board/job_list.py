"""The page of all jobs of a namespace: state, loss, goodput and cost so far, from the cluster's API
alone. The page of a job below it mounts that job's folder when it is first opened.
"""

import re
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from threading import Lock
from typing import Any

from paddle_node.volume.progress import Progress

from paddle_aws.operations.board.job_page import JobPage
from paddle_aws.operations.board.site import NOT_FOUND, Query, Response, json_answer, read_page_file
from paddle_aws.operations.cluster.cluster_api import ClusterApi
from paddle_aws.operations.jobs.objects.job_objects import JobState
from paddle_aws.operations.jobs.progress import training_progress
from paddle_aws.operations.jobs.progress.training_progress import Goodput
from paddle_aws.operations.jobs.run import Run
from paddle_aws.operations.jobs.watch.job_view import JobView, list_jobs
from paddle_aws.operations.options import LABEL

CACHE_SECONDS = 3.0
"""Seconds for which a list is reused, so that several browsers cause one request to the cluster."""


class JobList:
    """Answers a browser's requests about a namespace's jobs. A context manager: at its end, the
    jobs' folders are unmounted.
    """

    def __init__(self, cluster: ClusterApi, namespace: str, usd_per_hour: float | None) -> None:
        self._cluster, self._namespace, self._usd_per_hour = cluster, namespace, usd_per_hour
        self._pages: dict[str, JobPage] = {}
        self._opening: dict[str, Lock] = {}
        self._volumes, self._lock = ExitStack(), Lock()
        self._document: tuple[float, dict[str, Any]] = (0.0, {})
        self._final: dict[str, tuple[Progress | None, Goodput | None]] = {}
        """Reports of trainings that have ended, by the name of their Job."""

    def __enter__(self) -> "JobList":
        return self

    def __exit__(self, *_: object) -> None:
        self._volumes.close()

    def answer(self, name: str, query: Query) -> Response:
        """Answers a request for the list, or for a job's page below it."""
        if name == "data":
            return json_answer(self.data())
        if below := re.fullmatch(rf"job/({LABEL.pattern})/(.*)", name):
            job, rest = below[1], below[below.re.groups]
            # The page itself is there before the folder, for which the browser then waits.
            if rest in ("data", "events", "log"):
                return self._open(job).answer(rest, query)
            return read_page_file(rest or "job.html")
        return NOT_FOUND if "/" in name else read_page_file(name or "jobs.html")

    def refresh(self) -> None:
        """Keeps the inspection pods of the opened jobs alive."""
        for page in list(self._pages.values()):
            page.refresh()

    def data(self) -> dict[str, Any]:
        """Returns the jobs of the namespace as they are now, the newest first."""
        with self._lock:
            read, document = self._document
            if time.monotonic() > read + CACHE_SECONDS or not document:
                views = list_jobs(self._cluster, self._namespace)
                document = {
                    "namespace": self._namespace,
                    "priced": self._usd_per_hour is not None,
                    "now": time.time(),
                    "jobs": [self._row(view) for view in views],
                }
                self._document = time.monotonic(), document
            return document

    def _open(self, job: str) -> JobPage:
        with self._lock:
            opening = self._opening.setdefault(job, Lock())
        with opening:
            if job not in self._pages:
                run = Run(self._cluster, job, self._namespace, None)
                run.status()  # A job that does not exist has no folder to mount.
                volume = self._volumes.enter_context(run.volume())
                self._pages[job] = JobPage(run, volume, None, self._usd_per_hour, listed=True)
            return self._pages[job]

    def _row(self, view: JobView) -> dict[str, Any]:
        training = None if view.cancelled else view.training
        progress, goodput = self._reports(view, training)
        paid = training.seconds(datetime.now(UTC)) if training is not None else None
        if goodput is not None:
            paid = goodput.seconds  # Of earlier runs as well.
        usd = None
        if training is not None and paid is not None and self._usd_per_hour is not None:
            usd = round(self._usd_per_hour * training.completions * paid / 3600, 2)
        job = training or view.data
        return {
            "job": view.name,
            "state": view.phase,
            "reason": view.reason,
            "pods": training.completions if training else None,
            "processes": training.processes if training else None,
            "loss": progress.as_json()["loss"] if progress else None,
            "progress": str(progress) if progress else "",
            "goodput": goodput.percent if goodput else None,
            "slow": goodput.slow if goodput else "",
            "usd": usd,
            "seconds": paid,
            "created": job.created.timestamp() if job and job.created else None,
        }

    def _reports(
        self, view: JobView, training: JobState | None
    ) -> tuple[Progress | None, Goodput | None]:
        """Returns the last reports of a training; None each without one."""
        if training is None:
            return None, None
        if training.object in self._final:
            return self._final[training.object]
        reports = training_progress.read_reports(self._cluster, self._namespace, view.pods)
        if training.ended:
            self._final[training.object] = reports
        return reports

"""The job of the rehearsal in this folder, while it runs and afterwards: its record, its volume and
its logs, as `.rehearsal` holds them, read only inside that folder.

The rehearsal, which writes all this, is not imported: only `evaluate` and `rehearse` start it, in a
process of its own.
"""

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from paddle_node.volume import progress
from pydantic import AwareDatetime, TypeAdapter, ValidationError

from paddle_aws.operations.errors import BadInput, Exit, Failed, TimedOut, translate_errors
from paddle_aws.operations.jobs.evaluation import Evaluation, check_program
from paddle_aws.operations.jobs.objects.job_objects import (
    GROUPS,
    JobState,
    newest_training,
    settings_of,
)
from paddle_aws.operations.jobs.objects.object_fields import Phase
from paddle_aws.operations.jobs.objects.pod_state import PodState
from paddle_aws.operations.jobs.progress.training_progress import parse_log
from paddle_aws.operations.jobs.saved_results import SavedResults
from paddle_aws.operations.jobs.volume.server import Folder, resolve_inside
from paddle_aws.operations.jobs.watch.job_view import JobView
from paddle_aws.operations.jobs.watch.log_stream import TRAINING, PodLine, PodSelection
from paddle_aws.operations.jobs.watch.waiting import ENDS, has_training_ended, require_success
from paddle_aws.operations.screen import age

FOLDER = Path(".rehearsal")
RECORD, LAST, LOCK, CANCEL = "job.json", "last", "lock", "cancel"
"""In a rehearsal's folder: its record; a marker that nothing has been submitted to a cluster since;
the file that a running rehearsal locks; the request to end its pods.
"""
LOGS, VOLUME, MANIFESTS = "logs", "volume", "manifests"
JOBS = "jobs"
"""Records, logs and manifests of the jobs that were rehearsed here before the last one, by name."""
POLL_INTERVAL = 0.5
"""Seconds between two looks at a rehearsal."""
TAIL = 1 << 18
"""Bytes of a log that are searched for its last report."""
CANCEL_DEADLINE = 120.0
"""Seconds within which a cancelled rehearsal's pods have ended: their grace period, and more."""


@dataclass(frozen=True)
class RehearsalRecord:
    """What a rehearsal records besides its volume and logs."""

    view: JobView
    root: str
    """The job's folder below `volume`."""
    interpreter: str
    """The first entry of the pods' PATH."""
    ended: AwareDatetime | None
    """None while it runs."""
    run: str = ""
    """The rehearsal's id, which the lock of a running rehearsal contains, too."""

    def write(self, folder: Path) -> None:
        """Writes the record into a rehearsal's folder; readers see the old one or the new one."""
        part = folder / f"{RECORD}.part"
        part.write_bytes(_RECORD.dump_json(self, indent=1))
        part.replace(folder / RECORD)
        (folder / LAST).touch()


_RECORD = TypeAdapter(RehearsalRecord)


def is_newest() -> bool:
    """Returns whether this folder's last run was a rehearsal, or one runs."""
    return (FOLDER / LAST).exists() or _holder(FOLDER) is not None


def use_cluster() -> None:
    """Makes commands refer to the cluster again: call it after a submission."""
    with suppress(OSError):
        (FOLDER / LAST).unlink()


class RehearsalBackend(SavedResults):
    """The `Backend` of a rehearsal."""

    def __init__(self, folder: Path, record: RehearsalRecord, place: Path | None = None) -> None:
        """`place`: where its record, logs and manifests are; default: `folder`."""
        self._folder, self._place, self.record = folder, place or folder, record
        self.name, self.namespace = record.view.name, record.view.namespace

    @property
    def age(self) -> str:
        """When it ended, or that it runs."""
        if self.running:
            return "which is running"
        if self.record.ended is None:
            return "which was killed"
        return f"{age(self.record.ended)} ago"

    @property
    def running(self) -> bool:
        """Whether the rehearsal's process is alive: it holds its lock until it ends."""
        holder = _holder(self._folder)
        return holder is not None and holder.get("run", "") == self.record.run

    @property
    def manifests(self) -> Path:
        """The folder with the manifests from which its pods were made."""
        self._own_record()
        return self._place / MANIFESTS

    def read_state(self) -> JobView:
        """Returns the job as it is recorded now. Raises Failed if the folder's rehearsal is
        another one by now.
        """
        running = self.running  # Before the record, which is written before the lock is freed.
        self.record = self._own_record()
        view = self.record.view
        if not running and self.record.ended is None:
            return _mark_killed(view)
        return view

    def status(self) -> JobView:
        """Returns the job as it is now, with how far its training is."""
        view = self.read_state()
        goodput = None
        first = [pod for pod in view.pods if (pod.component, pod.rank) == ("trainer", 0)]
        for log in self._log_files(first[-1]) if first else ():
            lines = self._read_log(log, -TAIL).decode(errors="replace").splitlines()
            _, goodput = parse_log(lines)
        with self.volume() as volume:  # Which checks whose logs these were, too.
            return replace(view, progress=progress.read(volume.read), goodput=goodput)

    def wait(self, timeout: float | None = None) -> JobView:
        """Returns once the training has succeeded. Raises JobFailed, or TimedOut."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not has_training_ended(view := self.read_state()) and self.running:
            if deadline is not None and time.monotonic() >= deadline:
                raise TimedOut(f"the rehearsal of {self.name} still runs after {timeout or 0:g} s")
            time.sleep(POLL_INTERVAL)
        require_success(view)
        return view

    def logs(
        self, selection: PodSelection = TRAINING, tail: int | None = None
    ) -> Iterator[PodLine]:
        """Yields one pod's lines after another's, as the lines carry no time."""
        chosen = [pod for pod in self.read_state().pods if selection.includes(pod)]
        if not chosen:
            raise BadInput(
                f"the rehearsal of {self.name} has no such pods: `paddle-aws status --rehearsal` "
                "lists those it had"
            )
        for pod in chosen:
            for file in self._log_files(pod):
                lines = self._read_log(file).decode(errors="replace").splitlines()
                self._own_record()  # After the log is read: the next run's may have its name.
                for text in lines[-tail or len(lines) :] if tail is not None else lines:
                    yield PodLine("", pod.who, text, pod.rank or 0)

    def follow(
        self, selection: PodSelection, tail: int | None, show: Callable[[PodLine], None]
    ) -> JobView:
        """Shows the pods' lines as they are written until the job, or the rehearsal, has ended."""
        has_ended = ENDS[selection.of]
        read_to: dict[Path, int] = {}
        while True:
            ends = not self.running
            view = self.read_state()
            ends = ends or has_ended(view)  # Before the logs are read: nothing comes after that.
            for pod in view.pods:
                for file in self._log_files(pod) if selection.includes(pod) else ():
                    with suppress(FileNotFoundError):
                        content = self._read_log(file, read_to.get(file, 0))
                        self._own_record()
                        whole, newline, rest = content.rpartition(b"\n")
                        lines = whole.split(b"\n") if newline else []
                        lines += [rest] if ends and rest else []
                        if file not in read_to and tail is not None:
                            lines = lines[-tail or len(lines) :]
                        read_to[file] = read_to.get(file, 0) + len(whole + newline)
                        for line in lines:
                            text = line.decode(errors="replace")
                            show(PodLine("", pod.who, text, pod.rank or 0))
            if ends:
                return view
            time.sleep(POLL_INTERVAL)

    def cancel(self) -> list[str]:
        """Ends the running Job's pods, which save first; returns the Job's name. Raises BadInput
        if the rehearsal runs, but none of its pods does.
        """
        if not self.running:
            return []
        view = self.read_state()
        jobs = [job for job in (view.data, view.training) if job is not None and not job.ended]
        if not any(pod.phase == "running" for pod in view.pods):
            raise BadInput(
                f"the rehearsal of {self.name} runs no pods now: Ctrl-C in its terminal ends it"
            )
        (self._folder / CANCEL).touch()
        deadline = time.monotonic() + CANCEL_DEADLINE
        while self.running and self._runs(jobs[0].object):
            if time.monotonic() > deadline:
                raise Failed(
                    f"the pods of {jobs[0].object} have not ended within {CANCEL_DEADLINE:.0f} s"
                )
            time.sleep(POLL_INTERVAL)
        return [f"Job {jobs[0].object}"]

    def _runs(self, name: str) -> bool:
        """Returns whether the Job of that name has not ended."""
        view = self.read_state()
        return any(
            job and job.object == name and not job.ended for job in (view.data, view.training)
        )

    def settings(self) -> dict[str, str]:
        documents: list[dict[str, Any]] = []
        for file in sorted(self.manifests.glob("*.yaml")):
            documents += filter(None, yaml.load_all(file.read_text(), yaml.CSafeLoader))
        runs = [document for document in documents if document["kind"] in GROUPS]
        training = newest_training(runs)
        maps = [document for document in documents if document["kind"] == "ConfigMap"]
        configs = {config["metadata"]["name"]: config.get("data", {}) for config in maps}
        return settings_of(training, lambda name: configs.get(name, {})) if training else {}

    @contextmanager
    def volume(self) -> Iterator[Folder]:
        self._own_record()
        try:
            yield Folder(resolve_inside(self._folder / VOLUME, self.record.root))
        except OSError:
            self._own_record()  # It may have been replaced meanwhile.
            raise
        self._own_record()

    @translate_errors()
    def evaluate(self) -> Evaluation:
        """Measures the newest complete pass on the held-out records. Raises BadInput, Failed."""
        self._own_record()
        check_program(self.name, self.settings())
        # -P: nothing in this folder may take the place of this project's modules.
        words = [sys.executable, "-P", "-m", "paddle_aws.rehearsal.evaluation", self.name]
        done = subprocess.run(words, cwd=self._folder.parent, capture_output=True, text=True)
        if done.returncode:
            raise (BadInput if done.returncode == Exit.BAD_INPUT else Failed)(done.stderr.strip())
        self._own_record()
        return Evaluation.parse(done.stdout)

    def _own_record(self) -> RehearsalRecord:
        """Returns this rehearsal's record as it is now. Raises Failed if another replaced it."""
        now = load(self._folder, self.name)
        if now.record.run != self.record.run:
            raise Failed(
                f"the rehearsal of {self.name} ended before it made any pod, or another one has "
                "replaced it in this folder: read its results before the next one, or rehearse "
                "each under a name of its own"
            )
        self._place = now._place
        return now.record

    def _log_files(self, pod: PodState) -> list[Path]:
        """Returns the logs of a pod's containers."""
        folder = resolve_inside(self._place / LOGS, pod.name).parent
        files = sorted(folder.glob(f"{pod.name}.*.log"))
        return [file for file in files if not file.name.endswith(".probes.log")]

    def _read_log(self, file: Path, offset: int = 0) -> bytes:
        """Returns a log from an offset on. Raises FileNotFoundError for what is no file of the
        folder.
        """
        return Folder(self._place / LOGS).read(file.name, offset)


def _mark_killed(view: JobView) -> JobView:
    """Returns the view of a rehearsal that was killed: its pods died with it."""
    reason = "the rehearsal was killed"

    def end(job: JobState | None) -> JobState | None:
        return job if job is None or job.ended else replace(job, phase="failed", reason=reason)

    pods = tuple(
        replace(pod, phase="failed", reason="ended with the job") if pod.phase == "running" else pod
        for pod in view.pods
    )
    training = end(view.training) or unstarted_job(view.name, "failed", reason)
    return replace(view, data=end(view.data), training=training, pods=pods)


def unstarted_job(name: str, phase: Phase, reason: str) -> JobState:
    """Returns the state of a training without pods, and why it has none."""
    now = datetime.now(UTC)
    ended = now if phase == "failed" else None
    return JobState(name, phase, reason, 0, 0, 0, 0, now, ended, "")


def _holder(folder: Path) -> dict[str, str] | None:
    """Returns the content of a running rehearsal's lock; None if none runs."""
    try:
        lock = os.open(folder / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        with suppress(ValueError, OSError):
            document = json.loads(os.pread(lock, 4096, 0))
            if isinstance(document, dict):
                return {str(name): str(value) for name, value in document.items()}
        return {}
    except OSError:
        return None
    finally:
        os.close(lock)


def read_record(place: Path) -> RehearsalRecord | None:
    """Returns the record in a folder, None if there is none. Raises BadInput."""
    try:
        return _RECORD.validate_json(Folder(place).read(RECORD))
    except FileNotFoundError:
        return None
    except (ValidationError, OSError):
        raise BadInput(f"{place / RECORD} is not a rehearsal's record: rehearse again") from None


def load(folder: Path = FOLDER, name: str | None = None) -> RehearsalBackend:
    """Loads this folder's rehearsal of the job of that name; default: the one that runs, else the
    last. Raises BadInput.
    """
    folder = folder.absolute()
    last, holder = read_record(folder), _holder(folder)
    record = last
    if holder and (last is None or last.run != holder.get("run")):
        # A rehearsal tries the program before it replaces the last rehearsal's files.
        running, namespace = holder.get("name", ""), holder.get("namespace", "")
        reason = "its program is tried first, and its pods are not made yet"
        training = unstarted_job(running, "waiting", reason)
        view = JobView(running, namespace, None, training, ())
        record = RehearsalRecord(view, running, "", None, holder.get("run", ""))
    if record is None:
        raise BadInput(
            f"there is no {folder.name}/{RECORD} in {folder.parent}: `paddle-aws rehearse "
            "job.yaml`, or `make rehearse` in the project's folder, writes one"
        )
    if name in (None, record.view.name):
        return RehearsalBackend(folder, record)
    if last is not None and last.view.name == name:
        return RehearsalBackend(folder, last)
    place = folder / JOBS / str(name)
    earlier = read_record(place) if place.parent == folder / JOBS else None
    if earlier is None or earlier.view.name != name:
        raise BadInput(
            f"JOB is {name}: rehearsed here are {', '.join(names(folder))}; leave JOB out for the "
            "last one, or rehearse that"
        )
    return RehearsalBackend(folder, earlier, place)


def names(folder: Path = FOLDER) -> list[str]:
    """Returns the jobs that were rehearsed in this folder, the last one first. Raises BadInput."""
    folder = folder.absolute()
    found = [load(folder).name]
    if (last := read_record(folder)) is not None:
        found.append(last.view.name)
    ages = {record: record.stat().st_mtime for record in folder.glob(f"{JOBS}/*/{RECORD}")}
    found += [record.parent.name for record in sorted(ages, key=ages.__getitem__, reverse=True)]
    return list(dict.fromkeys(found))

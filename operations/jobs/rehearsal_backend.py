"""The job of the last rehearsal, as `.rehearsal` holds it: its record, its volume and its logs,
read only inside that folder.

The rehearsal, which writes all this, is not imported: only `evaluate` starts it, in a separate
process.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import AwareDatetime, TypeAdapter, ValidationError

from operations.cluster.log_stream import Line, Wanted
from operations.cluster.volume_server import Folder, inside
from operations.commands.evaluate import Evaluation
from operations.errors import BadInput, Exit, Failed
from operations.jobs.job_view import JobView
from operations.screen import age

FOLDER = Path(".rehearsal")
RECORD, LAST = "job.json", "last"
"""What a rehearsal writes into its folder: its record, and a marker that nothing has been submitted
to a cluster since.
"""
LOGS, VOLUME = "logs", "volume"


@dataclass(frozen=True)
class Record:
    """What a rehearsal leaves behind besides its volume and logs."""

    view: JobView
    root: str
    """The job's folder below `volume`."""
    interpreter: str
    """The first entry of the pods' PATH."""
    ended: AwareDatetime

    def write(self, folder: Path) -> None:
        """Writes the record into a rehearsal's folder."""
        (folder / RECORD).write_bytes(_RECORD.dump_json(self, indent=1))
        (folder / LAST).touch()


_RECORD = TypeAdapter(Record)


def ran_last() -> bool:
    """Returns whether this folder's last run was a rehearsal."""
    return (FOLDER / LAST).exists()


def submitted() -> None:
    """Call when a job went to a cluster: from now on commands mean that job."""
    with suppress(OSError):
        (FOLDER / LAST).unlink()


class RehearsalBackend:
    """The `Backend` of a rehearsal."""

    def __init__(self, folder: Path, record: Record) -> None:
        self._folder, self.record = folder, record
        self.name, self.namespace = record.view.name, record.view.namespace

    @property
    def age(self) -> str:
        """How long ago it ended."""
        return age(self.record.ended)

    def status(self) -> JobView:
        return load(self._folder).record.view  # The rehearsal may still run.

    def logs(self, wanted: Wanted, tail: int | None) -> Iterator[Line]:
        """Yields one pod's lines after another's, as the lines carry no time."""
        chosen = [pod for pod in self.record.view.pods if wanted.pod(pod)]
        if not chosen:
            raise BadInput(
                f"the rehearsal of {self.name} has no such pods: `paddle-aws status --rehearsal` "
                "lists those it had"
            )
        for pod in chosen:
            for file in sorted(
                inside(self._folder / LOGS, pod.name).parent.glob(f"{pod.name}.*.log")
            ):
                if not file.name.endswith(".probes.log"):
                    lines = file.read_text(errors="replace").splitlines()
                    for text in lines[-tail or len(lines) :] if tail is not None else lines:
                        yield Line("", pod.who, text, pod.rank or 0)

    @contextmanager
    def volume(self) -> Iterator[Folder]:
        yield Folder(inside(self._folder / VOLUME, self.record.root))

    def evaluate(self) -> Evaluation:
        done = subprocess.run(
            [sys.executable, "-m", "rehearsal.evaluation"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise (BadInput if done.returncode == Exit.BAD_INPUT else Failed)(done.stderr.strip())
        return Evaluation.parse(done.stdout)


def load(folder: Path = FOLDER) -> RehearsalBackend:
    """Loads the last rehearsal, with its folder. Raises BadInput."""
    file = folder / RECORD
    try:
        return RehearsalBackend(folder, _RECORD.validate_json(file.read_bytes()))
    except FileNotFoundError:
        raise BadInput(
            f"there is no {file} here: `make rehearse`, in the project's folder, leaves one"
        ) from None
    except (ValidationError, OSError):
        raise BadInput(f"{file} is not a rehearsal's record: run `make rehearse` again") from None

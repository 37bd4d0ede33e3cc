"""The record of a job's attempts and of how its runs ended: `attempts.json` in its run state.

Only the holder of the lease writes it.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from paddle_node import typed
from paddle_node.contract import ExitCode
from paddle_node.failure import Failure
from paddle_node.volume import durable
from paddle_node.volume.job_folder import JobFolder
from paddle_node.volume.passes import Identity

PROGRAM, CLUSTER, POD, STOPPED = KINDS = ("program", "cluster", "pod", "stopped")
"""Why an attempt ended: the program failed, the cluster failed, a pod was lost, or a stop was
requested.
"""
DONE = ": the job is done"
"""In the sentence of a run that is done; doubts follow it."""
KEPT_ATTEMPTS = 200
"""Attempts that the record keeps; older ones are dropped."""


@dataclass(frozen=True)
class RecordedAttempt:
    """One attempt. `cause` is None while it runs, or if it was never recorded why it ended."""

    number: int
    run: str
    started: float
    resume: Mapping[str, str] = field(default_factory=dict)
    """What it resumed from, under the runtime's own names; empty: nothing."""
    cause: str | None = None
    code: int = 0
    """The exit code of the process that ended it, 128 + the signal's number if a signal ended that;
    0: no process did.
    """
    made: str = ""
    """Its progress, in the runtime's own words; empty: none."""
    kind: str = PROGRAM
    passed_over: tuple[str, ...] = ()
    """Newer saves that were damaged, or that earlier attempts could not load."""
    data: str = ""
    program: str = ""
    stepped: bool | None = None
    """It was seen to make a step; False: it was seen to make none; None: nobody can know."""
    error: str = ""
    """The exception that ended that process; empty: none was seen."""
    uncaught: bool = False
    """That process exited with nothing behind the exception on its log."""
    killed: bool = False
    """A process of it was killed from outside, or found the volume full: its end says nothing about
    the program.
    """
    paused: bool = False
    """A pod had been silent just before: its peers' programs may have failed for that."""
    gone: bool = False
    """Every pod has said that no process of the attempt is left."""
    counted: bool = True
    """Its trainers report where their time goes."""
    ended: float = 0.0
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Mean seconds per pod and part, as in `goodput`."""

    @property
    def early(self) -> bool:
        """Whether the program failed on its own, without a step or progress that anybody saw."""
        failed = self.kind == PROGRAM and self.code != 0 and not self.killed
        return failed and not self.made and not self.stepped

    @property
    def before_step(self) -> bool:
        """Whether it was seen to make no step."""
        return self.stepped is False and not self.made


@dataclass(frozen=True)
class Outcome:
    """How a run ended, for all of its pods."""

    code: int
    sentence: str

    @property
    def doubts(self) -> str:
        """What went wrong beside training that is done; empty: nothing that anybody saw."""
        return doubts_in(self.sentence)


def doubts_in(sentence: str) -> str:
    """Returns the doubts that an agent's last sentence has."""
    return sentence.partition(f"{DONE}, but ")[2]


@dataclass(frozen=True)
class Attempts:
    """The whole record."""

    attempts: tuple[RecordedAttempt, ...] = ()
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    """How each run ended, by its id."""

    @property
    def last_outcome(self) -> Outcome | None:
        """How the last run ended; None: it has not, or nobody could record it."""
        return self.outcomes.get(self.attempts[-1].run) if self.attempts else None

    def identity(self, run_id: str) -> Identity | None:
        """The run's data and program; None before its first attempt."""
        first = next((attempt for attempt in self.attempts if attempt.run == run_id), None)
        return Identity(first.data, first.program) if first is not None else None

    def is_in_progress(self, run_id: str) -> bool:
        """Whether the run has begun an attempt and has not ended."""
        return self.identity(run_id) is not None and run_id not in self.outcomes


def parse(text: str | bytes) -> Attempts:
    """Returns the record in the file's text. Raises ValueError if it is damaged."""
    try:
        document = json.loads(text)
        return Attempts(
            tuple(
                typed.read(RecordedAttempt, attempt, "an attempt")
                for attempt in document["attempts"]
            ),
            {
                run: typed.read(Outcome, outcome, run)
                for run, outcome in document["outcomes"].items()
            },
        )
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def read(folder: JobFolder) -> Attempts:
    """Returns the record on the volume, an empty one before the first attempt. Raises `Failure` if
    it is damaged. Blocking.
    """
    path = file_of(folder)
    durable.refresh(path.parent)
    try:
        return parse(path.read_text())
    except FileNotFoundError:
        return Attempts()
    except ValueError:
        raise Failure(
            ExitCode.BAD_DATA, f"{path} is corrupt: remove it to start a new attempt history"
        ) from None


def write(
    folder: JobFolder,
    attempts: Iterable[RecordedAttempt],
    outcomes: Mapping[str, Outcome],
    check: Callable[[], object] = lambda: None,
) -> None:
    """Returns once the record is on disk. `check` raises if the lease is no longer held; a writer
    that is frozen behind it can write nothing once the next holder has called `take_over`. Raises
    OSError. Blocking.
    """
    document = {
        "attempts": [asdict(attempt) for attempt in list(attempts)[-KEPT_ATTEMPTS:]],
        "outcomes": {
            run: asdict(outcome) for run, outcome in list(outcomes.items())[-KEPT_ATTEMPTS:]
        },
    }
    durable.write(file_of(folder), json.dumps(document, indent=1), check)


def take_over(folder: JobFolder) -> None:
    """Keeps earlier holders of the lease from writing the record late. Call it before the record is
    read. Raises OSError. Blocking.
    """
    durable.discard_drafts(file_of(folder))


def file_of(folder: JobFolder) -> Path:
    """Returns the record's file."""
    return folder.run_state / "attempts.json"

"""The attempts of a job, as the volume remembers them, so that a new pod of trainer 0 goes on counting.

Promises: an attempt number is never used twice in a folder; what is recorded survives a crash (fsync, rename,
fsync of the folder); only the holder of the lease writes; the outcome of a run is written before any pod learns
of it, so that whoever comes later ends the same way.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from paddle_node import durable, passes
from paddle_node.contract import ExitCode, JobFolder
from paddle_node.failure import Failure
from paddle_node.passes import Identity
from paddle_node.resumption import Resumption

KEPT = 200
"""Attempts that the record keeps; older ones are dropped."""
UNLOADABLE = 2
"""Attempts that end before their first step, until what they began with is passed over."""


@dataclass(frozen=True)
class Ended:
    """One attempt of the record. `cause` is None while it runs."""

    number: int
    run: str
    started: float
    resume_pass: int | None
    cause: str | None = None
    code: int = 0
    """The exit code of the trainer that ended it; 0: it was no trainer."""
    newest_pass: int | None = None
    """The newest pass that it saved."""
    counts: bool = True
    """False: it was told to stop, which is nobody's fault."""
    resume_folder: str = ""
    """Where the pass lay that it went on from, below output/."""
    interrupted: str = ""
    """Where the part of the next pass lay that it went on in the middle of, below output/; empty: none."""
    passed_over: Sequence[str] = ()
    """Newer ones that were damaged, or that earlier attempts could not load."""
    data: str = ""
    """Digest of the data manifest."""
    program: str = ""
    """Digest of the program folder."""
    stepped: bool = False
    """A trainer made a step."""
    failed: bool = False
    """A pserver or a trainer ended it by itself, not for want of memory or of its pod."""

    @property
    def fruitless(self) -> bool:
        """It ended without a complete pass that was not there before."""
        return (self.newest_pass if self.newest_pass is not None else -1) <= (
            self.resume_pass if self.resume_pass is not None else -1
        )


@dataclass(frozen=True)
class Outcome:
    """How a run ended, for all of its pods."""

    code: int
    sentence: str


class Record:
    """The file of attempts. Every method that changes it has it on disk when it returns. Blocking."""

    def __init__(self, folder: JobFolder, run_id: str, check: Callable[[], None] = lambda: None) -> None:
        """`check` raises where the lease is no longer held: asked before each write."""
        self._folder = folder
        self._path = _path(folder)
        self._run_id = run_id
        self._check = check
        attempts, outcomes = _read(self._path)
        self._attempts = attempts
        self._outcomes = outcomes

    @property
    def outcome(self) -> Outcome | None:
        return self._outcomes.get(self._run_id)

    @property
    def identity(self) -> Identity | None:
        """The data and the program of this run; None before its first attempt."""
        return _identity(self._attempts, self._run_id)

    def unloadable(self) -> set[str]:
        """What two attempts of this run began with that ended by themselves before their first step, and none that made one.

        Another run tries it again: it may have been the image, or the network.
        """
        own = [(one.interrupted or one.resume_folder, one) for one in self._attempts if one.run == self._run_id]
        found = Counter(folder for folder, one in own if one.failed and not one.stepped)
        stepped = {folder for folder, one in own if one.stepped}
        return {folder for folder, times in found.items() if times >= UNLOADABLE} - stepped - {""}

    def begin(self, resumption: Resumption, identity: Identity) -> int:
        """The number of the attempt that starts now."""
        # Numbers order the passes: where this record was removed, those of the folders count.
        number = 1 + max(passes.last_attempt(self._folder), *(attempt.number for attempt in self._attempts[-1:]), 0)
        self._attempts.append(
            Ended(
                number,
                self._run_id,
                time.time(),
                resumption.number,
                resume_folder=resumption.folder,
                interrupted=resumption.interrupted,
                passed_over=resumption.passed_over,
                data=identity.data,
                program=identity.program,
            )
        )
        self._write()
        return number

    def unfinished(self) -> bool:
        """Whether this run's last attempt never ended: its recorder died with it."""
        return bool(self._attempts) and self._attempts[-1].run == self._run_id and self._attempts[-1].cause is None

    @property
    def last(self) -> Ended:
        """The present attempt."""
        return self._attempts[-1]

    def end(self, **outcome: Any) -> None:
        """The present attempt ended: its `cause`, and other fields of `Ended` that are known by now."""
        self._attempts[-1] = replace(self._attempts[-1], **outcome)
        self._write()

    def fruitless(self) -> list[Ended]:
        """This run's attempts since the last one that completed a pass, those that were told to stop left out."""
        found: list[Ended] = []
        for attempt in reversed(self._attempts):
            if attempt.run != self._run_id or (attempt.cause is not None and not attempt.fruitless):
                break
            if attempt.cause is not None and attempt.counts:
                found.append(attempt)
        return found[::-1]

    def finish(self, outcome: Outcome) -> None:
        """The run is over, for every pod of it, those included that start later."""
        self._outcomes[self._run_id] = outcome
        self._write()

    def _write(self) -> None:
        self._check()
        document = {
            "attempts": [asdict(attempt) for attempt in self._attempts[-KEPT:]],
            "outcomes": {run: asdict(outcome) for run, outcome in list(self._outcomes.items())[-KEPT:]},
        }
        durable.write(self._path, json.dumps(document, indent=1))


def begun(folder: JobFolder, run_id: str) -> bool:
    """Whether the run has begun an attempt, and has not ended. Blocking."""
    recorded, outcomes = _read(_path(folder))
    return run_id not in outcomes and any(attempt.run == run_id for attempt in recorded)


def identity(folder: JobFolder, run_id: str) -> Identity | None:
    """The data and the program that all pods of the run read; None before its first attempt. Blocking."""
    return _identity(_read(_path(folder))[0], run_id)


def outcome(folder: JobFolder, run_id: str) -> Outcome | None:
    """How the run ended, for a pod that cannot ask trainer 0 any more. Blocking."""
    return _read(_path(folder))[1].get(run_id)


def _identity(recorded: Sequence[Ended], run_id: str) -> Identity | None:
    return next((Identity(one.data, one.program) for one in recorded if one.run == run_id), None)


def _path(folder: JobFolder) -> Path:
    return folder.run_state / "attempts.json"


def _read(path: Path) -> tuple[list[Ended], dict[str, Outcome]]:
    durable.look(path.parent)
    try:
        document = json.loads(path.read_text())
        return (
            [Ended(**attempt) for attempt in document["attempts"]],
            {run: Outcome(**found) for run, found in document["outcomes"].items()},
        )
    except FileNotFoundError:
        return [], {}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise Failure(ExitCode.BAD_DATA, f"{path} is corrupt: remove it to start a new attempt history") from None

"""The attempts of a job, recorded on the volume so that a new pod of trainer 0 continues the count.

No attempt number is used twice in a folder. Only the holder of the lease writes. The outcome of a
run is written before any pod learns of it, so that a pod that comes later ends the same way.
"""

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from paddle_node import typed
from paddle_node.contract import ExitCode
from paddle_node.failure import Failure
from paddle_node.runtimes import History, Resumption
from paddle_node.volume import durable, passes
from paddle_node.volume.job_folder import JobFolder
from paddle_node.volume.passes import Identity

PROGRAM, CLUSTER, POD, STOPPED = KINDS = ("program", "cluster", "pod", "stopped")
"""Why an attempt ended: the program failed, the cluster failed, a pod was lost, or a stop was
requested. Failures of the program count against PADDLE_NODE_ATTEMPTS, faults of the cluster against
`CLUSTER_FAULTS`; the other kinds have no limit.
"""
CLUSTER_FAULTS = 10
ALIKE = 10
"""Consecutive attempts, or PADDLE_NODE_ATTEMPTS if that is more, that resume from the same files
and fail with the same exception before the progress they report no longer counts: a program may
rewrite its checkpoint and then fail as before.
"""
CANNOT_START = (126, 127)
CANNOT_BEGIN = (
    "SyntaxError",
    "IndentationError",
    "TabError",
    "ModuleNotFoundError",
    "ImportError",
    "python: ",
)
"""Prefixes of exceptions that no other attempt can change, whether or not the program reports its
steps.
"""
OWN_ERRORS = (
    "ArithmeticError", "AssertionError", "AttributeError", "IndexError", "KeyError", "LookupError",
    "NameError", "NotImplementedError", "TypeError", "UnboundLocalError", "UnicodeDecodeError",
    "ValueError", "ZeroDivisionError",
)  # fmt: skip
"""Prefixes of exceptions that lie in the program or its data: no network or volume raises them."""
KEPT = 200
"""Attempts that the record keeps; older ones are dropped."""
LARGEST = 4 << 20
"""Bytes of a rank's metrics file from which it is not read; a rank rarely writes a tenth of
that.
"""
UNLOADABLE = 2
"""After this many attempts that fail before their first step, what they resumed from is skipped."""


@dataclass(frozen=True)
class Loss:
    """Why an attempt ends."""

    cause: str
    kind: str
    """One of `KINDS`, by which the loss is counted."""
    code: int = 0
    """The exit code of the trainer that ended it; 0: no trainer did."""
    failed: bool = False
    """A process of the program ended it on its own: it was not killed, and the volume was not
    full.
    """
    exited: bool = True
    """That process chose its exit code: no signal ended it."""
    error: str = ""
    """The exception that ended it; empty: none was seen."""
    uncaught: bool = False
    """That process exited with nothing behind the exception on its log."""
    stepped: bool = False
    """The process that ended it had made a step, as far as trainers report steps."""
    gone: bool = False
    """Every pod has said that no process of the attempt is left."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Mean seconds per pod and category: waiting, starting, data, training (what was kept), saving,
    slowest, lost.
    """


@dataclass(frozen=True)
class Ended:
    """One attempt of the record, with the `Loss` that ended it. `cause` is None while the attempt
    runs.
    """

    number: int
    run: str
    started: float
    resume: Mapping[str, str] = field(default_factory=dict)
    """What it resumed from, under the runtime's own names; empty: nothing."""
    cause: str | None = None
    code: int = 0
    made: str = ""
    """Its progress, in the runtime's own words; empty: none."""
    kind: str = PROGRAM
    passed_over: tuple[str, ...] = ()
    """Newer saves that were damaged, or that earlier attempts could not load."""
    data: str = ""
    program: str = ""
    stepped: bool = False
    error: str = ""
    early: bool = False
    """The program failed on its own before its first step, as far as anybody saw."""
    hopeless: bool = False
    """It failed early, and another attempt would, too."""
    gone: bool = False
    """See `Loss`."""
    counted: bool = True
    """Its trainers report where their time goes."""
    ended: float = 0.0
    seconds: Mapping[str, float] = field(default_factory=dict)
    """See `Loss`."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended, for all of its pods."""

    code: int
    sentence: str


class Record:
    """The file of attempts. Every method that changes it returns once the change is on disk.
    Blocking.
    """

    def __init__(
        self, folder: JobFolder, run_id: str, check: Callable[[], None] = lambda: None
    ) -> None:
        """`check` runs before each write and raises if the lease is no longer held."""
        self._folder = folder
        self._path = folder.run_state / "attempts.json"
        self._run_id = run_id
        self._check = check
        self._attempts, self._outcomes = _read(self._path)

    @property
    def outcome(self) -> Outcome | None:
        """How the run ended; None while it lasts."""
        return self._outcomes.get(self._run_id)

    @property
    def identity(self) -> Identity | None:
        """The data and the program of this run; None before its first attempt."""
        return next(
            (
                Identity(attempt.data, attempt.program)
                for attempt in self._attempts
                if attempt.run == self._run_id
            ),
            None,
        )

    @property
    def history(self) -> History:
        """This run's attempts only: another run retries what this one could not load, as the image
        or network may be at fault.
        """
        attempts = [one for one in self._attempts if one.run == self._run_id]
        failed = [one.resume for one in attempts if one.early]
        loaded = [one.resume for one in attempts if one.stepped or one.made]
        unloadable = [
            one for one in failed if one and one not in loaded and failed.count(one) >= UNLOADABLE
        ]
        last = self._attempts[-1:]
        # Numbers order the passes: if this record was removed, the numbers of the attempts' folders
        # count.
        number = 1 + max(
            passes.last_attempt(self._folder), *(attempt.number for attempt in last), 0
        )
        return History(not attempts, unloadable, number, bool(last) and last[0].gone)

    def begin(
        self,
        resumption: Resumption,
        identity: Identity,
        counted: bool = True,
        number: int | None = None,
    ) -> int:
        """Records the attempt that starts now and returns its number: that of the `history`."""
        number = self.history.number if number is None else number
        began = Ended(
            number,
            self._run_id,
            time.time(),
            resumption.resume,
            passed_over=resumption.passed_over,
            counted=counted,
        )
        earlier = self._attempts
        self._attempts = [*earlier, replace(began, data=identity.data, program=identity.program)]
        try:
            self._write()
        except OSError:
            self._attempts = earlier
            raise
        return number

    def unfinished(self) -> bool:
        """Whether this run's last attempt has no recorded end: if it is over, its recorder died
        with it.
        """
        return (
            bool(self._attempts)
            and self._attempts[-1].run == self._run_id
            and self._attempts[-1].cause is None
        )

    @property
    def last(self) -> Ended:
        return self._attempts[-1]

    def end(
        self,
        loss: Loss,
        made: str = "",
        trainers_join: bool = True,
        saved: float = 0.0,
        metrics: bool = False,
    ) -> None:
        """Records the end of the present attempt.

        `metrics`: the program's log shows its steps, though its trainers report none. `saved`: when
        something was last saved. Uncounted time is starting before the first metrics, then kept
        training until the save.
        """
        last, first = self._attempts[-1], self._first_metrics()
        stepped = loss.stepped or first > 0
        early = loss.kind == PROGRAM and loss.failed and not made and not stepped
        # Of trainers that join, a checkpoint may be at fault; of a command, little is known.
        in_vain = not last.resume if trainers_join else self._never_began(loss, metrics)
        hopeless = early and loss.exited and in_vain
        # A clock that was set back must not make time negative.
        ended, seconds = max(time.time(), last.started), dict(loss.seconds)
        if not last.counted or "training" not in seconds:
            saved = math.inf if seconds.get("training") else saved if made else 0.0
            uncounted = (
                seconds.get("training", 0.0) + seconds.get("lost", 0.0) or ended - last.started
            )
            starting = min(max(first - last.started, 0.0), uncounted)
            kept = min(max(saved - last.started, starting), uncounted) - starting
            seconds |= {"starting": starting, "training": kept, "lost": uncounted - starting - kept}
        self._attempts[-1] = replace(
            last,
            cause=loss.cause,
            kind=loss.kind,
            code=loss.code,
            error=loss.error,
            made=made,
            stepped=stepped,
            early=early,
            hopeless=hopeless,
            gone=loss.gone,
            ended=ended,
            seconds={part: round(spent, 3) for part, spent in seconds.items()},
        )
        self._write()

    def _never_began(self, loss: Loss, metrics: bool) -> bool:
        """Whether a command ended before its first step: it cannot start, or its own code failed
        where nothing shows a step.
        """
        return (
            loss.code in CANNOT_START
            or (loss.uncaught and loss.error.startswith(CANNOT_BEGIN))
            or (
                metrics
                and loss.error.startswith(OWN_ERRORS)
                and "newest" not in self.last.resume  # A checkpoint may be at fault.
                and not self._first_metrics()
            )
        )

    def _first_metrics(self) -> float:
        """When rank 0 reported its first metrics in the present attempt, at its start if they are
        too many to read; 0: it reported none.
        """
        file = self._folder.steps(0, 0)
        with suppress(OSError, ValueError, LookupError, TypeError, RecursionError):
            if file.stat().st_size >= LARGEST:
                return self.last.started
            lines = file.read_text().splitlines()
            reports = [json.loads(line) for line in lines if line.endswith("}")]
            return next(
                (
                    float(report["time"])
                    for report in reports
                    if report["attempt"] == self.last.number
                ),
                0.0,
            )
        return 0.0

    def exhausted(self, attempts: int) -> Outcome | None:
        """Returns the failure after too many attempts without progress; None while another attempt
        is allowed.
        """
        failed, faults = self.without_progress(PROGRAM), self.without_progress(CLUSTER)
        if failed and failed[-1] == self.last and self.last.hopeless:
            sentence = (
                f"attempt {self.last.number} failed before its first step and is not tried "
                f"again: {self.last.cause}"
            )
            return Outcome(ExitCode.ATTEMPTS_EXHAUSTED, sentence)
        alike = max(ALIKE, attempts)
        recent = [ended for ended in self._attempts if ended.run == self._run_id][-alike:]
        if (
            self.last.error
            and len(recent) == alike
            # Of a command, the name: it may have written the file anew.
            and len(
                {(ended.error, str(ended.resume.get("newest", ended.resume))) for ended in recent}
            )
            == 1
        ):
            sentence = (
                f"{alike} attempts resumed from the same files and failed alike: {self.last.cause}"
            )
            return Outcome(ExitCode.ATTEMPTS_EXHAUSTED, sentence)
        counted = (
            failed if len(failed) >= attempts else faults if len(faults) >= CLUSTER_FAULTS else ()
        )
        causes = "; ".join(f"attempt {attempt.number}: {attempt.cause}" for attempt in counted)
        return (
            Outcome(
                ExitCode.ATTEMPTS_EXHAUSTED,
                f"{len(counted)} attempts ended without progress: {causes}",
            )
            if counted
            else None
        )

    def hopeless(self, resumption: Resumption) -> Outcome | None:
        """Returns a failure if earlier attempts resumed the same way and never reached a step, else
        None.
        """
        if not resumption.resume or resumption.resume not in self.history.unloadable:
            return None
        sentence = (
            f"two attempts that began {resumption.description} failed before their first step, and "
            f"there is nothing older to resume from: {self.last.cause}"
        )
        return Outcome(ExitCode.ATTEMPTS_EXHAUSTED, sentence)

    def without_progress(self, kind: str = PROGRAM) -> list[Ended]:
        """This run's attempts of that kind since the last one that made progress."""
        fruitless: list[Ended] = []
        for attempt in reversed(self._attempts):
            if attempt.run != self._run_id or attempt.made:
                break
            if attempt.cause is not None and attempt.kind == kind:
                fruitless.append(attempt)
        return fruitless[::-1]

    @property
    def seconds(self) -> dict[str, float]:
        """Where the time of the job's pods went so far, by category, over all its runs."""
        totals: Counter[str] = Counter()
        for attempt in self._attempts:
            totals.update(attempt.seconds)
        return dict(totals)

    def finish(self, outcome: Outcome) -> None:
        """Ends the run for all its pods, including those that start later."""
        self._outcomes[self._run_id] = outcome
        self._write()

    def _write(self) -> None:
        self._check()
        document = {
            "attempts": [asdict(attempt) for attempt in self._attempts[-KEPT:]],
            "outcomes": {
                run: asdict(outcome) for run, outcome in list(self._outcomes.items())[-KEPT:]
            },
        }
        durable.write(self._path, json.dumps(document, indent=1))


def last_run(folder: JobFolder) -> tuple[bool, Outcome | None]:
    """Returns whether any run began in the folder, and how the last one ended; None: it has not, or
    nobody could record it. Blocking.
    """
    began, outcomes = _read(folder.run_state / "attempts.json")
    return bool(began), outcomes.get(began[-1].run) if began else None


def begun(folder: JobFolder, run_id: str) -> bool:
    """Whether the run has begun an attempt and has not ended. Blocking."""
    record = Record(folder, run_id)
    return record.outcome is None and record.identity is not None


def _read(path: Path) -> tuple[list[Ended], dict[str, Outcome]]:
    durable.look(path.parent)
    try:
        document = json.loads(path.read_text())
        return (
            [typed.read(Ended, attempt, "an attempt") for attempt in document["attempts"]],
            {
                run: typed.read(Outcome, outcome, run)
                for run, outcome in document["outcomes"].items()
            },
        )
    except FileNotFoundError:
        return [], {}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise Failure(
            ExitCode.BAD_DATA, f"{path} is corrupt: remove it to start a new attempt history"
        ) from None

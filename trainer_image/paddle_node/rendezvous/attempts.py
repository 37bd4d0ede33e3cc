"""The attempts of a job, recorded on the volume so that a new pod of trainer 0 continues the count.

No attempt number is used twice in a folder. Only the holder of the lease writes. The outcome of a
run is written before any pod learns of it, so that a pod that comes later ends the same way.
"""

import time
from collections.abc import Callable
from dataclasses import replace

from paddle_node.contract import ExitCode
from paddle_node.rendezvous import goodput, retry_limits
from paddle_node.rendezvous.attempt_end import AttemptEnd
from paddle_node.runtimes import History, Resumption
from paddle_node.volume import attempts, passes, step_metrics
from paddle_node.volume.attempts import PROGRAM, Outcome, RecordedAttempt
from paddle_node.volume.goodput import Goodput
from paddle_node.volume.job_folder import JobFolder
from paddle_node.volume.passes import Identity

UNLOADABLE_AFTER = 2
"""After this many attempts that fail before their first step, what they resumed from is skipped."""


class Record:
    """The file of attempts. Every method that changes it returns once the change is on disk.
    Blocking.
    """

    def __init__(
        self, folder: JobFolder, run_id: str, check: Callable[[], None] = lambda: None
    ) -> None:
        """`check` runs before each write and raises if the lease is no longer held."""
        self._folder = folder
        self._run_id = run_id
        self._check = check
        record = attempts.read(folder)
        self._attempts, self._outcomes = list(record.attempts), dict(record.outcomes)

    @property
    def outcome(self) -> Outcome | None:
        """How the run ended; None while it lasts."""
        return self._outcomes.get(self._run_id)

    @property
    def identity(self) -> Identity | None:
        """The data and the program of this run; None before its first attempt."""
        first = next(iter(self._of_run), None)
        return Identity(first.data, first.program) if first is not None else None

    @property
    def history(self) -> History:
        """This run's attempts only: another run retries what this one could not load, as the image
        or network may be at fault.
        """
        of_run = self._of_run
        failed = [attempt.resume for attempt in of_run if attempt.early and attempt.resume]
        loaded = [attempt.resume for attempt in of_run if attempt.stepped or attempt.made]
        unloadable = [
            resume
            for resume in failed
            if resume not in loaded and failed.count(resume) >= UNLOADABLE_AFTER
        ]
        last = self._attempts[-1:]
        # Numbers order the passes: if this record was removed, the numbers of the attempts' folders
        # count.
        number = 1 + max(
            passes.last_attempt(self._folder), *(attempt.number for attempt in last), 0
        )
        return History(not of_run, unloadable, number, bool(last) and last[0].gone)

    def begin(
        self,
        resumption: Resumption,
        identity: Identity,
        counted: bool = True,
        number: int | None = None,
    ) -> int:
        """Records the attempt that starts now and returns its number: that of the `history`."""
        number = self.history.number if number is None else number
        began = RecordedAttempt(
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

    def is_unfinished(self) -> bool:
        """Whether this run's last attempt has no recorded end: if it is over, its recorder died
        with it.
        """
        return (
            bool(self._attempts)
            and self._attempts[-1].run == self._run_id
            and self._attempts[-1].cause is None
        )

    @property
    def _of_run(self) -> list[RecordedAttempt]:
        return [attempt for attempt in self._attempts if attempt.run == self._run_id]

    @property
    def last(self) -> RecordedAttempt:
        return self._attempts[-1]

    def end(
        self,
        ending: AttemptEnd,
        progress: str = "",
        trainers_join: bool = True,
        saved: float = 0.0,
        metrics: bool = False,
    ) -> None:
        """Records the end of the present attempt.

        `progress`: what it completed. `saved`: when something was last saved. `trainers_join`: the
        trainers report their steps. `metrics`: of a command, its log shows them.
        """
        last, first = self.last, step_metrics.first_report(self._folder, self.last.number)
        stepped = ending.stepped or first is not None
        early = ending.kind == PROGRAM and ending.failed and not progress and not stepped
        if trainers_join:
            in_vain = not last.resume  # What it resumed from may be at fault.
        else:
            in_vain = retry_limits.ended_before_start(ending, last, metrics and first is None)
        # A clock that was set back must not make time negative.
        ended = max(time.time(), last.started)
        seconds = goodput.split_seconds(
            ending.seconds, last, ended, first or 0.0, saved if progress else 0.0
        )
        self._attempts[-1] = replace(
            last,
            cause=ending.cause,
            kind=ending.kind,
            code=ending.code,
            error=ending.error,
            made=progress,
            stepped=stepped,
            early=early,
            hopeless=early and ending.exited and in_vain,
            gone=ending.gone,
            ended=ended,
            seconds={part: round(spent, 3) for part, spent in seconds.items()},
        )
        self._write()

    def check_limits(self, attempts: int) -> Outcome | None:
        """Returns the failure after too many attempts without progress; None while another attempt
        is allowed.
        """
        return retry_limits.check_limits(self._of_run, attempts)

    def find_hopeless_outcome(self, resumption: Resumption) -> Outcome | None:
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

    @property
    def goodput(self) -> Goodput:
        """Where the time of the job's pods went so far, over all its runs."""
        return Goodput.total_of(attempt.seconds for attempt in self._attempts)

    def finish(self, outcome: Outcome) -> None:
        """Ends the run for all its pods, including those that start later."""
        self._outcomes[self._run_id] = outcome
        self._write()

    def _write(self) -> None:
        self._check()
        attempts.write(self._folder, self._attempts, self._outcomes)

"""The attempts of a job, recorded on the volume so that a new pod of trainer 0 continues the count.

No attempt number is used twice in a folder. Only the holder of the lease writes. The outcome of a
run is written before any pod learns of it, so that a pod that comes later ends the same way.
"""

import time
from collections.abc import Callable
from dataclasses import replace

from paddle_node.rendezvous import goodput, policy
from paddle_node.rendezvous.attempt_end import AttemptEnd
from paddle_node.runtimes import History, Resumption
from paddle_node.volume import attempts, passes, steps
from paddle_node.volume.attempts import Outcome, RecordedAttempt
from paddle_node.volume.goodput import Goodput
from paddle_node.volume.job_folder import JobFolder
from paddle_node.volume.passes import Identity


class AttemptRecord:
    """The file of attempts. Every method that changes it returns once the change is on disk.
    Blocking.
    """

    def __init__(
        self, folder: JobFolder, run_id: str, check: Callable[[], None] | None = None
    ) -> None:
        """`check` runs before each write and raises if the lease is no longer held; None: whoever
        reads holds no lease.
        """
        self._folder = folder
        self._run_id = run_id
        self.check = check or (lambda: None)
        if check is not None:
            attempts.take_over(folder)
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
        last = self._attempts[-1:]
        # Numbers order the passes: if this record was removed, the numbers of the attempts' folders
        # count.
        number = 1 + max(
            passes.last_attempt(self._folder), *(attempt.number for attempt in last), 0
        )
        return History(
            not of_run, policy.list_unloadable(of_run), number, bool(last) and last[0].gone
        )

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
            resumption.resumed,
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

    def end(self, ending: AttemptEnd, progress: str = "", saved: float = 0.0) -> None:
        """Records the end of the present attempt.

        `progress`: what it completed. `saved`: when something was last saved.
        """
        last, first = self.last, steps.first_report(self._folder, self.last.number)
        stepped = ending.stepped or (True if first is not None else ending.stepped)
        # A clock that was set back must not make time negative.
        ended = max(time.time(), last.started)
        seconds = goodput.split_seconds(
            ending.seconds, last, ended, first or 0.0, saved if progress else 0.0
        )
        rounded = {part: round(spent, 3) for part, spent in seconds.items()}
        more = {"made": progress, "stepped": stepped, "ended": ended, "seconds": rounded}
        self._attempts[-1] = replace(last, **vars(ending) | more)
        self._write()

    def gather_facts(self, limit: int) -> policy.Facts:
        """Returns what decides whether another attempt follows the last one, which has ended."""
        return policy.gather(self._of_run, limit)

    @property
    def goodput(self) -> Goodput:
        """Where the time of the job's pods went so far, over all its runs."""
        return Goodput.total_of(attempt.seconds for attempt in self._attempts)

    def finish(self, outcome: Outcome) -> None:
        """Ends the run for all its pods, including those that start later."""
        self._outcomes[self._run_id] = outcome
        self._write()

    def _write(self) -> None:
        attempts.write(self._folder, self._attempts, self._outcomes, self.check)

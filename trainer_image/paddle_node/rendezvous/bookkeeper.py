"""Keeps the record of a run's attempts, and answers the rendezvous's questions from it and from the
program's progress on the volume.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from paddle_node.contract import ExitCode
from paddle_node.environment import PodEnvironment
from paddle_node.failure import BadData, Failure
from paddle_node.rendezvous import effects as ask
from paddle_node.rendezvous import events as on
from paddle_node.rendezvous import policy
from paddle_node.rendezvous.attempt_end import AttemptEnd
from paddle_node.rendezvous.attempts import AttemptRecord
from paddle_node.retry import disk_full, may_pass, retry
from paddle_node.runtimes import Progress, Resumption, Scratch
from paddle_node.volume import publication
from paddle_node.volume.attempts import POD, Outcome
from paddle_node.volume.passes import Identity
from paddle_node.volume.progress import read_folder

REFUSAL_MINUTES = 10
"""Minutes for which a volume may refuse the next attempt before the job fails."""


class Bookkeeper:
    """Answers each question with an event. Blocking."""

    def __init__(
        self,
        pod: PodEnvironment,
        record: AttemptRecord,
        progress: Progress,
        say: Callable[[str], None],
    ) -> None:
        self._pod = pod
        self._record = record
        self._progress = progress
        self._say = say
        self._resumption = Resumption()
        if record.is_unfinished():
            # This server's predecessor died without recording the attempt's end.
            self._resumption = Resumption(
                record.last.resume, passed_over=tuple(record.last.passed_over)
            )
            self._end(AttemptEnd("the pod of trainer 0 was lost", POD))
        self.identity = record.identity
        self.exhausted = policy.decide(record.gather_facts(pod.attempts)) if self.identity else None

    def answer(self, question: ask.Question) -> on.Event:
        """Returns what the volume answers."""
        match question:
            case ask.Begin(identity, scratch):
                self._take(scratch)
                return self._begin(identity)
            case ask.RecordEnd(ending, scratch):
                self._take(scratch)
                return self._record_end(ending)
            case ask.Publish():
                return self._publish_save(question)
            case ask.Conclude(attempt, stopped):
                return self._conclude(attempt, stopped)
            case ask.RecordOutcome(outcome, ending):
                return self._record_outcome(outcome, ending)

    @property
    def last(self) -> int:
        """The number of the run's last attempt; 0: there is none."""
        return self._record.last.number if self._record.identity is not None else 0

    def _take(self, scratch: Scratch) -> None:
        """Lets the progress know of the scratch if the run's last attempt wrote it."""
        counts = scratch.attempt == self.last
        self._progress.scratch = scratch if counts else replace(scratch, attempt=0, saves={})

    def _publish_save(self, question: ask.Publish) -> on.Event:
        """Makes a checkpoint of what the pods have copied."""
        name, root = question.name, self._pod.folder.attempt(self._pod.run_id, question.attempt)
        publish = partial(
            publication.publish, root, question.key, name, question.parts, self._pod.trainers,
            question.changed, self._record.check,
        )  # fmt: skip
        try:
            # What the record before names has to be in its place first.
            for work in (partial(publication.install, root), publish):
                retry(work, self._say)
        except (OSError, ValueError, LookupError, BadData) as error:
            self._say(f"{name or 'the output'} is not on the volume: {error}")
            return on.Published(question.key, str(error))
        try:
            retry(partial(publication.install, root), self._say)
            retry(partial(publication.discard, root, question.gone), self._say)
        except OSError as error:  # It counts; the next one, or the next attempt, completes it.
            self._say(f"{name or 'the output'} is on the volume, but not in its place yet: {error}")
        return on.Published(question.key, "")

    def _begin(self, identity: Identity) -> on.Event:
        """Begins the next attempt: answers its number and what it resumes from."""
        try:
            history = retry(lambda: self._record.history, self._say, REFUSAL_MINUTES)
            self._resumption = retry(
                lambda: self._progress.begin(identity, history), self._say, REFUSAL_MINUTES
            )
            if self._resumption.resumed and self._resumption.resumed in history.unloadable:
                facts = replace(
                    self._record.gather_facts(self._pod.attempts),
                    nothing_older=self._resumption.description,
                )
                if (outcome := policy.decide(facts)) is not None:
                    return on.JobOver(outcome)
            number = retry(
                lambda: self._record.begin(
                    self._resumption, identity, self._pod.way.passes, history.number
                ),
                self._say,
                REFUSAL_MINUTES,
            )
            return on.AttemptBegun(number, self._resumption)
        except Failure as failure:
            outcome = Outcome(failure.code, failure.sentence)
        except OSError as error:
            code = (
                ExitCode.VOLUME_FULL
                if disk_full(error)
                else ExitCode.ATTEMPTS_EXHAUSTED
                if may_pass(error)
                else 1
            )
            # Any folder of the job may have refused it.
            where = error.filename or self._pod.folder.run_state
            outcome = Outcome(code, f"no attempt can begin: {where}: {error.strerror or error}")
        return on.JobOver(outcome)

    def _record_end(self, ending: AttemptEnd) -> on.Event:
        """Records how the attempt ended. Even if that fails, the next attempt gets a new number."""
        self._end(ending)
        facts = self._record.gather_facts(self._pod.attempts)
        return on.EndRecorded(facts, self._record.goodput.seconds)

    def _conclude(self, attempt: int, stopped: bool) -> on.Event:
        """Answers whether anything is missing for the job to be done."""
        identity = Identity(self._record.last.data, self._record.last.program)
        try:
            missing = retry(
                lambda: self._progress.find_missing(identity, self._resumption, stopped), self._say
            )
        except Failure as failure:
            return on.JobOver(Outcome(failure.code, failure.sentence))
        progress = retry(lambda: self._progress.name_progress(attempt, self._resumption), self._say)
        return on.Concluded(attempt, missing, progress)

    def _record_outcome(self, outcome: Outcome, ending: AttemptEnd | None) -> on.Event:
        """Records the run's outcome, unless another try may change it: pods that the Job starts
        later then get their chance.
        """
        if ending is not None:
            self._end(ending)
        with suppress(OSError):
            if (far := read_folder(self._pod.folder)) is not None and far.reported:
                self._say(far.line())
        if (goodput := self._record.goodput).seconds:
            self._say(goodput.line())
        if policy.is_lasting(outcome):
            try:
                self._record.finish(outcome)
            except OSError as error:
                where = f"{error.filename}: " if error.filename else ""
                self._say(f"the outcome cannot be recorded: {where}{error.strerror or error}")
            else:
                publish(self._record, self._progress, self._say)
        return on.OutcomeRecorded(outcome)

    def _end(self, ending: AttemptEnd) -> None:
        try:
            if self._record.is_unfinished():
                progress = retry(
                    lambda: self._progress.name_progress(
                        self._record.last.number, self._resumption
                    ),
                    self._say,
                )
                self._record.end(
                    ending,
                    progress,
                    retry(self._progress.save_time, self._say) if progress else 0.0,
                )
        except OSError as error:
            self._say(f"the attempt's end cannot be recorded: {error.strerror or error}")


def publish(record: AttemptRecord, progress: Progress, say: Callable[[str], None]) -> None:
    """Puts the results of a run that has ended where people look, unless a process of it may be
    left. Blocking. Does nothing the second time.
    """
    if record.identity is None or not record.last.gone:
        return
    try:
        progress.publish()
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        say(
            f"some of the results stay in the attempt's folder in output/attempts: "
            f"{where}{error.strerror or error}"
        )

"""A trainer's loop over the passes.

A pass counts as trained when every trainer has read all records of its shard and every gradient has
arrived; its record exists before any trainer leaves. A checkpoint that cannot be saved ends
training only on a stop. In lockstep all trainers make the same number of steps, however the records
are distributed: a trainer with one step more would wait for the others indefinitely.
"""

import math
import random
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Self

import numpy as np

from paddle_node.contract import ExitCode
from paddle_node.coordination import Session
from paddle_node.environment import PodEnvironment
from paddle_node.failure import BadSetting, leave
from paddle_node.training.backends.backend import Backend, Sample
from paddle_node.training.saver import Saver
from paddle_node.training.shard import Parser, Record, Shard
from paddle_node.training.step_reports import StepReports
from paddle_node.volume import pass_metrics, passes
from paddle_node.volume.goodput import DATA, SAVING, TRAINING
from paddle_node.volume.job_folder import JobFolder
from paddle_node.volume.passes import Position


@dataclass(frozen=True)
class StartingPoint:
    """What an attempt begins with, as its `Resumption` says.

    All None: new parameters, and the first pass.
    """

    pass_number: int | None = None
    """The newest complete pass."""
    folder: Path | None = None
    """Its folder."""
    interrupted: Path | None = None
    """The newest checkpoint inside the pass behind it."""

    @classmethod
    def read(cls, job: JobFolder, resumed: Mapping[str, str]) -> Self:
        """Reads what the agent handed on (`Variable.RESUMED`)."""

        def folder(name: str) -> Path | None:
            return job.output / resumed[name] if name in resumed else None

        number = int(resumed["pass"]) if "pass" in resumed else None
        return cls(number, folder("folder"), folder("interrupted"))

    @property
    def parameters(self) -> Path | None:
        """The folder with the parameters to load."""
        return self.interrupted or self.folder

    @property
    def first_pass(self) -> int:
        """The first pass that is not complete."""
        return 0 if self.pass_number is None else self.pass_number + 1


@dataclass(frozen=True)
class Samples:
    """What is trained on: the records of a shard, and how they become samples."""

    shard: Shard
    parse: Callable[[str], Any]
    sample: Callable[[Any], Sample]
    batch: int
    """Records of one step."""


class Training:
    """One trainer in one attempt."""

    def __init__(
        self,
        pod: PodEnvironment,
        session: Session,
        backend: Backend,
        samples: Samples,
        saver: Saver,
    ) -> None:
        self._pod, self._session, self._backend = pod, session, backend
        self._samples, self._saver = samples, saver
        self._shard, self._batch = samples.shard, samples.batch
        self._reports = StepReports(pod, session, samples.shard.expected or 0, samples.batch)
        self._first = session.trainer_id == 0
        self._told_to_stop = False
        self._stepped = False
        self._steps = 0
        """Steps of this process since the trainers' last meeting."""
        self._unsaved = 0
        """In trainer 0: steps of all trainers since the last pass or checkpoint."""
        self._saved = time.monotonic()
        """When all trainers last met, or began: tells each of them, without a message, when the
        next checkpoint is due.
        """

    def run(self, start: StartingPoint) -> None:
        """Trains the passes that are left, and exports the model."""
        last = self._pod.passes - 1
        signal.signal(signal.SIGTERM, self._stop)
        self._backend.connect(self._session)
        if start.parameters is not None:
            self._backend.load(start.parameters)
        if start.folder is not None:
            self._record_what_a_crash_left_out(start.folder)
        if start.first_pass > last:
            print(
                f"{start.first_pass} passes are complete and {last + 1} were asked for: nothing is "
                "left to train",
                flush=True,
            )
        position = Position()
        if start.interrupted is not None:
            positions = passes.read_record(start.interrupted)["trainers"]
            position = Position(**positions[self._session.trainer_id])
        self._saved = time.monotonic()
        self._reports.restart_clock()
        for number in range(start.first_pass, last + 1):
            self._train(number, position)
            position = Position()
        if self._first:
            self._saver.export()
        self._saver.wait()
        self._session.leave()
        self._backend.close()

    def _stop(self, signal_number: int, frame: object) -> None:
        self._told_to_stop = True

    def _train(self, number: int, begin: Position) -> None:
        """Trains on the records of a pass after `begin`. When this returns, the pass is saved, on
        every trainer.
        """
        began, cpu_began = time.monotonic(), time.process_time()
        order = islice(
            self._shard.shuffle(self._pod.seed, number, self._session.trainer_id),
            begin.read,
            None,
        )
        parser = Parser(self._samples.parse, begin.read, begin.trained, begin.odd)
        total = begin.total

        def position() -> Position:
            spent = (
                begin.seconds + time.monotonic() - began,
                begin.cpu_seconds + time.process_time() - cpu_began,
            )
            return Position(parser.read, parser.used, total, *spent, parser.odd)

        for records in self._batches(order, begin.read):
            if self._backend.any_stops(
                self._told_to_stop or time.monotonic() - self._saved >= self._pod.checkpoint
            ):
                self._meet(number, position(), through=False)
            self._seed(number, parser.read)
            samples = [self._samples.sample(value) for value in parser.values(records)]
            self._reports.spent.count_lap(DATA)
            losses = {}
            if samples or self._backend.lockstep:
                loss = self._step(samples, number, parser.read)
                total += len(samples) * loss
                losses = {"loss": loss} if samples else {}
                self._reports.spent.count_lap(TRAINING)
            self._reports.report(number, parser.read, losses)
        self._shard.check(parser)
        position_ = position()
        # A trainer that has finished the pass still meets the others at their checkpoints.
        while not (positions := self._meet(number, position_, through=True)):
            pass
        self._save(number, positions)
        session = self._session
        self._reports.record_pass(number, position_, session.attempt, session.trainers)

    def _seed(self, number: int, read: int) -> None:
        """Makes the random numbers of a step depend on its place alone: a resumed pass has those of
        an undisturbed one, and no generator's state needs to be saved.
        """
        place = f"{self._pod.seed}/{number}/{self._session.trainer_id}/{read}"
        seed = random.Random(place).getrandbits(32)
        random.seed(seed)
        np.random.seed(seed)
        self._backend.seed(seed)

    def _batches(self, records: Iterator[Record], already_read: int) -> Iterator[list[Record]]:
        if not self._backend.lockstep:
            while chunk := list(islice(records, self._batch)):
                yield chunk
            return
        # All trainers make the same number of steps, and each step ends at the same record whether
        # the pass is resumed or not.
        count = self._shard.count()
        most, read = max(self._session.gather("records", (count, already_read)))
        steps = -(-most // self._batch)
        taken = ((read + 1) * steps - 1) // most if most else 0
        for step in range(taken + 1, steps + 1):
            size = max(0, step * count // steps - already_read)
            already_read += size
            yield list(islice(records, size))

    def _step(self, samples: Sequence[Sample], number: int, read: int) -> float:
        loss = self._backend.step(samples)
        if not math.isfinite(loss):
            raise BadSetting(
                f"the loss is {loss} in pass {number}, after {read} records: training diverged; "
                "lower the learning rate, or scale inputs and answers to about 1"
            )
        if not self._stepped:
            self._stepped = True
            self._shard.check_answers(self._backend.answers, self._session.trainers)
        self._steps += 1
        self._reports.count_step()
        return loss

    def _meet(self, number: int, position: Position, *, through: bool) -> tuple[Position, ...]:
        """Returns every trainer's position if all have finished the pass. Otherwise saves the pass
        so far and returns ().
        """
        self._backend.settle()
        mine = {
            "steps": self._steps,
            "stop": self._told_to_stop,
            "through": through,
            "position": asdict(position),
        }
        everyone = self._session.gather(f"pass {number} trained", mine)
        self._steps = 0
        steps = sum(report["steps"] for report in everyone)
        self._unsaved += steps
        self._backend.finish_steps(steps)
        positions = tuple(Position(**report["position"]) for report in everyone)
        stop = any(report["stop"] for report in everyone)
        if not stop and all(report["through"] for report in everyone):
            return positions
        self._reports.spent.count_lap(TRAINING)
        sealed = True
        if self._first and self._unsaved:
            sealed = self._saver.save_checkpoint(number, positions, self._batch, needed=stop)
            self._unsaved = 0 if sealed else self._unsaved
        self._finish_save(number, position.read, self._saver.wait(sealed))
        if stop:
            print(
                f"told to stop: pass {number} is kept after {position.read} records of this shard",
                flush=True,
            )
            leave(ExitCode.TERMINATED)
        return ()

    def _save(self, number: int, positions: Sequence[Position]) -> None:
        """Saves the pass. When this returns, the pass is sealed, on every trainer."""
        self._reports.spent.count_lap(TRAINING)
        if self._first:
            self._saver.save_pass(number, positions)
            self._unsaved = 0
        self._finish_save(number, positions[self._session.trainer_id].read, self._saver.wait())

    def _finish_save(self, number: int, read: int, sealed: bool) -> None:
        self._saved = time.monotonic()
        self._reports.spent.count_lap(SAVING)
        if sealed:
            self._reports.spent.keep()
        self._reports.report(number, read, {}, at_once=True, sealed=sealed)

    def _record_what_a_crash_left_out(self, directory: Path) -> None:
        """Records a complete pass that a lost trainer left unrecorded: the pass's own record has
        this trainer's part.
        """
        done, rank = passes.read_record(directory), self._session.trainer_id
        recorded = pass_metrics.read_recorded(self._pod.folder.metrics(rank))
        number, attempt, positions = done["pass"], done["attempt"], done["trainers"]
        if (number, attempt) not in recorded and rank < len(positions):
            position = Position(**positions[rank])
            self._reports.record_pass(number, position, attempt, len(positions))

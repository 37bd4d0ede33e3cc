"""A trainer's way through the passes.

Promises: a pass counts as trained when every trainer has read all records of its shard and every gradient has
arrived; the record of the last pass exists before any trainer leaves; SIGTERM ends training at the next step with all
that was trained so far on the volume. Where trainers go in lockstep, all make the same number of steps, however
the records fall: one with a step more would wait for the others for ever.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddle_node import interruption, pass_metrics, passes
from paddle_node.contract import ExitCode
from paddle_node.ending import leave
from paddle_node.engine import Engine, Sample
from paddle_node.failure import Failure
from paddle_node.interruption import Position
from paddle_node.patience import naming
from paddle_node.shard import Parser, Record, Shard

if TYPE_CHECKING:
    from paddle_node.fleet import Job


class Training:
    """One trainer in one attempt."""

    def __init__(self, job: Job, engine: Engine, sample: Callable[[Any], Sample], batch: int, shard: Shard) -> None:
        self._job = job
        self._session = job.session
        self._folder = job.folder
        self._engine = engine
        self._sample = sample
        self._batch = batch
        self._shard = shard
        self._first = self._session.trainer_id == 0
        self._told_to_stop = False
        self._stepped = False
        self._newest = job.resume_folder
        """The folder of the newest pass that this process knows of."""
        self._good: set[Path] = set()
        """Folders whose bytes this process wrote, or read against their records."""

    def run(self) -> None:
        """From the pass that the attempt goes on from, or the interrupted one behind it, to the last."""
        signal.signal(signal.SIGTERM, self._stop)
        self._engine.connect(self._session)
        self._job.timeline.mark("all pods were connected")
        if self._job.resume_from is not None:
            self._engine.load(self._job.resume_from)
        if self._job.resume_folder is not None:
            self._record_what_a_crash_left_out(self._job.resume_folder)
        last = self._job.node.passes - 1
        begin = 0 if self._job.resume_pass is None else self._job.resume_pass + 1
        if begin > last:
            print(f"{begin} passes are complete and {last + 1} were asked for: nothing is left to train", flush=True)
        position = Position()
        if self._job.interrupted is not None:
            position = Position(**passes.record(self._job.interrupted)["trainers"][self._session.trainer_id])
        for number in range(begin, last + 1):
            position, steps = self._train(number, position)
            self._finish(number, position, steps)
            position = Position()
        if self._first:
            self._export()
        self._session.leave()
        self._engine.close()

    def _stop(self, signal_number: int, frame: object) -> None:
        self._told_to_stop = True

    def _train(self, number: int, begin: Position) -> tuple[Position, int]:
        """The records of a pass behind `begin`, to the end or to SIGTERM: where it came, and in how many steps."""
        began, cpu_began = time.monotonic(), time.process_time()
        order = islice(self._shard.shuffled(self._job.node.seed, number, self._session.trainer_id), begin.read, None)
        parser = Parser(self._job.parse)
        read, trained, total, steps = begin.read, begin.trained, begin.total, 0
        for records in self._batches(order, begin.read):
            if self._engine.any_stops(self._told_to_stop):
                self._told_to_stop = True
                break
            samples = [self._sample(value) for value in parser.values(records)]
            if samples or self._engine.lockstep:
                total += len(samples) * self._step(samples, number, read)
                if not self._stepped:
                    self._stepped = True
                    self._job.timeline.mark("parameters were loaded and a batch trained")
                    print(self._job.timeline.said(), flush=True)
                steps += 1
            read, trained = read + len(records), trained + len(samples)
            # A pass of less than a batch has made a step, too.
            self._session.progress(number, max(1, read // self._batch))
        parser.check(read - begin.read, self._shard.name)
        seconds, cpu_seconds = time.monotonic() - began, time.process_time() - cpu_began
        return Position(read, trained, total, begin.seconds + seconds, begin.cpu_seconds + cpu_seconds), steps

    def _batches(self, records: Iterator[Record], already_read: int) -> Iterator[list[Record]]:
        if not self._engine.lockstep:
            while chunk := list(islice(records, self._batch)):
                yield chunk
            return
        remaining = self._shard.count() - already_read
        most = max(self._session.gather("records", remaining))
        steps = -(-most // self._batch)
        for step in range(steps):
            size = (step + 1) * remaining // steps - step * remaining // steps
            yield list(islice(records, size))

    def _step(self, samples: Sequence[Sample], number: int, read: int) -> float:
        loss = self._engine.step(samples)
        if not math.isfinite(loss):
            raise Failure(
                ExitCode.BAD_SETTING,
                f"the loss is {loss} in pass {number}, behind {read} records: training diverged; lower the learning rate",
            )
        return loss

    def _finish(self, number: int, position: Position, steps: int) -> None:
        """Saves the pass when all trainers are through it, or what there is of it when any was told to stop."""
        self._engine.settle()
        mine = {"steps": steps, "stop": self._told_to_stop, "position": asdict(position)}
        everyone = self._session.gather(f"pass {number} trained", mine)
        self._engine.settled(sum(each["steps"] for each in everyone))
        positions = tuple(Position(**each["position"]) for each in everyone)
        if any(each["stop"] for each in everyone):
            self._interrupt(number, positions)
        self._shard.check(position.read, position.trained)
        self._save(number, positions)
        self._record(number, position, self._session.attempt, self._session.trainers)

    def _save(self, number: int, positions: Sequence[Position]) -> None:
        """The pass is sealed when this returns, on every trainer."""
        if self._first:
            self._newest = self._job.place / f"pass-{number:05d}"
            facts = {"pass": number, "trainers": [asdict(each) for each in positions]}
            self._seal(self._newest, facts, self._engine.save)
            identity = self._job.node.identity
            for half in passes.find(self._folder, passes.INTERRUPTED):
                if half.identity == identity and half.number <= number:
                    passes.remove(self._folder, half)
            passes.keep_newest(self._folder, identity, self._job.node.keep_passes, self._good)
        self._session.barrier(f"pass {number} saved")

    def _seal(self, directory: Path, facts: Mapping[str, Any], fill: Callable[[Path], None]) -> None:
        """Makes `directory`, a folder of this attempt, has it filled and sealed, and leads people there by a link."""
        with _whole_or_gone(directory):
            directory.mkdir(parents=True)
            fill(directory)
            self._job.keep_beside(directory)
            passes.seal(directory, {**facts, **self._job.facts()})
        self._good.add(directory)
        passes.lead(self._folder, directory.name)

    def _interrupt(self, number: int, positions: tuple[Position, ...]) -> None:
        """SIGTERM: keeps the pass as far as it is, and ends the process. All trainers come here together."""
        if self._first and any(position.read for position in positions):
            node = self._job.node
            order = interruption.order(node.identity.data, node.seed, self._session.trainers)
            facts = {"pass": number, **interruption.facts(positions, order)}
            self._seal(self._job.place / passes.INTERRUPTED, facts, self._engine.save)
        self._session.barrier(f"pass {number} interrupted")
        read = positions[self._session.trainer_id].read
        print(f"told to stop: pass {number} is kept behind {read} records of this shard", flush=True)
        leave(ExitCode.TERMINATED)

    def _record_what_a_crash_left_out(self, directory: Path) -> None:
        """The pass was complete, and this trainer was gone before it could say so: its record knows this trainer's part."""
        done = passes.record(directory)
        known = (done["pass"], done["attempt"]) in pass_metrics.recorded(self._folder.metrics(self._session.trainer_id))
        if not known and self._session.trainer_id < len(done["trainers"]):
            own = Position(**done["trainers"][self._session.trainer_id])
            self._record(done["pass"], own, done["attempt"], len(done["trainers"]))

    def _record(self, number: int, position: Position, attempt: int, trainers: int) -> None:
        metrics: dict[str, Any] = {
            "pass": number,
            "attempt": attempt,
            "trainer": self._session.trainer_id,
            "trainers": trainers,
            "loss": round(position.total / position.trained, 6),
            "records": position.read,
            "skipped": position.read - position.trained,
            "seconds": round(position.seconds, 3),
            "cpu_seconds": round(position.cpu_seconds, 3),
            "time": round(time.time(), 3),
        }
        pass_metrics.append(self._folder.metrics(self._session.trainer_id), metrics)
        print(" ".join(f"{key}={value}" for key, value in metrics.items() if key != "time"), flush=True)

    def _export(self) -> None:
        """The newest pass as a model for inference, with the program and the agreed values."""
        assert self._newest is not None  # There is no job without a pass.
        newest = self._newest
        done = passes.record(newest)
        facts = {"pass": done["pass"], "saved": f"{newest.parent.name}/{newest.name}"}
        identity = self._job.node.identity
        for made in passes.find(self._folder, passes.INFERENCE):
            if (made.identity, made.record["saved"]) == (identity, facts["saved"]) and passes.fault(made.folder) is None:
                return
        self._seal(self._job.place / passes.INFERENCE, facts, lambda directory: self._engine.export(newest, directory))
        passes.keep_newest(self._folder, identity, 1, self._good, passes.INFERENCE)


@contextlib.contextmanager
def _whole_or_gone(directory: Path) -> Iterator[None]:
    """A save that fails takes its files along: on a full volume, the attempt's end needs the room to be written down."""
    try:
        with naming(directory):
            yield
    except (OSError, Failure):
        if not (directory / passes.DONE).exists():
            shutil.rmtree(directory, ignore_errors=True)
        raise

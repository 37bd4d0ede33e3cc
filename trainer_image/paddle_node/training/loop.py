"""A trainer's loop over the passes.

A pass counts as trained when every trainer has read all records of its shard and every gradient has
arrived; its record exists before any trainer leaves. A checkpoint that cannot be saved ends
training only on a stop. In lockstep all trainers make the same number of steps, however the records
are distributed: a trainer with one step more would wait for the others indefinitely.
"""

from __future__ import annotations

import math
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddle_node.contract import ExitCode
from paddle_node.failure import Failure, SettingError, leave
from paddle_node.retry import naming
from paddle_node.staging.program_copy import copy_files
from paddle_node.training import step_log
from paddle_node.training.backends.backend import Backend, Sample
from paddle_node.training.shard import Parser, Record, Shard
from paddle_node.volume import durable, pass_metrics, passes
from paddle_node.volume.goodput import DATA, SAVING, TRAINING
from paddle_node.volume.passes import Position

if TYPE_CHECKING:
    from paddle_node.fleet import PodJob

TELL = 10.0
"""Seconds between trainer 0's lines about the progress of the pass."""


class Training:
    """One trainer in one attempt."""

    def __init__(
        self,
        job: PodJob,
        backend: Backend,
        sample: Callable[[Any], Sample],
        batch: int,
        shard: Shard,
    ) -> None:
        self._job, self._node, self._folder, self._session = job, job.node, job.folder, job.session
        self._backend, self._sample, self._batch, self._shard = backend, sample, batch, shard
        self._program = Path(sys.argv[0]).resolve()
        self._place = self._folder.attempt(self._node.run_id, job.attempt)
        """The folder where this attempt saves, and no other attempt does."""
        self._first = self._session.trainer_id == 0
        self._told_to_stop = False
        self._stepped = False
        self._steps = 0
        """Steps of this process since the trainers' last meeting."""
        self._made = 0
        """Steps of this process in this attempt."""
        self._log = step_log.StepLog(
            self._folder.steps(self._session.trainer_id, self._session.trainer_id), job.attempt
        )
        self._spent = step_log.Spent(lambda: self._session.waited)
        self._kept: int | None = None
        """The last step that can no longer be lost, as `step_log` counts steps; None: no step was
        made yet.
        """
        self._unsaved = 0
        """In trainer 0: steps of all trainers since the last pass or checkpoint."""
        self._saved = time.monotonic()
        """When all trainers last met, or began: tells each of them, without a message, when the
        next checkpoint is due.
        """
        self._told = -TELL
        """When this process last printed its progress."""
        self._checkpoints = 0
        self._newest = job.resume_folder
        """The folder of the newest pass that this process knows of."""
        self._good: set[Path] = set()
        """Folders whose bytes this process wrote or checked against their records."""

    def run(self) -> None:
        job, last = self._job, self._node.passes - 1
        signal.signal(signal.SIGTERM, self._stop)
        self._backend.connect(self._session)
        if job.resume_from is not None:
            self._backend.load(job.resume_from)
        if job.resume_folder is not None:
            self._record_what_a_crash_left_out(job.resume_folder)
        begin = 0 if job.resume_pass is None else job.resume_pass + 1
        if begin > last:
            print(
                f"{begin} passes are complete and {last + 1} were asked for: nothing is left to "
                "train",
                flush=True,
            )
        position = Position()
        if job.interrupted is not None:
            position = Position(
                **passes.record(job.interrupted)["trainers"][self._session.trainer_id]
            )
        self._saved = time.monotonic()
        self._spent = step_log.Spent(lambda: self._session.waited)
        for number in range(begin, last + 1):
            self._train(number, position)
            position = Position()
        if self._first:
            self._export()
        self._wait_until_sealed()
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
            self._shard.shuffled(self._node.seed, number, self._session.trainer_id),
            begin.read,
            None,
        )
        parser = Parser(self._job.parse, begin.read, begin.trained, begin.odd)
        total = begin.total

        def position() -> Position:
            spent = (
                begin.seconds + time.monotonic() - began,
                begin.cpu_seconds + time.process_time() - cpu_began,
            )
            return Position(parser.read, parser.used, total, *spent, parser.odd)

        for records in self._batches(order, begin.read):
            if self._backend.any_stops(
                self._told_to_stop or time.monotonic() - self._saved >= self._node.checkpoint
            ):
                self._meet(number, position(), through=False)
            samples = [self._sample(value) for value in parser.values(records)]
            self._spent.lap(DATA)
            losses = {}
            if samples or self._backend.lockstep:
                loss = self._step(samples, number, parser.read)
                total += len(samples) * loss
                losses = {"loss": loss} if samples else {}
                self._spent.lap(TRAINING)
            step = self._tell_step(number, parser.read, losses)
            if self._first and parser.used and time.monotonic() - self._told >= TELL:
                self._told = time.monotonic()
                far = {"step": step, "shard": self._shard.expected or 0}
                print(
                    pass_metrics.formatted({**self._metrics(number, position()), **far}), flush=True
                )
        self._shard.check(parser)
        position_ = position()
        # A trainer that has finished the pass still meets the others at their checkpoints.
        while not (positions := self._meet(number, position_, through=True)):
            pass
        self._save(number, positions)
        self._record(number, position_, self._session.attempt, self._session.trainers)

    def _batches(self, records: Iterator[Record], already_read: int) -> Iterator[list[Record]]:
        if not self._backend.lockstep:
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
        loss = self._backend.step(samples)
        if not math.isfinite(loss):
            raise SettingError(
                f"the loss is {loss} in pass {number}, after {read} records: training diverged; "
                "lower the learning rate, or scale inputs and answers to about 1"
            )
        if not self._stepped:
            self._stepped = True
            self._shard.check_answers(self._backend.answers, self._session.trainers)
        self._steps += 1
        self._made += 1
        return loss

    def _tell_step(
        self,
        number: int,
        read: int,
        metrics: Mapping[str, float],
        at_once: bool = False,
        sealed: bool = False,
    ) -> int:
        """Reports the step to people and to the rendezvous server. Returns the step's number in the
        pass.
        """
        step, spent = max(1, -(-read // self._batch)), self._spent.told()
        whole = number * -(-(self._shard.expected or 0) // self._batch) + step
        if sealed or self._kept is None or self._kept > whole:
            self._kept = whole if sealed else whole - 1
        facts = {"pass": number, "records": read, "spent": spent, "kept": self._kept}
        self._log.add(metrics, whole, now=at_once, **facts)
        self._session.progress(number, step, self._made, spent, at_once=at_once)
        return step

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
        self._backend.settled(steps)
        positions = tuple(Position(**report["position"]) for report in everyone)
        stop = any(report["stop"] for report in everyone)
        if not stop and all(report["through"] for report in everyone):
            return positions
        self._spent.lap(TRAINING)
        sealed = not (self._first and self._unsaved) or self._checkpoint(
            number, positions, needed=stop
        )
        self._saved_behind(number, position.read, self._wait_until_sealed(sealed))
        if stop:
            print(
                f"told to stop: pass {number} is kept after {position.read} records of this shard",
                flush=True,
            )
            leave(ExitCode.TERMINATED)
        return ()

    def _save(self, number: int, positions: Sequence[Position]) -> None:
        """Saves the pass. When this returns, the pass is sealed, on every trainer."""
        self._spent.lap(TRAINING)
        if self._first:
            self._newest = self._place / f"pass-{number:05d}"
            self._seal(
                self._newest,
                {"pass": number, "trainers": [asdict(position) for position in positions]},
                self._backend.save,
            )
            self._forget_checkpoints(number)
            passes.keep_newest(
                self._folder, self._node.identity, self._node.keep_passes, self._good
            )
        self._saved_behind(
            number, positions[self._session.trainer_id].read, self._wait_until_sealed()
        )

    def _wait_until_sealed(self, sealed: bool = True) -> bool:
        """In every trainer: reads its share of what trainer 0 saves until the save is over. Returns
        whether the save is kept.
        """
        while asked := self._session.gather("what trainer 0 saves", None if sealed else False)[0]:
            self._described(*asked)
        return asked is None

    def _saved_behind(self, number: int, read: int, sealed: bool) -> None:
        self._saved = time.monotonic()
        self._spent.lap(SAVING)
        if sealed:
            self._spent.keep()
        self._tell_step(number, read, {}, at_once=True, sealed=sealed)

    def _described_by_all(self, directory: Path, names: list[str]) -> list[dict[str, Any]]:
        """In trainer 0: `passes.described`, by all trainers together. Raises `Failure` if a trainer
        found its share damaged.
        """
        self._session.gather("what trainer 0 saves", [directory.name, names])
        files: list[dict[str, Any]] = []
        for share in self._described(directory.name, names):
            if "failure" in share:
                raise Failure(*share["failure"])
            files += share["files"]
        return sorted(files, key=lambda file: file["name"])

    def _described(self, folder: str, names: list[str]) -> list[Any]:
        """Returns each trainer's share of the files, or the code and sentence of what is wrong with
        them.
        """
        directory, share = (
            self._place / folder,
            names[self._session.trainer_id :: self._session.trainers],
        )
        try:
            durable.look(directory)
            self._backend.check(directory, share)
            description: dict[str, Any] = {"files": passes.described(directory, share)}
        except (OSError, Failure) as error:
            code, sentence = (
                (error.code, error.sentence) if isinstance(error, Failure) else (1, str(error))
            )
            description = {"failure": [code, f"trainer {self._session.trainer_id}: {sentence}"]}
        return self._session.gather("what all have read", description)

    def _seal(
        self,
        directory: Path,
        facts: Mapping[str, Any],
        fill: Callable[[Path], None],
        *,
        program: bool = True,
    ) -> None:
        """Creates `directory`, a folder of this attempt, fills and seals it, and links to it for
        people.
        """
        try:
            with naming(directory):
                directory.mkdir(parents=True)
                fill(directory)
                if program:
                    # Everything needed to understand a pass later.
                    copy_files(self._program.parent, directory / "program")
                    (directory / "path.txt").write_text(f"program/{self._program.name}\n")
                agreed = {}
                for name, text in self._job.agreed.items():
                    (directory / f"{name}.json").write_text(text)
                    agreed[name] = passes.checksum(directory / f"{name}.json")
                whose = {
                    "attempt": self._job.attempt,
                    "run": self._node.run_id,
                    **asdict(self._node.identity),
                }
                passes.seal(directory, {**facts, **whose, "agreed": agreed}, self._described_by_all)
        except (OSError, Failure):
            # On a full volume, recording the attempt's end needs the space.
            if not (directory / passes.DONE).exists():
                shutil.rmtree(directory, ignore_errors=True)
            raise
        self._good.add(directory)
        passes.lead(self._folder, directory.name)

    def _checkpoint(self, number: int, positions: tuple[Position, ...], *, needed: bool) -> bool:
        """In trainer 0, as the others wait: saves the pass so far in place of the last checkpoint.
        Returns whether it is kept.
        """
        began = time.monotonic()
        facts = {
            "pass": number,
            "behind": passes.Saved(self._newest, {}).name if self._newest else "",
            "order": passes.order(
                self._node.identity.data, self._node.seed, self._session.trainers
            ),
            "trainers": [asdict(position) for position in positions],
        }
        self._checkpoints += 1
        directory = self._place / f"interrupted-{self._checkpoints:05d}"
        at = f"in pass {number} at step {max(1, positions[0].read // self._batch)}"
        try:
            self._seal(directory, facts, self._backend.save, program=False)
        except (OSError, Failure) as error:
            if needed:
                raise
            print(f"no checkpoint {at}, training continues: {error}", flush=True)
            return False
        self._forget_checkpoints(number, but=directory)
        size = sum(file["bytes"] for file in passes.record(directory)["files"])
        print(f"checkpoint {at}: {time.monotonic() - began:.2f} s, {size / 1e6:.1f} MB", flush=True)
        return True

    def _forget_checkpoints(self, number: int, but: Path | None = None) -> None:
        """Removes checkpoints of this data and program that a complete pass, or the checkpoint
        `but`, has replaced.
        """
        self._unsaved = 0
        for checkpoint in passes.newest_first(self._folder, passes.INTERRUPTED):
            if (
                checkpoint.identity == self._node.identity
                and checkpoint.number <= number
                and checkpoint.folder != but
            ):
                passes.remove(self._folder, checkpoint)

    def _record_what_a_crash_left_out(self, directory: Path) -> None:
        """Records a complete pass that a lost trainer left unrecorded: the pass's own record has
        this trainer's part.
        """
        done = passes.record(directory)
        recorded = (done["pass"], done["attempt"]) in pass_metrics.recorded(
            self._folder.metrics(self._session.trainer_id)
        )
        if not recorded and self._session.trainer_id < len(done["trainers"]):
            position = Position(**done["trainers"][self._session.trainer_id])
            self._record(done["pass"], position, done["attempt"], len(done["trainers"]))

    def _record(self, number: int, position: Position, attempt: int, trainers: int) -> None:
        metrics = {**self._metrics(number, position), "attempt": attempt, "trainers": trainers}
        pass_metrics.append(self._folder.metrics(self._session.trainer_id), metrics)
        print(pass_metrics.formatted(metrics), flush=True)

    def _metrics(self, number: int, position: Position) -> dict[str, Any]:
        return {
            "pass": number,
            "attempt": self._session.attempt,
            "trainer": self._session.trainer_id,
            "trainers": self._session.trainers,
            "loss": round(position.total / position.trained, 6),
            "records": position.read,
            "skipped": position.read - position.trained,
            "seconds": round(position.seconds, 3),
            "cpu_seconds": round(position.cpu_seconds, 3),
            "time": round(time.time(), 3),
            "passes": self._node.passes,
        }

    def _export(self) -> None:
        """Exports the newest pass as a model for inference, with the program and the agreed
        values.
        """
        assert self._newest is not None  # There is no job without a pass.
        newest, identity = self._newest, self._node.identity
        facts = {
            "pass": passes.record(newest)["pass"],
            "saved": f"{newest.parent.name}/{newest.name}",
        }
        for model in passes.newest_first(self._folder, passes.INFERENCE):
            if (model.identity, model.record["saved"]) == (
                identity,
                facts["saved"],
            ) and passes.fault(model.folder) is None:
                return
        self._seal(
            self._place / passes.INFERENCE,
            facts,
            lambda directory: self._backend.export(newest, directory),
        )
        passes.keep_newest(self._folder, identity, 1, self._good, passes.INFERENCE)

"""All that a training program needs: `train.py` says what the data and the network are, this module does the rest.

    job = fleet.start()
    known = job.agree("vocabulary", count, merge)
    job.run(network, sample, learning_rate=0.01, batch=64)

Promises: the same program serves as pserver, as trainer and as evaluator, whichever its environment says; a pass
counts only when every record of every shard was trained and every pserver's part is on the volume; a resumed
run goes on behind the newest complete pass; a program never trains on nothing.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from paddle_node import coordination, environment, passes, shard
from paddle_node.agreement import Agreement
from paddle_node.contract import ExitCode, Variable
from paddle_node.coordination import AttemptEnded
from paddle_node.failure import Failure
from paddle_node.network import Model, embedding, ids, label, number, pooled
from paddle_node.shard import Reader, lines

__all__ = ["Evaluated", "Job", "Model", "embedding", "ids", "label", "lines", "number", "pooled", "start"]

Sample = Mapping[str, Any]
Sampler = Callable[[str], Sample | None]
"""From a record to {input: value}; None leaves the record out (it is counted as skipped)."""

EVALUATED_PASS = "PADDLE_NODE_EVALUATED_PASS"
"""Set by evaluate_pass.py alone: the pass that an evaluator loads."""


class Evaluated(BaseException):
    """How `Job.run` hands its finding to evaluate_pass.py, past everything that a program may catch."""

    def __init__(self, result: dict[str, Any]) -> None:
        super().__init__(result)
        self.result = result


def start() -> Job:
    """Reads the environment. From here on a `Failure` ends the process with its code and one sentence."""
    sys.excepthook = _report
    return Job(os.environ)


class Job:
    """This process's part in the job."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.node = environment.parse(environ)
        self.folder = self.node.folder
        self.role = environ.get("TRAINING_ROLE", "")
        if self.role not in ("PSERVER", "TRAINER", "EVALUATOR"):
            raise Failure(
                ExitCode.BAD_SETTING,
                f"TRAINING_ROLE is {self.role!r}: the pod's entry point starts a training program as PSERVER and TRAINER",
            )
        resume = environ.get(Variable.RESUME_PASS, "")
        self.resume_pass = int(resume) if resume else None
        self.trainer_id = int(environ.get(Variable.TRAINER_ID, "0"))
        self.attempt = int(environ.get(Variable.ATTEMPT, "1"))
        self.evaluated_pass = int(environ.get(EVALUATED_PASS, "-1"))
        self._program = Path(sys.argv[0]).resolve().parent
        self._session = coordination.join(environ) if self.role == "TRAINER" else None
        self._agreed: list[Agreement] = []

    def agree(
        self, name: str, count: Callable[[Iterable[str]], Any], merge: Callable[[list[Any]], Any], reader: Reader = lines
    ) -> Any:
        """A JSON value that every process has alike: `merge` of what `count` finds in each trainer's shard.

        `merge` must not depend on the shards' order or number; what it returns is kept with each pass.
        """
        if self.role == "EVALUATOR":
            return json.loads((self.folder.pass_dir(self.evaluated_pass) / f"{name}.json").read_text())
        agreement = Agreement(self.folder, self._program, name)
        self._agreed.append(agreement)
        if self._session is None:
            return agreement.wait()
        return agreement.reach(self._session, lambda: count(self._shard(reader)), merge)

    def run(
        self,
        network: Callable[[], Model],
        sample: Sampler,
        *,
        learning_rate: float = 0.01,
        batch: int = 64,
        optimizer: Any = None,
        reader: Reader = lines,
    ) -> NoReturn:
        """Trains, serves or evaluates, then ends the process.

        `optimizer` is Adam with `learning_rate` unless given; `batch` counts records a step of one trainer.
        """
        import paddle

        paddle.enable_static()
        # To Paddle a seed of 0 means none. The rows of embeddings are drawn by the pservers, which take no seed.
        paddle.static.default_startup_program().random_seed = self.node.seed + 1
        paddle.static.default_main_program().random_seed = self.node.seed + 1
        if self.role == "EVALUATOR":
            self._evaluate(network, sample, reader)
        from paddle_node.parameter_servers import ParameterServers

        with paddle.base.unique_name.guard():
            model = network()
            servers = ParameterServers(
                model.loss,
                optimizer or paddle.optimizer.Adam(learning_rate),
                self.node.trainers,
                None if self.resume_pass is None else self.folder.pass_dir(self.resume_pass),
            )
        if self.role == "PSERVER":
            servers.serve()
            _leave(ExitCode.DONE)
        _Training(self, servers, model, network, sample, batch, self._shard(reader)).run()
        _leave(ExitCode.DONE)

    @property
    def session(self) -> coordination.Session:
        """A trainer's line to the other trainers."""
        if self._session is None:
            raise RuntimeError(f"a {self.role} has no session")
        return self._session

    def _shard(self, reader: Reader) -> shard.Shard:
        return shard.of_trainer(self.folder, self.trainer_id, reader)

    def _evaluate(self, network: Callable[[], Model], sample: Sampler, reader: Reader) -> NoReturn:
        from paddle_node.local_model import LocalModel

        held_out = shard.held_out(self.folder, reader)
        model = LocalModel(self.folder.pass_dir(self.evaluated_pass), network)
        found = model.evaluate(made for made in map(sample, held_out) if made is not None)
        if not found:
            raise Failure(ExitCode.BAD_DATA, f"{held_out.name} has no records: hold some out when the data is split")
        raise Evaluated({"pass": self.evaluated_pass, **found})

    def keep_beside(self, directory: Path) -> None:
        """What a pass needs to be understood later: the program, its path, and the agreed values."""
        for file in sorted(self._program.glob("*.py")):
            shutil.copy(file, directory)
        (directory / "path.txt").write_text(f"{Path(sys.argv[0]).name}\n")
        for agreement in self._agreed:
            shutil.copy(agreement.file, directory / f"{agreement.name}.json")


class _Training:
    """A trainer's way through the passes."""

    def __init__(
        self, job: Job, servers: Any, model: Model, network: Callable[[], Model], sample: Sampler, batch: int, own: shard.Shard
    ) -> None:
        from paddle import static

        from paddle_node.network import Feeder

        self._job = job
        self._session = job.session
        self._folder = job.folder
        self._servers = servers
        self._model = model
        self._network = network
        self._sample = sample
        self._batch = batch
        self._shard = own
        self._executor = static.Executor()
        self._feeder = Feeder(servers.program)
        self._first = self._session.trainer_id == 0

    def run(self) -> None:
        from paddle import static

        self._executor.run(static.default_startup_program())
        self._session.servers()
        self._servers.connect()
        self._session.barrier("connected")
        begin = 0
        if self._job.resume_pass is not None:
            if self._first:
                passes.verify(self._folder, self._job.resume_pass)
                self._servers.load(self._folder.pass_dir(self._job.resume_pass))
            begin = self._job.resume_pass + 1
            self._session.barrier("loaded")
        self._servers.pull()
        for pass_number in range(begin, self._job.node.passes):
            metrics = self._train(pass_number)
            self._save(pass_number)
            self._record(metrics)
        if self._first:
            self._export(self._job.node.passes - 1)
        self._session.leave()
        if self._first:
            self._servers.stop()

    def _train(self, pass_number: int) -> dict[str, Any]:
        began = time.monotonic()
        seed, trainer = self._job.node.seed, self._session.trainer_id
        read = trained = 0
        self._steps = 0
        total = 0.0
        for step, records in enumerate(_chunks(self._shard.shuffled(seed, pass_number, trainer), self._batch)):
            read += len(records)
            samples = [made for made in map(self._sampled, records) if made is not None]
            if samples:
                total += len(samples) * self._step(samples, pass_number, step)
                trained += len(samples)
            self._session.progress(pass_number, step)
        self._shard.check(read)
        if not trained:
            raise Failure(ExitCode.BAD_DATA, f"{self._shard.name}: the program left out all {read} records; nothing was trained")
        seconds = time.monotonic() - began
        return {
            "pass": pass_number,
            "attempt": self._session.attempt,
            "trainer": trainer,
            "loss": round(total / trained, 6),
            "records": read,
            "skipped": read - trained,
            "seconds": round(seconds, 3),
            "time": round(time.time(), 3),
        }

    def _step(self, samples: list[Sample], number: int, step: int) -> float:
        (loss,) = self._executor.run(self._servers.program, feed=self._feeder.feed(samples), fetch_list=[self._model.loss])
        self._steps += 1
        self._servers.pull()
        value = float(loss)
        if not math.isfinite(value):
            raise Failure(
                ExitCode.BAD_SETTING,
                f"the loss is {value} in pass {number}, step {step}: training diverged; lower the learning rate",
            )
        return value

    def _sampled(self, record: str) -> Sample | None:
        try:
            return self._sample(record)
        except (ValueError, KeyError, IndexError) as error:
            shown = record if len(record) <= 80 else f"{record[:80]}..."
            raise Failure(ExitCode.BAD_DATA, f"{self._shard.name}: a record cannot be read ({error}): {shown!r}") from error

    def _save(self, number: int) -> None:
        """`done` exists when this returns, on every trainer."""
        self._servers.flush()
        self._servers.steps += sum(self._session.gather(f"pass {number} trained", self._steps))
        if self._first:
            directory = self._folder.pass_dir(number)
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(parents=True)
            self._servers.save(directory)
            self._job.keep_beside(directory)
            node = self._job.node
            passes.seal(self._folder, number, {"attempt": self._session.attempt, "run": node.run_id, "trainers": node.trainers})
            passes.keep_newest(self._folder, node.keep_passes)
        self._session.barrier(f"pass {number} saved")

    def _record(self, metrics: dict[str, Any]) -> None:
        file = self._folder.metrics(self._session.trainer_id)
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a") as stream:
            stream.write(json.dumps(metrics) + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        print(" ".join(f"{key}={value}" for key, value in metrics.items() if key != "time"), flush=True)

    def _export(self, number: int) -> None:
        """The last pass as a model that plain Paddle loads: `output/inference/model.pdmodel`."""
        from paddle_node.local_model import LARGEST_EXPORT, LocalModel, export_size

        directory = self._folder.pass_dir(number)
        size = export_size(directory)
        if size > LARGEST_EXPORT:
            print(f"no inference model: its parameters have {size} bytes, and at most {LARGEST_EXPORT} are exported", flush=True)
            return
        part = self._folder.output / ".inference"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        LocalModel(directory, self._network).export(part / "model")
        self._job.keep_beside(part)
        final = self._folder.output / "inference"
        shutil.rmtree(final, ignore_errors=True)
        part.rename(final)


def _chunks(records: Iterator[str], size: int) -> Iterator[list[str]]:
    while chunk := list(islice(records, size)):
        yield chunk


def _report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """One sentence for what ends a process on purpose; a traceback for a fault of the program itself."""
    if isinstance(error, Failure):
        print(error.sentence, file=sys.stderr)
        _leave(error.code)
    if isinstance(error, AttemptEnded):
        print(f"this attempt is over: {error}", file=sys.stderr)
        _leave(1)
    traceback.print_exception(kind, error, trace)
    _leave(1)


def _leave(code: int) -> NoReturn:
    """Ends the process at once: Paddle's threads outlive an ordinary exit, and have been seen to crash it."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

"""All that a training program needs: `train.py` says what the data and the network are, this module
does the rest.

    job = fleet.start(parse)
    known = job.agree("vocabulary", count, merge)
    job.run(network, sample, learning_rate=0.01, batch=64)

The same program serves as pserver, as trainer or as evaluator, as its environment says. A pass
counts only when every record of every shard was trained and every pserver's part is on the volume;
a resumed run continues after the newest such pass.
"""

import contextlib
import json
import sys
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from paddle_node import contract, coordination, environment, own_code
from paddle_node.contract import ExitCode, Variable
from paddle_node.coordination import AttemptEnded
from paddle_node.environment import ProgramEnvironment
from paddle_node.failure import BadData, Failure, Finished, SettingError, leave
from paddle_node.retry import disk_full
from paddle_node.training import shard
from paddle_node.training.agreement import agreed
from paddle_node.training.backends.backend import Backend, Sample
from paddle_node.training.backends.network import (
    BadSample,
    Model,
    checked,
    embedding,
    ids,
    label,
    number,
    pooled,
)
from paddle_node.training.shard import Parser, Reader, lines
from paddle_node.volume import data_manifest, passes
from paddle_node.volume.job_folder import JobFolder

__all__ = ["Job", "Model", "embedding", "ids", "label", "lines", "number", "pooled", "start"]

Parse = Callable[[str], Any]
"""Turns a record into what it says. None leaves the record out; ValueError means that it cannot be
read: a few such records are left out and counted, too many end the job with the place of the first.
"""
Sampler = Callable[[Any], Sample]
"""Turns what a record says into {input: value}."""


def start(parse: Parse = str, reader: Reader = lines) -> "Job":
    """Returns the job. `reader` splits a file into records, `parse` interprets one. From now on a
    `Failure` ends the process.
    """
    sys.excepthook = _report
    program = ProgramEnvironment.read()
    if program.role == "TRIAL":
        from paddle_node.training.tried_job import TriedJob

        return TriedJob(parse, reader)
    if program.role not in ("PSERVER", "TRAINER", "EVALUATOR"):
        raise SettingError(
            f"{Path(sys.argv[0]).name} is run by hand: name its folder in a job file (`program: "
            "{folder: ./my_program}`), then `paddle-aws try job.yaml` runs it on a few "
            "records, and `make rehearse JOB=job.yaml` as a whole job"
        )
    return (EvaluatedJob if program.role == "EVALUATOR" else PodJob)(program, parse, reader)


class Job(ABC):
    """This process's part in the job."""

    def __init__(self, parse: Parse, runtime: str, seed: int) -> None:
        self.parse, self._runtime, self._seed = parse, runtime, seed

    @abstractmethod
    def agree(
        self, name: str, count: Callable[[Iterable[Any]], Any], merge: Callable[[list[Any]], Any]
    ) -> Any:
        """Returns a JSON value that is the same in every process: `merge` of what `count` finds in
        each trainer's shard.

        `count` gets what `parse` made of the records. `merge` must not depend on the shards' order
        or number; its result is kept with each pass.
        """

    def run(
        self,
        network: Callable[[], Model],
        sample: Sampler,
        *,
        learning_rate: float = 0.01,
        batch: int = 64,
        optimizer: Any = None,
        sync: bool = False,
    ) -> NoReturn:
        """Trains on parameter servers, serves or evaluates, then ends the process.

        `network` builds a static program from this module's inputs and embeddings. `optimizer` is
        Adam with `learning_rate` unless given; `batch` is the records per step of one trainer.
        `sync` makes all trainers take each step together: slower, see docs/runtimes.md.
        """
        import paddle

        static_mode(self._runtime, self._seed)
        with paddle.base.unique_name.guard():
            backend = self._static(network, optimizer or paddle.optimizer.Adam(learning_rate), sync)
        self._use(backend, sample, batch)

    def run_collective(
        self,
        layer: Callable[[], Any],
        forward: Callable[[Any, Sequence[Sample]], Model],
        sample: Sampler,
        *,
        learning_rate: float = 0.01,
        batch: int = 64,
        optimizer: Callable[[Any], Any] | None = None,
    ) -> NoReturn:
        """Trains with the whole model in every trainer, or evaluates, then ends the process.

        `layer()` makes a paddle.nn.Layer, `forward(layer, samples)` a Model of tensors from a
        batch; `optimizer(parameters)` makes the optimizer, which is Adam with `learning_rate`
        unless given.
        """
        import paddle

        expect(self._runtime, "collective", "run")
        from paddle_node.training.backends.collective import Collective

        paddle.seed(self._seed)
        network = layer()
        parameters = network.parameters()
        chosen = (
            optimizer(parameters)
            if optimizer
            else paddle.optimizer.Adam(learning_rate, parameters=parameters)
        )
        self._use(Collective(network, forward, chosen), sample, batch)

    @abstractmethod
    def _static(self, network: Callable[[], Model], optimizer: Any, sync: bool) -> Any:
        """Builds the network, with its parameters if this process has them."""

    @abstractmethod
    def _use(self, backend: Any, sample: Sampler, batch: int) -> NoReturn:
        """Trains or evaluates what `_static` made, or a `Collective`, then ends the process."""


class PodJob(Job):
    """A trainer's or a pserver's part."""

    def __init__(self, program: ProgramEnvironment, parse: Parse, reader: Reader) -> None:
        self._reader = reader
        self._role = program.role
        self.node = environment.parse()
        super().__init__(parse, self.node.runtime, self.node.seed)
        self.folder = self.node.folder
        resumed = program.resumed
        self.resume_pass = int(resumed["pass"]) if "pass" in resumed else None
        self.resume_folder = self.folder.output / resumed["folder"] if "folder" in resumed else None
        self.interrupted = (
            self.folder.output / resumed["interrupted"] if "interrupted" in resumed else None
        )
        """The newest checkpoint inside the pass after `resume_pass`."""
        self.resume_from = self.interrupted or self.resume_folder
        """The folder whose parameters this attempt begins with; None: new parameters."""
        self.trainer_id = program.trainer_id
        self.attempt = program.attempt
        self.agreed: dict[str, str] = {}
        """The agreed values as JSON, kept because what the attempt resumed from may be removed
        before the next pass is saved.
        """
        if self._role == "TRAINER":
            self.session = coordination.join()

    def agree(
        self, name: str, count: Callable[[Iterable[Any]], Any], merge: Callable[[list[Any]], Any]
    ) -> Any:
        if self.resume_from is not None and (kept := self.resume_from / f"{name}.json").is_file():
            self.agreed[name] = kept.read_text()
            return json.loads(self.agreed[name])
        session = self.session if self._role == "TRAINER" else None
        value = agreed(
            name, self.node, self.attempt, session, lambda: count(self._checked()), merge
        )
        self.agreed[name] = json.dumps(value)
        return value

    def _shard(self) -> shard.Shard:
        staged = JobFolder(self.node.local_disk.folder) if self.node.local_disk else None
        return shard.of_trainer(self.folder, self.trainer_id, self._reader, staged)

    def _checked(self) -> Iterator[Any]:
        """Yields what this trainer's records say. Raises `Failure` after the last if the shard does
        not match the manifest.
        """
        records, parser = self._shard(), Parser(self.parse)
        for value in parser.values(records):
            # The health probe must see progress through a large shard, too.
            self.session.progress(0 if self.resume_pass is None else self.resume_pass + 1, 0)
            yield value
        records.check(parser)

    def _static(self, network: Callable[[], Model], optimizer: Any, sync: bool) -> Backend:
        from paddle_node.training.backends.parameter_servers import ParameterServers

        model = checked(network(), network)
        backend = ParameterServers(
            network, model, optimizer, self.node.trainers, self.resume_from, sync
        )
        if self._role == "PSERVER":
            backend.serve()
            leave(ExitCode.DONE)
        return backend

    def _use(self, backend: Backend, sample: Sampler, batch: int) -> NoReturn:
        from paddle_node.training.loop import Training

        if data_manifest.digest(self.folder.data_manifest) != self.node.identity.data:
            raise BadData(
                f"{self.folder.data_manifest} is not the one that this run began with: the data "
                "was split again meanwhile; start another run"
            )
        with naming(sample):
            Training(self, backend, sample, batch, self._shard()).run()
        leave(ExitCode.DONE)


class EvaluatedJob(Job):
    """Measures a pass on the held-out records."""

    def __init__(self, program: ProgramEnvironment, parse: Parse, reader: Reader) -> None:
        node = environment.parse()
        super().__init__(parse, node.runtime, node.seed)
        self._pass = Path(program.evaluated_pass)
        self._held_out = shard.held_out(node.folder, reader)

    def agree(
        self, name: str, count: Callable[[Iterable[Any]], Any], merge: Callable[[list[Any]], Any]
    ) -> Any:
        return json.loads((self._pass / f"{name}.json").read_text())

    def _static(self, network: Callable[[], Model], optimizer: Any, sync: bool) -> Any:
        from paddle_node.training.local_model import LocalModel

        return LocalModel(network)

    def _use(self, backend: Any, sample: Sampler, batch: int) -> NoReturn:
        parser = Parser(self.parse)
        with naming(sample):
            evaluation = backend.evaluate(self._pass, map(sample, parser.values(self._held_out)))
        parser.check(self._held_out.name)
        if not evaluation:
            raise BadData(
                f"{self._held_out.name} has no records: hold some out when the data is split"
            )
        raise Finished({"pass": passes.record(self._pass)["pass"], **evaluation})


def expect(found: str, runtime: str, otherwise: str) -> None:
    """Raises `SettingError` if the job's runtime is not the one that the program was written
    for.
    """
    if found != runtime:
        mode, called = (
            ("parameter-server", "run")
            if runtime == "fleet-ps"
            else ("collective", "run_collective")
        )
        raise SettingError(
            f"the job's runtime is {found}, and job.{called} needs {runtime}: set `mode: "
            f"{mode}`, or call job.{otherwise}"
        )


def static_mode(runtime: str, seed: int) -> None:
    """Prepares Paddle for a network whose embeddings pservers hold. Raises `SettingError` if this
    Paddle has no pservers.
    """
    import paddle

    expect(runtime, "fleet-ps", "run_collective")
    if not hasattr(paddle.base.core, "DistFleetWrapper"):
        raise SettingError(
            f"{Variable.RUNTIME} is fleet-ps, and the image has Paddle {paddle.__version__}, "
            "which has no parameter servers: use an image with Paddle 2.6.2, or the runtime "
            "collective and job.run_collective"
        )
    paddle.enable_static()
    # To Paddle a seed of 0 means none, and a seed has 31 bits. The pservers draw the rows of
    # embeddings, and take no seed.
    seed = seed % (2**31 - 1) + 1
    paddle.static.default_startup_program().random_seed = seed
    paddle.static.default_main_program().random_seed = seed


@contextlib.contextmanager
def naming(sample: Sampler) -> Iterator[None]:
    """Adds the place of the function to the error for a value that an input cannot take."""
    try:
        yield
    except BadSample as bad:
        raise SettingError(f"{own_code.place(sample)}: {bad.sentence}") from None


def _report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Prints one sentence for a deliberate end of the process, or a traceback for a fault of the
    program itself.
    """
    code = 1
    if isinstance(error, Failure):
        print(error.sentence, file=sys.stderr)
        # A pass that cannot be loaded ends the attempt and not the job: the next attempts pass over
        # it.
        code = 1 if isinstance(error, passes.DamagedPass) else error.code
    elif isinstance(error, OSError) and disk_full(error):
        volume = environment.Reader().text(Variable.JOB_PATH, contract.VOLUME_MOUNT)
        remedy = (
            f"make room on the volume at {volume}, or lower {Variable.KEEP_PASSES}; elsewhere, "
            "give the pod more scratch"
        )
        print(f"the disk is full: {error}; {remedy}", file=sys.stderr)
        code = ExitCode.VOLUME_FULL
    elif isinstance(error, AttemptEnded):
        print(f"this attempt is over: {error}", file=sys.stderr)
    else:
        traceback.print_exception(kind, error, trace)
    leave(code)

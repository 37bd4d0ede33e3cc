"""All that a training program needs: `train.py` says what the data and the network are, this module does the rest.

    job = fleet.start(parse)
    known = job.agree("vocabulary", count, merge)
    job.run(network, sample, learning_rate=0.01, batch=64)

The same program serves as pserver, as trainer and as evaluator, whichever its environment says. A pass counts only when every
record of every shard was trained and every pserver's part is on the volume; a resumed run continues after the newest such pass.
"""

import contextlib
import json
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from paddle_node import contract, coordination, environment, full_disk, own_code
from paddle_node.contract import ExitCode, JobFolder, Variable
from paddle_node.coordination import AttemptEnded
from paddle_node.data import data_manifest
from paddle_node.environment import ProgramEnvironment
from paddle_node.failure import BadData, Failure, SettingError, leave
from paddle_node.staging.program_copy import copy_files
from paddle_node.training import passes, shard
from paddle_node.training.agreement import Agreement
from paddle_node.training.backends.backend import Backend, Sample
from paddle_node.training.backends.network import BadSample, Model, embedding, ids, label, number, pooled
from paddle_node.training.shard import Parser, Reader, Record, lines
from paddle_node.training.timeline import Timeline

__all__ = ["Evaluated", "Job", "Model", "embedding", "ids", "label", "lines", "number", "pooled", "start"]

Parse = Callable[[str], Any]
"""From a record to what it says. None leaves the record out; ValueError means that it cannot be read: a few such
records are left out and counted, too many end the job with the first one's place."""
Sampler = Callable[[Any], Sample]
"""From what a record says to {input: value}."""

TRIAL = "TRIAL"
"""TRAINING_ROLE in `paddle_node.training.trial`."""


class Evaluated(BaseException):
    """How `Job.run` hands its result to evaluate_pass.py, past everything that a program may catch."""

    def __init__(self, result: dict[str, Any]) -> None:
        super().__init__(result)
        self.result = result


def start(parse: Parse = str, reader: Reader = lines) -> "Job":
    """`reader` makes records of a file, `parse` makes sense of a record. From here on a `Failure` ends the process."""
    sys.excepthook = _report
    program = ProgramEnvironment.read()
    if program.role == TRIAL:
        from paddle_node.training.trial import Trial

        return Trial(parse, reader)  # type: ignore[return-value]  # A Job without what needs a pod.
    return Job(program, parse, reader)


class Job:
    """This process's part in the job."""

    def __init__(self, program: ProgramEnvironment, parse: Parse, reader: Reader) -> None:
        self.timeline = Timeline()
        self.timeline.mark("the peers came and the program was loaded")
        self.parse = parse
        self._reader = reader
        self.role = program.role
        if self.role not in ("PSERVER", "TRAINER", "EVALUATOR"):
            raise SettingError(
                f"{Path(sys.argv[0]).name} is run by hand: name its folder in a job file (`program: {{folder: ./my_program}}`), "
                "then `paddle-aws try job.yaml` runs it on a few records, and `make rehearse JOB=job.yaml` as a whole job"
            )
        self.node = environment.parse()
        self.folder = self.node.folder
        resumed = program.resumed
        self.resume_pass = int(resumed["pass"]) if "pass" in resumed else None
        self.resume_folder = self.folder.output / resumed["folder"] if "folder" in resumed else None
        self.interrupted = self.folder.output / resumed["interrupted"] if "interrupted" in resumed else None
        """The newest checkpoint inside the pass behind that one."""
        self.resume_from = self.interrupted or self.resume_folder
        """The folder whose parameters this attempt begins with; None: new ones."""
        self.trainer_id = program.trainer_id
        self.attempt = program.attempt
        self.place = self.folder.attempt(self.node.run_id, self.attempt)
        """Where this attempt saves, and no other."""
        self._evaluated = Path(program.evaluated_pass)
        self._program = Path(sys.argv[0]).resolve().parent
        self._session = coordination.join() if self.role == "TRAINER" else None
        self._agreed: dict[str, str] = {}
        """As JSON: what the attempt resumed from may be removed before the next pass is saved."""

    def agree(self, name: str, count: Callable[[Iterable[Any]], Any], merge: Callable[[list[Any]], Any]) -> Any:
        """A JSON value that every process has alike: `merge` of what `count` finds in each trainer's shard.

        `count` gets what `parse` made of the records. `merge` must not depend on the shards' order or number; what
        it returns is kept with each pass.
        """
        kept = self._evaluated if self.role == "EVALUATOR" else self.resume_from
        if kept is not None and (kept / f"{name}.json").is_file():
            self._agreed[name] = (kept / f"{name}.json").read_text()
            return json.loads(self._agreed[name])
        agreement = Agreement(self.folder, self.node.identity, self.node.home, self.attempt, name)
        if self._session is None:
            return agreement.wait()
        value = agreement.reach(self._session, lambda: count(self._checked()), merge)
        self._agreed[name] = json.dumps(value)
        self.timeline.mark(f"{name} was agreed")
        return value

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

        `network` builds a static program out of this module's inputs and embeddings. `optimizer` is Adam with
        `learning_rate` unless given; `batch` counts records a step of one trainer. `sync` makes all trainers take
        each step together: slower, see docs/runtimes.md.
        """
        import paddle

        static_mode(self.node.runtime, self.node.seed)
        if self.role == "EVALUATOR":
            from paddle_node.training.local_model import LocalModel

            self._evaluate(lambda samples: LocalModel(self._evaluated, network).evaluate(samples), sample)
        from paddle_node.training.backends.parameter_servers import ParameterServers

        with paddle.base.unique_name.guard():
            model = checked(network(), network)
            chosen = optimizer or paddle.optimizer.Adam(learning_rate)
            backend = ParameterServers(network, model, chosen, self.node.trainers, self.resume_from, sync)
        if self.role == "PSERVER":
            backend.serve()
            leave(ExitCode.DONE)
        self._train(backend, sample, batch)

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

        `layer()` makes a paddle.nn.Layer, `forward(layer, samples)` a Model of tensors out of a batch;
        `optimizer(parameters)` makes one, Adam with `learning_rate` unless given.
        """
        import paddle

        expect(self.node.runtime, "collective", "run")
        from paddle_node.training.backends import collective

        paddle.seed(self.node.seed)
        made = layer()
        if self.role == "EVALUATOR":
            self._evaluate(lambda samples: collective.evaluate(self._evaluated, made, forward, samples), sample)
        parameters = made.parameters()
        chosen = optimizer(parameters) if optimizer else paddle.optimizer.Adam(learning_rate, parameters=parameters)
        self._train(collective.Collective(made, forward, chosen), sample, batch)

    @property
    def session(self) -> coordination.Session:
        if self._session is None:
            raise RuntimeError(f"a {self.role} has no session")
        return self._session

    def facts(self, directory: Path) -> dict[str, Any]:
        """Whose this attempt's save in `directory` is, for its record; to be called after `keep_beside`."""
        return {
            "attempt": self.attempt,
            "run": self.node.run_id,
            **asdict(self.node.identity),
            "agreed": {name: passes.checksum(directory / f"{name}.json") for name in self._agreed},
        }

    def keep_beside(self, directory: Path, *, program: bool) -> None:
        """The agreed values, and what a pass needs to be understood later: the whole program folder and its path."""
        if program:
            copy_files(self._program, directory / "program")
            (directory / "path.txt").write_text(f"program/{Path(sys.argv[0]).name}\n")
        for name, text in self._agreed.items():
            (directory / f"{name}.json").write_text(text)

    def _shard(self) -> shard.Shard:
        staged = JobFolder(self.node.local_disk.folder) if self.node.local_disk else None
        return shard.of_trainer(self.folder, self.trainer_id, self._reader, staged)

    def _checked(self) -> Iterator[Any]:
        """What this trainer's records say. Raises `Failure` behind the last where the shard is not as the manifest says."""
        own = self._shard()
        read = used = 0

        def counted() -> Iterator[Record]:
            nonlocal read
            for record in own:
                read += 1
                if read % 4096 == 0:
                    # The health probe must see that a large shard moves, too.
                    self.session.progress(0 if self.resume_pass is None else self.resume_pass + 1, 0)
                yield record

        for value in Parser(self.parse).stream(counted(), own.name):
            used += 1
            yield value
        own.check(read, used)

    def _train(self, backend: Backend, sample: Sampler, batch: int) -> NoReturn:
        from paddle_node.training.loop import Training

        self.timeline.mark("the network was built")
        if data_manifest.digest(self.folder.data_manifest) != self.node.identity.data:
            raise BadData(
                f"{self.folder.data_manifest} is not the one that this run began with: the data was split anew meanwhile; "
                "start another run"
            )
        with naming(sample):
            Training(self, backend, sample, batch, self._shard()).run()
        leave(ExitCode.DONE)

    def _evaluate(self, evaluate: Callable[[Iterable[Sample]], dict[str, Any]], sample: Sampler) -> NoReturn:
        held_out = shard.held_out(self.folder, self._reader)
        with naming(sample):
            found = evaluate(map(sample, Parser(self.parse).stream(held_out, held_out.name)))
        if not found:
            raise BadData(f"{held_out.name} has no records: hold some out when the data is split")
        raise Evaluated({"pass": passes.record(self._evaluated)["pass"], **found})


def expect(found: str, runtime: str, otherwise: str) -> None:
    """Raises `SettingError` where the job's runtime is not the one that the program was written for."""
    if found != runtime:
        mode, called = ("parameter-server", "run") if runtime == "fleet-ps" else ("collective", "run_collective")
        raise SettingError(
            f"the job's runtime is {found}, and job.{called} needs {runtime}: set `mode: {mode}`, or call job.{otherwise}"
        )


def static_mode(runtime: str, seed: int) -> None:
    """Prepares Paddle for a network whose embeddings pservers hold. Raises `SettingError` where this Paddle has none."""
    import paddle

    expect(runtime, "fleet-ps", "run_collective")
    if not hasattr(paddle.base.core, "DistFleetWrapper"):
        raise SettingError(
            f"{Variable.RUNTIME} is fleet-ps, and the image has Paddle {paddle.__version__}, which has no parameter servers: "
            "use an image with Paddle 2.6.2, or the runtime collective and job.run_collective"
        )
    paddle.enable_static()
    # To Paddle a seed of 0 means none, and it has 31 bits. The rows of embeddings are drawn by the pservers, which take none.
    seed = seed % (2**31 - 1) + 1
    paddle.static.default_startup_program().random_seed = seed
    paddle.static.default_main_program().random_seed = seed


def checked(made: Any, maker: Callable[..., Any]) -> Model:
    """What the program's function made, if it is a Model. Raises `SettingError`."""
    if not isinstance(made, Model):
        raise SettingError(f"{own_code.place(maker)}: it returns {type(made).__name__}, a fleet.Model is needed")
    return made


@contextlib.contextmanager
def naming(sample: Sampler) -> Iterator[None]:
    """Adds the place of the function to the error for a value that an input cannot take."""
    try:
        yield
    except BadSample as bad:
        raise SettingError(f"{own_code.place(sample)}: {bad.sentence}") from None


def _report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """One sentence for what ends a process on purpose; a traceback for a fault of the program itself."""
    code = 1
    if isinstance(error, Failure):
        print(error.sentence, file=sys.stderr)
        # A pass that cannot be loaded ends the attempt and not the job: the next attempts pass over it.
        code = 1 if isinstance(error, passes.DamagedPass) else error.code
    elif isinstance(error, OSError) and full_disk.is_full(error):
        volume = environment.Reader().text(Variable.JOB_PATH, contract.VOLUME_MOUNT)
        if scratch := full_disk.scratch(error, contract.path(volume)):
            print(f"{scratch} is full, which is the pod's own and not the volume: {error}; give it more room", file=sys.stderr)
        else:
            print(f"the volume at {volume} is full: {error}; make room, or lower {Variable.KEEP_PASSES}", file=sys.stderr)
        code = ExitCode.VOLUME_FULL
    elif isinstance(error, AttemptEnded):
        print(f"this attempt is over: {error}", file=sys.stderr)
    else:
        traceback.print_exception(kind, error, trace)
    leave(code)

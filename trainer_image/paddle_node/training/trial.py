"""A training program on the first records of its source, in one process.

    python -m paddle_node.training.trial <train.py> <arguments>

The program runs as in a pod, but alone, with local embeddings. A fault in it or its data ends with 2 and one sentence, with the
program's own line; a source that cannot be reached from here ends with 68. A command is not run: it is compiled, and its imports
are looked for. Only the working directory, the caller's scratch, is written to.
"""

import ast
import faulthandler
import importlib.util
import json
import math
import os
import runpy
import sys
import zlib  # noqa: F401  Before Paddle: see paddle_node.training.program.
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn, Self

from paddle_node import command_line, environment, own_code
from paddle_node.contract import ExitCode, Variable
from paddle_node.data import records
from paddle_node.data.settings import FORMATS
from paddle_node.data.sources import registry, unpack
from paddle_node.environment import read_settings, setting
from paddle_node.failure import BadData, Failure, SettingError, leave
from paddle_node.training.backends.backend import Sample
from paddle_node.training.shard import Parser, Reader, Record

RECORDS = 100
FILES = 20
STEPS = 40


@dataclass(frozen=True, kw_only=True)
class TrialSettings:
    """What is tried, with the variables of the pods that it stands for."""

    runtime: str = setting(environment.Reader.text, Variable.RUNTIME, environment.DEFAULT_RUNTIME)
    seed: int = setting(environment.Reader.whole, Variable.SEED, 0, 0, 2**31 - 1)
    source: str = setting(environment.Reader.raw, Variable.DATA_SOURCE)
    format: str = setting(environment.Reader.text, Variable.DATA_FORMAT, FORMATS[0])
    command: tuple[str, ...] = setting(environment.Reader.words, Variable.COMMAND)

    @classmethod
    def read(cls) -> Self:
        """Raises `SettingError`."""
        return cls(**read_settings(cls, environment.Reader()))


class Tried(BaseException):
    """The end of a program that can be trained, past everything that it may catch."""


class Trial:
    """What `fleet.start` gives the program here; see `fleet.Job`."""

    def __init__(self, parse: Callable[[str], Any], reader: Reader) -> None:
        self._parse = parse
        self._settings = TrialSettings.read()
        files = _first(self._settings)
        read = (Record(text, file, number) for file in files for number, text in enumerate(reader(file), start=1))
        self._records = list(islice(read, RECORDS))
        self._source = registry.public(self._settings.source).rpartition("/")[2]

    def agree(self, name: str, count: Callable[[Iterable[Any]], Any], merge: Callable[[list[Any]], Any]) -> Any:
        counted = json.loads(json.dumps(count(iter(self._values()))))
        return json.loads(json.dumps(merge([counted])))

    def run(self, network: Any, sample: Any, *, learning_rate: float = 0.01, batch: int = 64, **more: Any) -> NoReturn:
        import paddle

        from paddle_node import fleet
        from paddle_node.training.backends.network import Feeder, local

        fleet.static_mode(self._settings.runtime, self._settings.seed)
        with paddle.base.unique_name.guard(), local():
            model = fleet.checked(network(), network)
            (more.get("optimizer") or paddle.optimizer.Adam(learning_rate)).minimize(model.loss)
        program = paddle.static.default_main_program()
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(paddle.static.default_startup_program())
        feeder = Feeder(program)
        samples = self._samples(sample)
        with fleet.naming(sample):
            feeder.check(samples)
        _show({each.name: each.wants for each in feeder.inputs}, samples)

        def step(some: Sequence[Sample]) -> float:
            return float(executor.run(program, feed=feeder.feed(some), fetch_list=[model.loss])[0])

        _train(step, samples, batch)

    def run_collective(
        self, layer: Any, forward: Any, sample: Any, *, learning_rate: float = 0.01, batch: int = 64, optimizer: Any = None
    ) -> NoReturn:
        import paddle

        from paddle_node import fleet

        fleet.expect(self._settings.runtime, "collective", "run")
        paddle.seed(self._settings.seed)
        made = layer()
        parameters = made.parameters()
        chosen = optimizer(parameters) if optimizer else paddle.optimizer.Adam(learning_rate, parameters=parameters)
        samples = self._samples(sample)
        if isinstance(samples[0], Mapping):
            _show({name: type(value).__name__ for name, value in samples[0].items()}, samples)

        def step(some: Sequence[Sample]) -> float:
            loss = fleet.checked(forward(made, some), forward).loss
            loss.backward()
            chosen.step()
            chosen.clear_grad()
            return float(loss)

        _train(step, samples, batch)

    def _values(self) -> list[Any]:
        parser = Parser(self._parse)
        found = []
        for record in self._records:
            try:
                found += parser.values([record])
            except Exception as error:
                text = f"{own_code.summary(error)}: parse got record {record.number} of {self._source}, {record.text[:80]!r}"
                raise BadData(text) from None
        parser.check(len(self._records), self._source)
        if not found:
            raise BadData(f"{self._source}: parse left out all of the first {len(self._records)} records")
        return found

    def _samples(self, sample: Callable[[Any], Sample]) -> list[Sample]:
        values = self._values()
        used = f"{len(values)} of the first {len(self._records)} records are used"
        print(f"{self._source}: {used}, the first as {_shown(values[0])}")
        return [sample(value) for value in values]


def _first(settings: TrialSettings) -> list[Path]:
    """The source's first records in a file as the data job would write it; of whole files the first ones."""
    source = registry.open_source(settings.source, os.environ)
    form = settings.format
    reader = None if form in FORMATS else records.load_reader(form, Path(sys.argv[0]).parent)
    try:
        objects = source.objects()
        if form == "files":
            members = (member for thing in objects for member in unpack.members(source, thing, form))
            return [_written(Path(name).name, [stream.read()]) for name, stream in islice(members, FILES)]
        pieces = map(registry.Piece, objects)
        batches = records.batches(source, pieces, form, reader)
        return [_written(objects[0].name, islice((one for batch in batches for one in batch), RECORDS))]
    except Failure as failure:
        if "://" not in source.uri or reader is not None:
            raise
        raise Failure(ExitCode.SOURCE_UNREACHABLE, failure.sentence) from None


def _written(name: str, content: Iterable[bytes]) -> Path:
    file = Path("records", Path(name).name)
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"".join(content))
    return file


def _show(inputs: Mapping[str, str], samples: Sequence[Sample]) -> None:
    for name, wants in inputs.items():
        print(f"{name} ({wants}): {', '.join(_shown(sample[name]) for sample in samples[:3])}, ...")


def _shown(value: Any) -> str:
    shape, kind = getattr(value, "shape", ()), getattr(value, "dtype", "")
    text = f"{kind}{list(shape)}" if shape else repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def _train(step: Callable[[Sequence[Sample]], float], samples: Sequence[Sample], batch: int) -> NoReturn:
    import paddle

    paddle.disable_signal_handler()
    faulthandler.enable()  # An id beyond an embedding's rows may crash Paddle: the caller reads in which line.
    batches = [samples[begin : begin + batch] for begin in range(0, len(samples), batch)]
    passes = []
    for number in range(-(-STEPS // len(batches))):
        losses = [step(some) for some in batches]
        if not all(map(math.isfinite, losses)):
            raise SettingError(f"the loss is no number in pass {number} over these records: lower the learning rate")
        passes.append(sum(losses) / len(losses))
    falls = "" if passes[-1] < passes[0] else "; it does not fall: lower the learning rate, or look at the inputs"
    print(f"loss {passes[0]:.4f} -> {passes[-1]:.4f} in {len(passes)} passes over these records{falls}")
    raise Tried


def _command(words: Sequence[str], folder: Path) -> None:
    script = command_line.script(words)
    if not script:
        print(f"{words[0]} names no Python file, so nothing was tried: a rehearsal runs it")
        return
    tree = ast.parse((folder / script).read_bytes(), str(folder / script))
    sys.path.insert(0, str((folder / script).parent))
    wanted = [(alias.name, one.lineno) for one in tree.body if isinstance(one, ast.Import) for alias in one.names]
    wanted += [(one.module or "", one.lineno) for one in tree.body if isinstance(one, ast.ImportFrom) and not one.level]
    for name, line in wanted:
        module = name.partition(".")[0]
        if importlib.util.find_spec(module) is None:
            raise SettingError(f"{script}:{line}: there is no module {module}: name its package in program.requirements")
    print(f"{script} compiles, and all that it imports is there; a command is not run here: a rehearsal runs it")


def main() -> int:
    """`sys.argv[1]` is the program."""
    program = Path(sys.argv[1])
    sys.argv = sys.argv[1:]
    sys.dont_write_bytecode = True
    os.environ.setdefault("GLOG_minloglevel", "2")  # Paddle says which executor it chose.
    try:
        if command := TrialSettings.read().command:
            _command(command, program.parent)
            return ExitCode.DONE
        sys.path.insert(0, str(program.parent))
        runpy.run_path(str(program), run_name="__main__")
        sentence = f"{program.name} ended without a call of job.run or job.run_collective"
    except Tried:
        return ExitCode.DONE
    except Failure as failure:
        sentence = failure.sentence
        if failure.code == ExitCode.SOURCE_UNREACHABLE:
            print(sentence, file=sys.stderr)
            return failure.code
    except (Exception, SystemExit) as error:
        sentence = own_code.summary(error)
    print(sentence, file=sys.stderr)
    return ExitCode.BAD_SETTING


if __name__ == "__main__":
    from paddle_node.training import trial  # Which `fleet` finds: this is a second copy of it.

    leave(trial.main())

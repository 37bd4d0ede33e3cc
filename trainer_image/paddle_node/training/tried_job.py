"""The job that `fleet.start` gives a program on trial: `paddle_node.training.trial` starts the
program and says how it ended.
"""

import faulthandler
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import paddle

from paddle_node import environment, own_code
from paddle_node.contract import ExitCode, Variable
from paddle_node.data import first_lines, records
from paddle_node.data.settings import FORMATS
from paddle_node.data.sources import open_source, unpack
from paddle_node.data.sources.source import Piece, public_address
from paddle_node.environment import read_settings, setting
from paddle_node.failure import BadData, BadSetting, Failure, Finished
from paddle_node.training.backends.backend import Sample
from paddle_node.training.backends.network import Feeder, Model, check_model, local
from paddle_node.training.job import Job, Parse, Sampler, name_sample
from paddle_node.training.shard import Parser, Reader, Record

RECORDS = 100
FILES = 20
STEPS = 40
LARGE_ANSWER = 100.0
"""Mean of a regression's answers from which it is worth a warning."""


@dataclass(frozen=True, kw_only=True)
class TrialSettings:
    """The trial's settings, from the same variables as in the pods that it stands for."""

    runtime: str = setting(environment.Reader.text, Variable.RUNTIME, environment.DEFAULT_RUNTIME)
    seed: int = setting(environment.Reader.integer, Variable.SEED)
    source: str = setting(environment.Reader.raw, Variable.DATA_SOURCE)
    format: str = setting(environment.Reader.text, Variable.DATA_FORMAT, FORMATS[0])
    header: int = setting(environment.Reader.integer, Variable.HEADER)


class LocalSteps:
    """Steps of the network with its embeddings in this process."""

    def __init__(self, model: Model, optimizer: Any) -> None:
        optimizer.minimize(model.loss)
        self._loss = model.loss
        self.number = "" if model.answers else model.answer.name
        """The input with the answer, if that is a number."""
        self._program = paddle.static.default_main_program()
        self._executor = paddle.static.Executor(paddle.CPUPlace())
        self._executor.run(paddle.static.default_startup_program())
        self.feeder = Feeder(self._program)

    def step(self, samples: Sequence[Sample]) -> float:
        return float(
            self._executor.run(
                self._program, feed=self.feeder.feed(samples), fetch_list=[self._loss]
            )[0]
        )


class TriedJob(Job):
    """Runs all processes of the job as one, on the first records."""

    def __init__(self, parse: Parse, reader: Reader) -> None:
        settings = TrialSettings(**read_settings(TrialSettings, environment.Reader()))
        super().__init__(parse, settings.runtime, settings.seed)
        files = _first(settings)
        read = (
            Record(text, file, number)
            for file in files
            for number, text in enumerate(reader(file), start=1)
        )
        self._records = list(islice(read, RECORDS))
        self._source = public_address(settings.source).rpartition("/")[2]

    def agree(
        self, name: str, count: Callable[[Iterable[Any]], Any], merge: Callable[[list[Any]], Any]
    ) -> Any:
        counted = json.loads(json.dumps(count(iter(self._values()))))
        return json.loads(json.dumps(merge([counted])))

    def _static(self, network: Callable[[], Model], optimizer: Any, sync: bool) -> Any:
        with local():
            return LocalSteps(check_model(network(), network), optimizer)

    def _use(self, backend: Any, sample: Sampler, batch: int) -> NoReturn:
        values = self._values()
        used = f"{len(values)} of the first {len(self._records)} records are used"
        print(f"{self._source}: {used}, the first as {_show(values[0])}")
        samples = [sample(value) for value in values]
        wants: dict[str, str] = {}
        if isinstance(backend, LocalSteps):
            with name_sample(sample):
                backend.feeder.check(samples)
            wants = {input_.name: input_.wants for input_ in backend.feeder.inputs}
        elif isinstance(samples[0], Mapping):
            wants = {name: type(value).__name__ for name, value in samples[0].items()}
        for name, kind in wants.items():
            print(
                f"{name} ({kind}): {', '.join(_show(sample[name]) for sample in samples[:3])}, ..."
            )
        if isinstance(backend, LocalSteps) and (answer := backend.number):
            mean = np.mean([np.abs(sample[answer]) for sample in samples])
            if mean > LARGE_ANSWER:
                print(
                    f"warning: {answer} is about {mean:,.0f}: let sample() divide it by its mean, "
                    "as numbers around 1 are learned fastest"
                )
        paddle.disable_signal_handler()
        # An id beyond an embedding's rows may crash Paddle: the caller reads at which line.
        faulthandler.enable()
        batches = [samples[begin : begin + batch] for begin in range(0, len(samples), batch)]
        passes = []
        for number in range(-(-STEPS // len(batches))):
            losses = [backend.step(some) for some in batches]
            if not all(map(math.isfinite, losses)):
                raise BadSetting(
                    f"the loss is not a number in pass {number} over these records: lower the "
                    "learning rate, or scale inputs and answers to about 1"
                )
            passes.append(sum(losses) / len(losses))
        falls = (
            ""
            if passes[-1] < passes[0]
            else "; it does not fall: lower the learning rate, or look at the inputs"
        )
        print(
            f"loss {passes[0]:.4f} -> {passes[-1]:.4f} in {len(passes)} passes over these "
            f"records{falls}"
        )
        raise Finished({})

    def _values(self) -> list[Any]:
        parser = Parser(self.parse)
        values: list[Any] = []
        for record in self._records:
            try:
                values += parser.values([record])
            except Exception as error:
                text = (
                    f"{own_code.summary(error)}: parse got record {record.number} of "
                    f"{self._source}, {record.text[:80]!r}"
                )
                raise BadData(text) from None
        parser.check(self._source)
        if not values:
            raise BadData(
                f"{self._source}: parse left out all of the first {len(self._records)} records"
            )
        return values


def _first(settings: TrialSettings) -> list[Path]:
    """Returns the source's first records in a file as the data job would write it; for format
    `files`, the first files.
    """
    source = open_source(settings.source, os.environ)
    form = settings.format
    reader = None if form in FORMATS else records.load_reader(form, Path(sys.argv[0]).parent)
    try:
        objects = source.objects()
        if form == "files":
            members = (
                member for thing in objects for member in unpack.members(source, thing, form)
            )
            return [
                _write(Path(name).name, [stream.read()]) for name, stream in islice(members, FILES)
            ]
        pieces = map(Piece, objects)
        batches = records.batches(source, pieces, form, reader, bool(settings.header))
        lines = list(islice((line for batch in batches for line in batch), RECORDS))
        name = Path(objects[0].name).name
        for doubt in first_lines.find_doubts(lines, name) if reader is None else ():
            print(f"warning: {doubt}")
        return [_write(name, lines)]
    except Failure as failure:
        if "://" not in source.uri or reader is not None:
            raise
        raise Failure(ExitCode.SOURCE_UNREACHABLE, failure.sentence) from None


def _write(name: str, content: Iterable[bytes]) -> Path:
    file = Path("records", Path(name).name)
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"".join(content))
    return file


def _show(value: Any) -> str:
    shape, kind = getattr(value, "shape", ()), getattr(value, "dtype", "")
    text = f"{kind}{list(shape)}" if shape else repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."

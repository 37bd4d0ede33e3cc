"""An evaluator's part in a job: it measures a pass on the held-out records."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

from paddle_node import environment
from paddle_node.environment import ProgramEnvironment
from paddle_node.failure import BadData, Finished
from paddle_node.training import shard
from paddle_node.training.backends.network import Model
from paddle_node.training.job import Job, Parse, Sampler, name_sample
from paddle_node.training.shard import Parser, Reader
from paddle_node.volume import passes


class EvaluatedJob(Job):
    """Measures a pass on the held-out records."""

    def __init__(self, program: ProgramEnvironment, parse: Parse, reader: Reader) -> None:
        pod = environment.parse()
        super().__init__(parse, pod.runtime, pod.seed)
        self._pass = Path(program.evaluated_pass)
        self._held_out = shard.open_held_out(pod.folder, reader)

    def agree(
        self, name: str, count: Callable[[Iterable[Any]], Any], merge: Callable[[list[Any]], Any]
    ) -> Any:
        return json.loads((self._pass / f"{name}.json").read_text())

    def _static(self, network: Callable[[], Model], optimizer: Any, sync: bool) -> Any:
        from paddle_node.training.local_model import LocalModel

        return LocalModel(network)

    def _use(self, backend: Any, sample: Sampler, batch: int) -> NoReturn:
        parser = Parser(self.parse)
        with name_sample(sample):
            evaluation = backend.evaluate(self._pass, map(sample, parser.values(self._held_out)))
        parser.check(self._held_out.name)
        if not evaluation:
            raise BadData(
                f"{self._held_out.name} has no records: hold some out when the data is split"
            )
        raise Finished({"pass": passes.read_record(self._pass)["pass"], **evaluation})

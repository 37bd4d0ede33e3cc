"""Evaluates a complete pass, or exports it for inference, as an ordinary local Paddle program
without pservers.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle import static
from paddle.base import unique_name

from paddle_node.training import metrics
from paddle_node.training.backends import network, tables
from paddle_node.volume.passes import PREDICT, DamagedPass

_PREDICT = """\
import numpy, paddle
paddle.enable_static()
program, _, outputs = paddle.static.load_inference_model("model", paddle.static.Executor())
record = {{{}}}
print(paddle.static.Executor().run(program, feed=record, fetch_list=outputs)[0])
"""
LARGEST_EXPORT = 2**30
"""Bytes of parameters above which no inference model is exported: trainer 0 would need them in
memory.
"""


class LocalModel:
    """The network that `build` describes."""

    def __init__(self, build: Callable[[], network.Model]) -> None:
        self._program, self._startup = static.Program(), static.Program()
        self._scope = static.Scope()
        # Names match those in the training process, where this network was also the first.
        with (
            unique_name.guard(),
            static.program_guard(self._program, self._startup),
            network.local(),
        ):
            self._model = build()
        self._executor = static.Executor(paddle.CPUPlace())
        self._pruned = self._program.clone(for_test=True)._prune(
            targets=[self._model.prediction.name]
        )

    def _load(self, directory: Path) -> None:
        """Loads the parameters of a pass. Raises `DamagedPass`."""
        arrays = tables.read(directory)
        with static.scope_guard(self._scope):
            self._executor.run(self._startup)
            for parameter in self._program.all_parameters():
                if (
                    parameter.name not in arrays
                    or tuple(parameter.shape) != arrays[parameter.name].shape
                ):
                    raise DamagedPass(
                        f"{directory} has no parameter {parameter.name} of shape "
                        f"{tuple(parameter.shape)}"
                    )
                self._scope.find_var(parameter.name).get_tensor().set(
                    arrays[parameter.name], paddle.CPUPlace()
                )

    def evaluate(self, directory: Path, samples: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """Measures the pass in `directory` on `samples`; see `metrics.evaluate`. Raises
        `DamagedPass`.
        """
        self._load(directory)
        feeder = network.Feeder(self._pruned, _inputs(self._pruned))

        def predict(batch: list[Mapping[str, Any]]) -> tuple[Sequence[str], Any, Any]:
            with static.scope_guard(self._scope):
                (scores,) = self._executor.run(
                    self._pruned,
                    feed=feeder.feed(batch),
                    fetch_list=[self._model.prediction.name],
                    return_numpy=False,
                )
            right = [np.asarray(sample[self._model.answer.name]).reshape(-1)[0] for sample in batch]
            return self._model.answers, right, np.array(scores)

        return metrics.evaluate(samples, predict)

    def export(self, directory: Path, target: Path) -> None:
        """Writes `model.pdmodel` and `.pdiparams`, which any Paddle loads, and a few lines of
        Python that predict with them.
        """
        self._load(directory)
        variables = self._pruned.global_block().vars
        feed = [variables[name] for name in sorted(_inputs(self._pruned))]
        with static.scope_guard(self._scope):
            static.save_inference_model(
                str(target / "model"),
                feed,
                [variables[self._model.prediction.name]],
                self._executor,
                program=self._pruned,
            )
        (target / PREDICT).write_text(
            _PREDICT.format(
                ", ".join(f'"{variable.name}": {_example(variable)}' for variable in feed)
            )
        )


def export_size(directory: Path) -> int:
    """Returns the size in bytes of all parameters of a pass, as an inference model holds them."""
    return sum(4 * int(np.prod(shape)) for shape in tables.Layout.load(directory).shapes().values())


def _example(variable: Any) -> str:
    if variable.lod_level:
        return "paddle.base.create_lod_tensor([[0, 0]], [[2]], paddle.CPUPlace())"
    shape = [1, *variable.shape[1:]]
    return f'numpy.zeros({shape}, "{"float32" if variable.dtype == paddle.float32 else "int64"}")'


def _inputs(program: Any) -> set[str]:
    used = {name for op in program.global_block().ops for name in op.input_arg_names}
    return {
        variable.name
        for variable in program.list_vars()
        if variable.is_data and variable.name in used
    }

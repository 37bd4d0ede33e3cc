"""A trainer that holds the whole model, with Paddle 2.6.2 or 3.x.

Gradients are averaged over all trainers in each step, weighted as if the step's records were one
batch. Trainer 0 saves.
"""

import contextlib
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle import distributed

from paddle_node.coordination import Session
from paddle_node.environment import ProgramEnvironment
from paddle_node.training import metrics
from paddle_node.training.backends.backend import Backend, Sample
from paddle_node.training.backends.network import Model, check_model
from paddle_node.volume.passes import PREDICT

Forward = Callable[[Any, Sequence[Sample]], Model]
"""Applies the layer to a batch."""

PARAMETERS, OPTIMIZER = "model.pdparams", "optimizer.pdopt"
_PREDICT = """\
import paddle
model = paddle.jit.load("model")
model.eval()
record = [{}]
print(model(*record))
"""


class Collective(Backend):
    """Trains the layer with the gradients of all trainers."""

    lockstep = True

    def __init__(self, layer: Any, forward: Forward, optimizer: Any) -> None:
        self._layer = layer
        self._forward = forward
        self._optimizer = optimizer
        self._session: Session | None = None
        """None: this trainer is alone."""
        self._inputs: list[Any] = []
        """Specifications of the layer's input tensors in its first step; empty: not all of its
        inputs are tensors.
        """
        layer.register_forward_pre_hook(self._look)

    def connect(self, session: Session) -> None:
        self._session = session
        with session.meeting("start"):
            if session.trainer_id:
                _await_rendezvous()
            distributed.init_parallel_env()
            for parameter in self._layer.state_dict().values():
                distributed.broadcast(parameter, src=0)

    def load(self, directory: Path) -> None:
        self._layer.set_state_dict(paddle.load(str(directory / PARAMETERS)))
        self._optimizer.set_state_dict(paddle.load(str(directory / OPTIMIZER)))

    def seed(self, seed: int) -> None:
        paddle.seed(seed)

    def step(self, samples: Sequence[Sample]) -> float:
        loss = 0.0
        if samples:
            model = check_model(self._forward(self._layer, samples), self._forward)
            self.answers = model.answers
            model.loss.backward()
            loss = model.loss.numpy().item()
        if self._session is not None:
            self._average_gradients(self._session, len(samples))
        self._optimizer.step()
        self._optimizer.clear_grad()
        return loss

    def any_stops(self, stop: bool) -> bool:
        assert self._session is not None
        return bool(_sum(self._session, paddle.to_tensor([float(stop)]))[0] > 0)

    def save(self, directory: Path) -> None:
        paddle.save(self._layer.state_dict(), str(directory / PARAMETERS))
        paddle.save(self._optimizer.state_dict(), str(directory / OPTIMIZER))

    def export(self, directory: Path, target: Path) -> None:
        # Writes the parameters and, if the layer can be traced, a model for `paddle.jit.load` and
        # the lines that predict with it.
        shutil.copyfile(directory / PARAMETERS, target / PARAMETERS)
        if not self._inputs:
            return
        self._layer.eval()
        try:
            paddle.jit.save(self._layer, str(target / "model"), input_spec=self._inputs)
        except Exception as error:  # From a user's layer: control flow that Paddle cannot trace.
            first = str(error).strip().partition("\n")[0]
            print(
                "no model for paddle.jit.load, the parameters alone: the layer cannot be traced "
                f"({first})",
                flush=True,
            )
            return
        shapes = [
            [1 if size in (None, -1) else size for size in input_.shape] for input_ in self._inputs
        ]
        kinds = [str(input_.dtype).rpartition(".")[2].lower() for input_ in self._inputs]
        example = ", ".join(
            f'paddle.zeros({shape}, "{kind}")' for shape, kind in zip(shapes, kinds, strict=True)
        )
        (target / PREDICT).write_text(_PREDICT.format(example))

    def evaluate(self, directory: Path, samples: Iterable[Sample]) -> dict[str, Any]:
        """Measures the pass in `directory` on `samples`; see `metrics.evaluate`."""
        self._layer.set_state_dict(paddle.load(str(directory / PARAMETERS)))
        self._layer.eval()

        def predict(batch: list[Sample]) -> tuple[Sequence[str], Any, Any]:
            with paddle.no_grad():
                model = self._forward(self._layer, batch)
            return model.answers, model.answer, model.prediction.numpy()

        return metrics.evaluate(samples, predict)

    def _look(self, layer: Any, inputs: Sequence[Any]) -> None:
        """Records the inputs' shapes without the batch size and integer inputs' lengths, which
        differ from batch to batch.
        """
        if not self._inputs and all(isinstance(tensor, paddle.Tensor) for tensor in inputs):
            free = [2 if "int" in str(tensor.dtype) else 1 for tensor in inputs]
            self._inputs = [
                paddle.static.InputSpec(
                    [*[None] * many, *tensor.shape[many:]][: tensor.ndim], tensor.dtype
                )
                for tensor, many in zip(inputs, free, strict=True)
            ]

    def _average_gradients(self, session: Session, records: int) -> None:
        """Averages with one message per step: all gradients, followed by the number of their
        records.
        """
        parameters = [
            parameter for parameter in self._layer.parameters() if not parameter.stop_gradient
        ]
        pieces = [
            (paddle.zeros_like(parameter) if parameter.grad is None else parameter.grad).reshape(
                [-1]
            )
            * float(records)
            for parameter in parameters
        ]
        values = _sum(session, paddle.concat([*pieces, paddle.to_tensor([float(records)])]))
        average, begin = values[:-1] / max(values[-1], 1.0), 0
        for parameter in parameters:
            size = int(np.prod(parameter.shape))
            parameter.grad = paddle.to_tensor(
                average[begin : begin + size].reshape(parameter.shape)
            )
            begin += size


def _sum(session: Session, tensor: Any) -> Any:
    with session.meeting("step"):
        distributed.all_reduce(tensor)
        return tensor.numpy()


def _await_rendezvous() -> None:
    """Returns when trainer 0 listens. If Paddle connects too early, it sleeps for 3 s before it
    tries again.
    """
    host, _, port = ProgramEnvironment.read().master.rpartition(":")
    while True:
        with (
            contextlib.suppress(OSError),
            socket.create_connection((host.strip("[]"), int(port)), timeout=1),
        ):
            return
        time.sleep(0.02)

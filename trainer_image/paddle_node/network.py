"""What a user's network is made of here: inputs, embeddings that pservers hold, and what the model answers.

Promises: the same `network()` function builds the training program, where an embedding's rows live on the
pservers, and an ordinary local program for evaluation and inference, where they are one parameter of that name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import paddle
from paddle import static

_local: ContextVar[bool] = ContextVar("local", default=False)


@dataclass(frozen=True)
class Model:
    """What `network()` returns."""

    loss: Any
    """Scalar, the mean over the batch."""
    prediction: Any
    """One score for each of `answers`, or one number."""
    answer: Any
    """The input that holds the right answer."""
    answers: Sequence[str] = ()
    """Names of the classes, for a classifier; empty: the answer is a number."""


def ids(name: str) -> Any:
    """An input of any number of ids a record."""
    return static.data(name, [None, 1], "int64", lod_level=1)


def label(name: str) -> Any:
    """An input of one class number a record."""
    return static.data(name, [None, 1], "int64")


def number(name: str) -> Any:
    """An input of one real number a record."""
    return static.data(name, [None, 1], "float32")


def embedding(name: str, of: Any, rows: int, width: int, spread: float = 0.05) -> Any:
    """A vector of `width` numbers for each id (0 <= id < rows) of an `ids` input; initially within +-`spread`.

    Pool them to one vector a record by `pooled`.
    """
    attribute = paddle.ParamAttr(name=name, initializer=paddle.nn.initializer.Uniform(-spread, spread))
    if not _local.get():
        return static.nn.sparse_embedding(of, size=[rows, width], param_attr=attribute)
    # The very op of the training program, which static.nn.embedding no longer makes: it keeps the records' bounds.
    table = static.create_parameter([rows, width], "float32", attr=attribute)
    block = static.default_main_program().current_block()
    vectors = block.create_var(dtype="float32", shape=[-1, width], lod_level=1)
    block.append_op(
        type="lookup_table",
        inputs={"Ids": [of], "W": [table]},
        outputs={"Out": [vectors]},
        attrs={"is_sparse": False, "padding_idx": -1},
    )
    return vectors


def pooled(vectors: Any, how: str = "sum") -> Any:
    """One vector a record: sum, average, sqrt (the sum divided by the root of the count) or max."""
    return static.nn.sequence_lod.sequence_pool(vectors, how)


@contextmanager
def local() -> Iterator[None]:
    """Networks that are built inside have their embeddings as local parameters."""
    token = _local.set(True)
    try:
        yield
    finally:
        _local.reset(token)


class Feeder:
    """From samples ({input: value}) to what an executor is fed with."""

    def __init__(self, program: Any, names: Collection[str] | None = None) -> None:
        inputs = [variable for variable in program.list_vars() if variable.is_data]
        # Read once: each look at a Paddle variable's property crosses into C++.
        self._inputs = [
            (variable.name, np.float32 if variable.dtype == paddle.float32 else np.int64, variable.lod_level, variable.shape[1:])
            for variable in inputs
            if names is None or variable.name in names
        ]
        self._place = paddle.CPUPlace()

    def feed(self, samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return {
            name: self._sequences([sample[name] for sample in samples], kind)
            if lod_level
            else np.array([sample[name] for sample in samples], dtype=kind).reshape([len(samples), *shape])
            for name, kind, lod_level, shape in self._inputs
        }

    def _sequences(self, values: Sequence[Any], kind: Any) -> Any:
        tensor = paddle.base.core.LoDTensor()
        lengths = [len(value) for value in values]
        flat = np.fromiter(chain.from_iterable(values), dtype=kind, count=sum(lengths)).reshape(-1, 1)
        tensor.set(flat, self._place)
        tensor.set_recursive_sequence_lengths([lengths])
        return tensor

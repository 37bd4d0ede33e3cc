"""The parts of a user's network: inputs, embeddings, and the model's answers.

The same `network()` builds two programs. In the training program, an embedding's rows live on the
pservers. In the local program, for evaluation and inference, the rows are one parameter with the
embedding's name.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import paddle
from paddle import static

from paddle_node import own_code
from paddle_node.failure import BadSetting

_local: ContextVar[bool] = ContextVar("local", default=False)


@dataclass(frozen=True)
class Model:
    """What `network()` returns.

    >>> paddle.enable_static()
    >>> score, height = static.nn.fc(number("age"), 1), number("height")
    >>> loss = paddle.nn.functional.square_error_cost(score, height).mean()
    >>> model = Model(loss, prediction=score, answer=height)
    """

    loss: Any
    """Scalar, the mean over the batch."""
    prediction: Any
    """One score for each of `answers`, or one number."""
    answer: Any
    """The input that holds the correct answer."""
    answers: Sequence[str] = ()
    """Names of the classes, for a classifier; empty: the answer is a number."""


def check_model(model: Any, maker: Callable[..., Any]) -> Model:
    """Returns what the program's function made, if it is a Model. Raises `BadSetting`
    otherwise.
    """
    if not isinstance(model, Model):
        raise BadSetting(
            f"{own_code.describe_place(maker)}: it returns {type(model).__name__}, a fleet.Model "
            "is needed"
        )
    return model


def ids(name: str) -> Any:
    """Returns an input with any number of ids per record."""
    return static.data(name, [None, 1], "int64", lod_level=1)


def label(name: str) -> Any:
    """Returns an input with one class number per record.

    >>> paddle.enable_static()
    >>> label("kind").shape
    (-1, 1)
    """
    return static.data(name, [None, 1], "int64")


def number(name: str) -> Any:
    """Returns an input with one real number per record.

    >>> paddle.enable_static()
    >>> number("price").shape
    (-1, 1)
    """
    return static.data(name, [None, 1], "float32")


def embedding(name: str, of: Any, rows: int, width: int, spread: float = 0.05) -> Any:
    """Returns a vector per id (0 <= id < rows) of an `ids` input, initially within +-`spread`;
    `pooled` makes one per record.
    """
    attribute = paddle.ParamAttr(
        name=name, initializer=paddle.nn.initializer.Uniform(-spread, spread)
    )
    if not _local.get():
        return static.nn.sparse_embedding(of, size=[rows, width], param_attr=attribute)
    # The training program's own op, which static.nn.embedding no longer makes: it keeps the
    # records' boundaries.
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
    """Returns one vector per record: sum, average, sqrt (the sum divided by the square root of the
    count) or max.

    >>> paddle.enable_static()
    >>> words = embedding("words", ids("text"), rows=100, width=8)
    >>> pooled(words, "average").shape
    (-1, 8)
    """
    return static.nn.sequence_lod.sequence_pool(vectors, how)


@contextmanager
def local() -> Iterator[None]:
    """Networks built inside this context have their embeddings as local parameters."""
    token = _local.set(True)
    try:
        yield
    finally:
        _local.reset(token)


class BadSample(BadSetting):
    """`sample` returned a value that its input cannot take: names the input, what it got and what
    it wants.
    """


@dataclass(frozen=True)
class Input:
    """One input of a network."""

    name: str
    kind: Any
    sequence: bool
    shape: tuple[int, ...]

    @property
    def wants(self) -> str:
        """What the input takes, with the name of the function that made it."""
        whole = self.kind is np.int64
        if self.shape != (1,):
            return f"its shape is {list(self.shape)}, of {'ints' if whole else 'numbers'}"
        if self.sequence:
            return "`fleet.ids` wants a list of ints"
        return "`fleet.label` wants an int" if whole else "`fleet.number` wants a finite number"

    def takes(self, value: Any) -> bool:
        try:
            array = np.asarray(value)
        except ValueError:
            return False
        if self.sequence and array.ndim:
            return not array.size or array.dtype.kind in "iub"
        fits = array.dtype.kind in ("iub" if self.kind is np.int64 else "iubf") and bool(
            np.isfinite(array).all()
        )
        return (
            fits
            and not self.sequence
            and (min(self.shape) < 0 or array.size == np.prod(self.shape))
        )


class Feeder:
    """Converts samples ({input: value}) to an executor's feed. Raises `BadSample`."""

    def __init__(self, program: Any, names: Collection[str] | None = None) -> None:
        # Read once: each access to a Paddle variable's property crosses into C++.
        self.inputs = [
            Input(
                variable.name,
                np.float32 if variable.dtype == paddle.float32 else np.int64,
                bool(variable.lod_level),
                variable.shape[1:],
            )
            for variable in program.list_vars()
            if variable.is_data and (names is None or variable.name in names)
        ]
        self._place = paddle.CPUPlace()
        self._checked = False

    def feed(self, samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        if not self._checked:
            self.check(
                samples
                # Later ones are checked only if they fail: checking each value costs more than
                # feeding.
            )
            self._checked = True
        try:
            return {
                input_.name: self._values(input_, [sample[input_.name] for sample in samples])
                for input_ in self.inputs
            }
        except (KeyError, TypeError, ValueError, OverflowError):
            self.check(samples)
            raise

    def check(self, samples: Sequence[Mapping[str, Any]]) -> None:
        """Raises `BadSample` for the first value that is not what its input wants."""
        for sample in samples:
            if not isinstance(sample, Mapping):
                raise BadSample(
                    f"sample() returns {_show(sample)}: a dict of {{input: value}} is needed"
                )
            for input_ in self.inputs:
                if input_.name not in sample:
                    raise BadSample(
                        f"`{input_.name}` is missing: sample() returns "
                        f"{', '.join(map(str, sample)) or 'nothing'}"
                    )
                if not input_.takes(sample[input_.name]):
                    raise BadSample(
                        f"`{input_.name}` got {_show(sample[input_.name])}: {input_.wants}"
                    )

    def _values(self, which: Input, values: Sequence[Any]) -> Any:
        if not which.sequence:
            return np.array(values, dtype=which.kind).reshape([len(values), *which.shape])
        tensor = paddle.base.core.LoDTensor()
        lengths = [len(value) for value in values]
        flat = np.fromiter(
            chain.from_iterable(values), dtype=which.kind, count=sum(lengths)
        ).reshape(-1, 1)
        tensor.set(flat, self._place)
        tensor.set_recursive_sequence_lengths([lengths])
        return tensor


def _show(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 40 else f'{text[:40]}...'}"

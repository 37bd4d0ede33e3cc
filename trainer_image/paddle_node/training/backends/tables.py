"""Reads what pservers of paddlepaddle 2.6.2 save, without any pserver, from the parts of ALL
pservers that saved the pass.

The parts are gzipped text. A dense table `<table>/part-<server>.gz` has one value per line: the
parameter, then the optimizer's state. The table's parameters follow one another across the servers
in order. A sparse table `<table>/part-<server>-<shard>.gz` has one row per line: id, five
statistics, the first weight, its optimizer state, the other weights, their states.
"""

import gzip
import json
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import Literal, Self

import numpy as np
import numpy.typing as npt

from paddle_node import typed
from paddle_node.volume import durable
from paddle_node.volume.passes import DamagedPass

FILE = "parameters.json"
_STATISTICS = 5
_ADAM_STATES = 2
"""Adam keeps two numbers per weight and two for all weights of a group; SGD keeps none."""

MOST_PARTS = 100_000
"""More files than any table has."""
Arrays = dict[str, npt.NDArray[np.float32]]


@dataclass(frozen=True)
class SparseTable:
    """An embedding on the pservers: only rows that training has seen exist."""

    table: int
    name: str
    rows: int
    width: int


@dataclass(frozen=True)
class DenseTable:
    """All dense parameters of one table, in the table's order."""

    table: int
    parameters: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True)
class Layout:
    """The contents of a pass, written beside its parts."""

    optimizer: Literal["adam", "sgd"]
    servers: int
    shards: int
    """Number of files of each sparse table: only pservers with the same number can load the
    pass.
    """
    steps: int
    """Gradients from all trainers that the pservers had applied."""
    sparse: tuple[SparseTable, ...]
    dense: tuple[DenseTable, ...]

    def write(self, directory: Path) -> None:
        durable.write(directory / FILE, json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, directory: Path) -> Self:
        file = directory / FILE
        try:
            layout: Self = typed.read(cls, json.loads(file.read_text()), "it")
            wrong = layout._find_wrong()
        except (FileNotFoundError, ValueError, RecursionError) as error:
            wrong = str(error)
        if wrong:
            raise DamagedPass(
                f"{file} describes no pass ({wrong}): restore the file, or remove the whole pass"
            )
        return layout

    def _find_wrong(self) -> str | None:
        """Returns the first field whose value no pass can have."""
        named: list[tuple[str, tuple[int, ...]]] = [
            (table.name, (table.rows, table.width)) for table in self.sparse
        ]
        named += [parameter for table in self.dense for parameter in table.parameters]
        numbers = [
            ("servers", self.servers, 1),
            ("shards", self.shards, 1),
            ("steps", self.steps, 0),
        ]
        numbers += [(f"{name}'s shape", size, 1) for name, shape in named for size in shape]
        for name, number, least in numbers:
            if not least <= number < 2**63:
                return f"{name} is {number!r}"
        if max(self.servers, self.shards) > MOST_PARTS or len({name for name, _ in named}) < len(
            named
        ):
            return f"{self.servers} servers, {self.shards} shards and {len(named)} parameters"
        return None

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Returns every parameter's shape: two layouts with equal shapes hold the same model."""
        sparse = {table.name: (table.rows, table.width) for table in self.sparse}
        return sparse | dict(parameter for table in self.dense for parameter in table.parameters)


def beta_powers(beta1: float, beta2: float, steps: int) -> tuple[float, float]:
    """Returns Adam's two powers after `steps` gradients: a pserver multiplies them by 0.9 and
    0.999, whatever the betas are.
    """
    return readable(beta1 * 0.9**steps), readable(beta2 * 0.999**steps)


def readable(number: float) -> float:
    """Returns `number` as a float32 whose text a pserver can read: a subnormal, on which its
    std::stof throws, becomes 0.
    """
    rounded = float(np.float32(number))
    return 0.0 if abs(rounded) < np.finfo(np.float32).tiny else rounded


def missing_parts(directory: Path, layout: Layout) -> list[str]:
    """Returns which of the pservers' parts of a save are missing: saving reports success even
    then.
    """
    names = [
        f"{table.table:03d}/part-{server:03d}.gz"
        for table in layout.dense
        for server in range(layout.servers)
    ]
    missing = [name for name in names if not (directory / name).is_file()]
    for table in layout.sparse:
        parts = len(durable.glob(directory, f"{table.table:03d}/part-*-*.gz"))
        if parts != layout.shards:
            missing.append(
                f"{layout.shards - parts} of {layout.shards} parts of {table.table:03d}/ "
                f"({table.name})"
            )
    return missing


def read(directory: Path) -> Arrays:
    """Returns every parameter of the pass in `directory`; rows that no training record had are
    0.
    """
    layout = Layout.load(directory)
    missing = missing_parts(directory, layout)
    if missing:
        raise DamagedPass(f"{directory} cannot be loaded: {', '.join(missing)} missing")
    arrays: Arrays = {}
    for dense in layout.dense:
        arrays |= _dense(directory, layout, dense)
    for sparse in layout.sparse:
        arrays[sparse.name] = _sparse(directory, layout, sparse)
    return arrays


def check(parts: Iterable[Path]) -> None:
    """Raises `DamagedPass` unless each part can be read to its end: a pserver reports success even
    on a full volume.
    """
    for part in parts:
        deque(_lines(part), maxlen=0)


def _dense(directory: Path, layout: Layout, dense: DenseTable) -> Arrays:
    parts = [
        directory / f"{dense.table:03d}" / f"part-{server:03d}.gz"
        for server in range(layout.servers)
    ]
    values = np.concatenate(
        [_finite(part, (line.split(None, 1)[:1] for line in _lines(part))) for part in parts]
    )[:, 0]
    sizes = [prod(shape) for _, shape in dense.parameters]
    if values.size != sum(sizes):
        raise DamagedPass(
            f"{directory}: table {dense.table:03d} has {values.size} values, and the model has "
            f"{sum(sizes)}"
        )
    pieces = np.split(values, np.cumsum(sizes)[:-1])
    return {
        name: piece.reshape(shape)
        for (name, shape), piece in zip(dense.parameters, pieces, strict=True)
    }


def _sparse(directory: Path, layout: Layout, sparse: SparseTable) -> npt.NDArray[np.float32]:
    others = 1 + _STATISTICS + _group(layout.optimizer, 1)
    columns = others + _group(layout.optimizer, sparse.width - 1)
    array = np.zeros((sparse.rows, sparse.width), dtype=np.float32)
    for part in durable.glob(directory, f"{sparse.table:03d}/part-*-*.gz"):
        for line in _lines(part):
            row = line.split()
            if len(row) not in (columns, others):
                raise DamagedPass(
                    f"{part} has a row of {len(row)} numbers, and {columns} were expected"
                )
            number = int(row[0]) if row[0].isdecimal() else -1
            if not 0 <= number < sparse.rows:
                raise DamagedPass(
                    f"{part} has row {row[0]}, and {sparse.name} has {sparse.rows} rows"
                )
            weights = (
                row[1 + _STATISTICS : 2 + _STATISTICS] + row[others : others + sparse.width - 1]
            )
            array[number, : len(weights)] = _finite(part, [weights])
    return array


def _finite(part: Path, rows: Iterable[list[str]]) -> npt.NDArray[np.float32]:
    """Returns an array with as many columns as the first row; with one column if there are no
    rows.
    """
    try:
        with np.errstate(over="ignore"):
            numbers = np.array([[float(text) for text in row] for row in rows], dtype=np.float32)
    except ValueError as error:
        raise DamagedPass(f"{part} holds something else than numbers: {error}") from None
    if not np.isfinite(numbers).all():
        raise DamagedPass(f"{part} holds a number that is not finite")
    return numbers if numbers.size else numbers.reshape(0, 1)


def _group(optimizer: str, width: int) -> int:
    """Returns the numbers in a row for a group of weights with common optimizer state: the first
    weight, or all the others.
    """
    states = _ADAM_STATES * (width + 1) if optimizer == "adam" else 0
    return width + states if width else 0


def _lines(part: Path) -> Iterator[str]:
    try:
        with gzip.open(part, "rt") as stream:
            yield from stream
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise DamagedPass(f"{part} cannot be read: {error}") from None

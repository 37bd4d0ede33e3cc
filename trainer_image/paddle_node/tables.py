"""What pservers of paddlepaddle 2.6.2 save, read back without any pserver.

Promises: `read` gives every parameter of a pass as an array, put together from the parts of ALL pservers that
saved it; a part that is missing, or has another number of values than the pass's `parameters.json` says, raises
`DamagedPass`.

The parts, as 2.6.2 writes them (text, gzip): a dense table `<table>/part-<server>.gz` has one value a line, the
parameter first and the optimizer's state behind it, the table's parameters one after the other over the servers
in order. A sparse table `<table>/part-<server>-<shard>.gz` has one row a line: id, five numbers of statistics, the
first weight, its optimizer state, the other weights, their states.
"""

from __future__ import annotations

import gzip
import json
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle_node import durable
from paddle_node.passes import DamagedPass

FILE = "parameters.json"
_STATISTICS = 5
_ADAM_STATES = 2
"""Adam keeps two numbers a weight, and two for all weights of a group; SGD keeps none."""

Arrays = dict[str, npt.NDArray[np.float32]]


@dataclass(frozen=True)
class SparseTable:
    """An embedding that lives on the pservers: only rows that training has seen exist."""

    table: int
    name: str
    rows: int
    width: int


@dataclass(frozen=True)
class DenseTable:
    """All dense parameters of one table, in the table's order."""

    table: int
    parameters: tuple[tuple[str, tuple[int, ...]], ...]
    """(name, shape)"""


@dataclass(frozen=True)
class Layout:
    """What is in a pass, written beside its parts."""

    optimizer: str
    servers: int
    shards: int
    """Files of each sparse table: a pass is loaded only by pservers with as many."""
    steps: int
    """Gradients that the pservers had applied, from all trainers."""
    sparse: tuple[SparseTable, ...]
    dense: tuple[DenseTable, ...]

    def write(self, directory: Path) -> None:
        durable.write(directory / FILE, json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, directory: Path) -> Layout:
        raw: dict[str, Any] = json.loads((directory / FILE).read_text())
        return cls(
            optimizer=raw["optimizer"],
            servers=raw["servers"],
            shards=raw["shards"],
            steps=raw["steps"],
            sparse=tuple(SparseTable(**table) for table in raw["sparse"]),
            dense=tuple(
                DenseTable(table["table"], tuple((name, tuple(shape)) for name, shape in table["parameters"]))
                for table in raw["dense"]
            ),
        )

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Every parameter's shape: two layouts with equal ones hold the same model."""
        sparse = {table.name: (table.rows, table.width) for table in self.sparse}
        return sparse | dict(parameter for table in self.dense for parameter in table.parameters)


def beta_powers(beta1: float, beta2: float, steps: int) -> tuple[float, float]:
    """Adam's two powers in a pserver that has applied `steps` gradients to its dense parameters.

    They begin with the optimizer's betas; a pserver then multiplies by 0.9 and 0.999, whatever the betas are.
    """
    return readable(beta1 * 0.9**steps), readable(beta2 * 0.999**steps)


def readable(number: float) -> float:
    """`number` as a float32 whose text a pserver reads: its std::stof throws on a subnormal one, which becomes 0."""
    rounded = float(np.float32(number))
    return 0.0 if abs(rounded) < np.finfo(np.float32).tiny else rounded


def missing_parts(directory: Path, layout: Layout) -> list[str]:
    """Which pservers' parts of a save are not there: saving reports success even then."""
    names = [f"{table.table:03d}/part-{server:03d}.gz" for table in layout.dense for server in range(layout.servers)]
    missing = [name for name in names if not (directory / name).is_file()]
    for table in layout.sparse:
        found = len(list((directory / f"{table.table:03d}").glob("part-*-*.gz")))
        if found != layout.shards:
            missing.append(f"{layout.shards - found} of {layout.shards} parts of {table.table:03d}/ ({table.name})")
    return missing


def read(directory: Path) -> Arrays:
    """Every parameter of the pass in `directory`; rows that no training record had are 0."""
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


def check(directory: Path) -> None:
    """Raises `DamagedPass` unless every part can be read to its end: a pserver on a full volume reports success, too."""
    layout = Layout.load(directory)
    for dense in layout.dense:
        _dense(directory, layout, dense)
    for sparse in layout.sparse:
        for part in (directory / f"{sparse.table:03d}").glob("part-*-*.gz"):
            deque(_lines(part), maxlen=0)


def _dense(directory: Path, layout: Layout, dense: DenseTable) -> Arrays:
    parts = [directory / f"{dense.table:03d}" / f"part-{server:03d}.gz" for server in range(layout.servers)]
    values = np.array([float(line.split(None, 1)[0]) for part in parts for line in _lines(part)], dtype=np.float32)
    sizes = [prod(shape) for _, shape in dense.parameters]
    if values.size != sum(sizes):
        raise DamagedPass(f"{directory}: table {dense.table:03d} has {values.size} values, and the model has {sum(sizes)}")
    pieces = np.split(values, np.cumsum(sizes)[:-1])
    return {name: piece.reshape(shape) for (name, shape), piece in zip(dense.parameters, pieces, strict=True)}


def _sparse(directory: Path, layout: Layout, sparse: SparseTable) -> npt.NDArray[np.float32]:
    others = 1 + _STATISTICS + _group(layout.optimizer, 1)
    columns = others + _group(layout.optimizer, sparse.width - 1)
    array = np.zeros((sparse.rows, sparse.width), dtype=np.float32)
    for part in sorted((directory / f"{sparse.table:03d}").glob("part-*-*.gz")):
        for line in _lines(part):
            row = line.split()
            if len(row) not in (columns, others):
                raise DamagedPass(f"{part} has a row of {len(row)} numbers, and {columns} were expected")
            array[int(row[0]), 0] = float(row[1 + _STATISTICS])
            if len(row) == columns:
                array[int(row[0]), 1:] = np.array(row[others : others + sparse.width - 1], dtype=np.float32)
    return array


def _group(optimizer: str, width: int) -> int:
    """Numbers in a row for weights that share their optimizer state: the first weight, and all others together."""
    states = _ADAM_STATES * (width + 1) if optimizer == "adam" else 0
    return width + states if width else 0


def _lines(part: Path) -> Iterator[str]:
    try:
        with gzip.open(part, "rt") as stream:
            yield from stream
    except (OSError, EOFError) as error:
        raise DamagedPass(f"{part} cannot be read: {error}") from None

"""The parts as pservers of Paddle 2.6.2 were seen to write them; test_quick_start reads real ones."""

import gzip

import numpy as np
import pytest
from paddle_node import tables
from paddle_node.passes import DamagedPass
from paddle_node.tables import DenseTable, Layout, SparseTable


def part(path, *rows: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress("".join(f"{row}\n" for row in rows).encode()))


@pytest.fixture
def adam(tmp_path):
    """Two pservers; a 3x2 embedding in two parts and dense parameters of 2x2 and 1 values."""
    layout = Layout("adam", 2, 2, 10, (SparseTable(0, "words", 3, 2),), (DenseTable(1, (("w", (2, 2)), ("b", (1,)))),))
    layout.write(tmp_path)
    part(tmp_path / "001/part-000.gz", "1 0.1 0.01", "2 0 0", "3 0 0")
    part(tmp_path / "001/part-001.gz", "4 0 0", "5 0 0")
    part(tmp_path / "000/part-000-00000.gz", "0 0 0 1 1 0 0.5 9 9 9 9 -0.5 8 8 8 8")
    part(tmp_path / "000/part-001-00001.gz", "2 0 0 1 1 0 1.5 9 9 9 9 2.5 8 8 8 8")
    return tmp_path


def test_parameters_are_put_together_from_all_pservers(adam):
    tables.check(adam)
    found = tables.read(adam)
    assert np.array_equal(found["w"], [[1, 2], [3, 4]]) and np.array_equal(found["b"], [5])
    assert np.array_equal(found["words"], [[0.5, -0.5], [0, 0], [1.5, 2.5]])


def test_sgd_has_no_state_in_its_rows(tmp_path):
    Layout("sgd", 1, 1, 0, (SparseTable(0, "words", 2, 3),), ()).write(tmp_path)
    part(tmp_path / "000/part-000-00000.gz", "1 0 0 1 1 0 1 2 3")
    assert np.array_equal(tables.read(tmp_path)["words"], [[0, 0, 0], [1, 2, 3]])


@pytest.mark.parametrize("name", ["000/part-000-00000.gz", "001/part-001.gz"])
def test_a_part_that_is_missing_or_cut_short_is_refused(adam, name):
    whole = (adam / name).read_bytes()
    (adam / name).write_bytes(whole[:-9])
    with pytest.raises(DamagedPass, match="cannot be read"):
        tables.check(adam)
    (adam / name).unlink()
    with pytest.raises(DamagedPass, match="missing"):
        tables.read(adam)


def test_a_dense_part_with_too_few_values_is_refused(adam):
    part(adam / "001/part-001.gz", "4 0 0")
    with pytest.raises(DamagedPass, match="has 4 values, and the model has 5"):
        tables.check(adam)

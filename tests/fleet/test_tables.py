"""The parts as pservers of Paddle 2.6.2 were seen to write them; test_quick_start reads real ones."""

import contextlib
import ctypes
import errno
import gzip
import json
import math

import numpy as np
import pytest
from paddle_node.training.backends import tables
from paddle_node.training.backends.tables import DenseTable, Layout, SparseTable
from paddle_node.training.passes import DamagedPass


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


@pytest.mark.parametrize("name", ["000/part-000-00000.gz", "001/part-001.gz"])
def test_a_part_that_is_missing_or_cut_short_is_refused(adam, name):
    whole = (adam / name).read_bytes()
    (adam / name).write_bytes(whole[:-9])
    with pytest.raises(DamagedPass, match="cannot be read"):
        tables.check(adam)
    (adam / name).unlink()
    with pytest.raises(DamagedPass, match="missing"):
        tables.read(adam)


@pytest.mark.parametrize(
    ("name", "rows", "why"),
    [
        ("001/part-001.gz", ["4 0 0", "nan 0 0"], "not finite"),
        ("001/part-001.gz", ["4 0 0", "1e39 0 0"], "not finite"),
        ("001/part-001.gz", ["4 0 0", "five 0 0"], "something else than numbers"),
        ("001/part-001.gz", ["4 0 0", ""], "something else than numbers"),
        ("001/part-001.gz", ["4 0 0", "5 0 0", "6 0 0"], "has 6 values, and the model has 5"),
        ("000/part-001-00001.gz", ["-1 0 0 1 1 0 1.5 9 9 9 9 2.5 8 8 8 8"], "has row -1, and words has 3 rows"),
        ("000/part-001-00001.gz", ["3 0 0 1 1 0 1.5 9 9 9 9 2.5 8 8 8 8"], "has row 3, and words has 3 rows"),
        ("000/part-001-00001.gz", ["2 0 0 1 1 0 1.5 9 9 9 9 -inf 8 8 8 8"], "not finite"),
        ("000/part-001-00001.gz", ["2 0 0 1 1 0 x 9 9 9 9 2.5 8 8 8 8"], "something else than numbers"),
    ],
)
def test_a_part_that_holds_something_else_is_refused(adam, name, rows, why):
    part(adam / name, *rows)
    with pytest.raises(DamagedPass, match=why):
        tables.read(adam)


def test_any_damage_of_a_parts_bytes_is_refused_or_changes_nothing(adam):
    """One after the other each byte is flipped, also with garbage behind it: gzip's header has some that mean nothing."""
    file = adam / "001/part-000.gz"
    whole, expected = file.read_bytes(), tables.read(adam)
    for place in range(len(whole)):
        for damage in (bytes([whole[place] ^ 0xFF]) + whole[place + 1 :], b"\xff\xfe" + whole[place:]):
            file.write_bytes(whole[:place] + damage)
            with contextlib.suppress(DamagedPass):
                assert all(np.array_equal(found, expected[name]) for name, found in tables.read(adam).items())


@pytest.mark.parametrize(
    "change",
    [
        {"optimizer": "momentum"},
        {"servers": 0},
        {"servers": "2"},
        {"servers": 10**12},
        {"shards": 2.0},
        {"shards": True},
        {"steps": -1},
        {"steps": None},
        {"sparse": [{"table": 0, "name": "words", "rows": "3", "width": 2}]},
        {"sparse": [{"table": 0, "name": "words", "rows": 3}]},
        {"dense": [{"table": 1, "parameters": [["w", [2, -2]]]}]},
        {"dense": [{"table": 1, "parameters": [["words", [2, 2]]]}]},
        {"dense": [{"table": 1, "parameters": [[5, [2, 2]]]}]},
        {"dense": 7},
    ],
)
def test_a_description_that_no_pass_has_is_refused(adam, change):
    file = adam / "parameters.json"
    raw = json.loads(file.read_text())
    file.write_text(json.dumps(raw | change))
    with pytest.raises(DamagedPass, match=r"parameters\.json describes no pass .* restore the file, or remove the whole pass"):
        tables.read(adam)


BETAS = [(0.9, 0.999), (0.5, 0.9), (0.99, 0.9999), (0.0, 0.0), (1.0, 1.0), (-0.9, 1e-30)]


@pytest.mark.parametrize(("beta1", "beta2"), BETAS)
def test_beta_powers_are_text_that_a_pserver_reads_after_any_number_of_steps(beta1, beta2):
    """std::stof of the pservers is strtof that throws where this sets errno; the numbers as Paddle writes them."""
    c = ctypes.CDLL(None, use_errno=True)
    c.strtof.restype = ctypes.c_float
    edges = [828, 985, 87_292, 103_919]  # As seen on real pservers with 0.9 and 0.999.
    for beta, rate in ((beta1, 0.9), (beta2, 0.999)):
        for bound in (2.0**-126, 2.0**-149, 2.0**-150):  # Where a float32 becomes subnormal, and 0.
            edges += [round(math.log(bound / abs(beta)) / math.log(rate))] if beta else []
    steps = {0, 10**9, *range(1200), *(edge + near for edge in edges for near in range(-3, 4) if edge + near > 0)}
    for step in sorted(steps):
        powers = tables.beta_powers(beta1, beta2, step)
        for power, exact in zip(powers, (beta1 * 0.9**step, beta2 * 0.999**step), strict=True):
            ctypes.set_errno(0)
            read = c.strtof(str(power).encode(), None)
            assert (read, ctypes.get_errno()) == (power, 0), step
            assert power == pytest.approx(exact, rel=1e-6, abs=2.0**-126)
    ctypes.set_errno(0)
    c.strtof(str(0.9**829).encode(), None)
    assert ctypes.get_errno() == errno.ERANGE

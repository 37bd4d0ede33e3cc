"""Parts in the form that pservers of Paddle 2.6.2 were seen to write; test_quick_start and
test_bad_data have real ones.
"""

import gzip
from pathlib import Path

import pytest
import yaml
from paddle_node.training.backends import tables
from paddle_node.training.backends.tables import DenseTable, Layout, SparseTable
from paddle_node.volume.passes import DamagedPass


def part(path, *rows: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress("".join(f"{row}\n" for row in rows).encode()))


ROWS = yaml.safe_load(Path(__file__).with_name("refused_parts.yaml").read_text())


@pytest.mark.parametrize(("name", "rows", "why"), ROWS)
def test_a_part_that_holds_something_else_is_refused(tmp_path, name, rows, why):
    """The pass has two pservers, a 3x2 embedding in two parts, and dense parameters of 2x2 and 1
    values.
    """
    layout = Layout(
        "adam",
        2,
        2,
        10,
        (SparseTable(0, "words", 3, 2),),
        (DenseTable(1, (("w", (2, 2)), ("b", (1,)))),),
    )
    layout.write(tmp_path)
    part(tmp_path / "001/part-000.gz", "1 0.1 0.01", "2 0 0", "3 0 0")
    part(tmp_path / "001/part-001.gz", "4 0 0", "5 0 0")
    part(tmp_path / "000/part-000-00000.gz", "0 0 0 1 1 0 0.5 9 9 9 9 -0.5 8 8 8 8")
    part(tmp_path / "000/part-001-00001.gz", "2 0 0 1 1 0 1.5 9 9 9 9 2.5 8 8 8 8")
    whole = tables.read(tmp_path)
    assert whole["words"].tolist() == [[0.5, -0.5], [0, 0], [1.5, 2.5]] and whole["b"].tolist() == [
        5
    ]
    part(tmp_path / name, *rows)
    with pytest.raises(DamagedPass, match=why):
        tables.read(tmp_path)

"""What the first lines of a source give reason to doubt, the data job says with file and line, and splits all the same."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from job_folder import Job

LABELLED = [f"{'sport' if number % 3 else 'arts'}\tword{number} and more" for number in range(60)]
NUMBERS = [f"{number},{number * 7 % 50},{1 + number % 5}.5" for number in range(60)]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (LABELLED, ""),
        (NUMBERS, ""),
        ([f"{number} {number}" for number in range(60)], ""),
        (["label\ttext", *LABELLED], "line 1 of source looks like a header, which a program reads as a record: 'label\\ttext'"),
        (
            ["user,movie,rating", *NUMBERS],
            "line 1 of source looks like a header, which a program reads as a record: 'user,",
        ),
        ([*LABELLED[:9], "arts\tcafé", *LABELLED], "line 10 of source is not UTF-8 (byte 0xe9): 'arts\\tcaf\ufffd'"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_a_doubtful_line_is_said(job: Job, tmp_path: Path, lines: list[str], said: str, packed: bool) -> None:
    content = "".join(f"{line}\n" for line in lines).encode("latin-1")
    source = tmp_path / "source"
    source.write_bytes(gzip.compress(content) if packed else content)
    done = job.run(source)
    assert done.returncode == 0, done.stderr
    warnings = [line for line in done.stdout.splitlines() if line.startswith("split: warning: ")]
    assert len(warnings) == bool(said) and all(said in line for line in warnings)
    assert len(job.records()) == len(lines)

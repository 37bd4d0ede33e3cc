"""What looks wrong in the first lines of a source, the data job says with file and line, and splits all the same."""

import gzip
from pathlib import Path

import pytest
from job_folder import Job

LABELLED = [f"{'sport' if number % 3 else 'arts'}\tword{number} and more" for number in range(60)]
NUMBERS = [f"{number},{number * 7 % 50},{1 + number % 5}.5" for number in range(60)]
HEADER = "line 1 of source looks like a header, which a program reads as a record: "


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (LABELLED, ""),
        ([f"{number} {number}" for number in range(60)], ""),
        (["label\ttext", *LABELLED], f"{HEADER}'label\\ttext'"),
        (["user,movie,rating", *NUMBERS], f"{HEADER}'user,"),
        ([*LABELLED[:9], "arts\tcafé", *LABELLED], "line 10 of source is not UTF-8 (byte 0xe9): 'arts\\tcaf\ufffd'"),
    ],
)
def test_a_doubtful_line_is_said(
    job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: list[str], said: str
) -> None:
    source = tmp_path / "source"
    source.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode("latin-1")))
    job.split(source)
    warnings = [line for line in capsys.readouterr().out.splitlines() if line.startswith("split: warning: ")]
    assert len(warnings) == bool(said) and all(said in line for line in warnings)
    assert len(job.records()) == len(lines)

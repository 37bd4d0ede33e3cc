"""Memory stays below 100 MB, whatever is split."""

from pathlib import Path

import pytest
from job_folder import ENTRY, Job

LIMIT = 100_000_000
BOTO3 = 36_000_000
"""Bytes that a source in S3 adds."""
pytestmark = pytest.mark.slow


def used(pid: int) -> int:
    """Bytes of a process and its children; each sharer of a page counts its proportional part."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    pss = next(
        (int(line.split()[1]) << 10 for line in rollup.splitlines() if line.startswith("Pss:")), 0
    )
    return pss + sum(used(int(child)) for child in children)


@pytest.mark.parametrize("seed", ["", "1"])
@pytest.mark.parametrize(
    ("line", "count"),
    [
        pytest.param(b"a\n", 20_000_000, marks=pytest.mark.long),
        (b"x" * 99 + b"\n", 600_000),
        pytest.param(b"y" * 1_000_000 + b"\n", 150, marks=pytest.mark.long),
    ],
)
def test_peak(job: Job, tmp_path: Path, line: bytes, count: int, seed: str) -> None:
    """Lines of 2 bytes, which weigh 25 times as much in Python, ordinary lines, and giants."""
    source = tmp_path / "in.txt"
    source.write_bytes(line * count)
    process = job.start(source, words=ENTRY, SHUFFLE_SEED=seed, HOLD_OUT=0.1)
    most = 0
    while process.poll() is None:
        most = max(most, used(process.pid))
    process.ended()
    assert most < LIMIT - BOTO3

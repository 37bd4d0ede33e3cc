"""Memory stays below 100 MB, whatever is split."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from job_folder import Job

LIMIT = 100_000_000
BOTO3 = 36_000_000
"""What a source in S3 adds."""
pytestmark = pytest.mark.slow

# The kernel's own high-water mark of this program: rusage would carry over that of the test, from which it was forked.
MEASURED = """
import sys
from paddle_node import split
code = split.main()
with open("/proc/self/status") as status:
    print("peak", [line.split()[1] for line in status if line.startswith("VmHWM")][0])
sys.exit(code)
"""


def peak(job: Job, source: Path, **more: object) -> int:
    _, environ = job.command(source, **more)
    done = subprocess.run([sys.executable, "-c", MEASURED], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return int(done.stdout.split("peak ")[1]) * 1024


@pytest.mark.parametrize("seed", ["", "1"])
@pytest.mark.parametrize(("line", "count"), [(b"a\n", 4_000_000), (b"x" * 99 + b"\n", 600_000), (b"y" * 1_000_000 + b"\n", 150)])
def test_peak(job: Job, tmp_path: Path, line: bytes, count: int, seed: str) -> None:
    """Lines of 2 bytes, whose own weight in Python is 25 times theirs; usual ones; and giants."""
    source = tmp_path / "in.txt"
    block = line * max(1, (1 << 20) // len(line))
    with source.open("wb") as stream:
        written = 0
        while written < count * len(line):
            written += stream.write(block)
    found = peak(job, source, SHUFFLE_SEED=seed, HOLD_OUT=0.1)
    assert found < LIMIT - BOTO3


def test_threads_do_not_multiply_it(job: Job, tmp_path: Path) -> None:
    source = tmp_path / "in.txt"
    with source.open("wb") as stream:
        for _ in range(300):
            stream.write(b"a line of text\n" * 70_000)
    assert source.stat().st_size > 300 << 20
    assert peak(job, source) < LIMIT / 2

"""Each benchmark runs to its end at a small size. What it measures there says nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SMALL = {
    "board": "--ranks 2",
    "checkpoints": "--kills 1 --minutes 0.02",
    "install": "trainer_image/requirements-agent.lock",
    "launch": "--rounds 1 --epochs 3",
    "manifests": "--rounds 1",
    "rehearse": "--rounds 1",
    "scale": "--pods 10",
    "split": "5 1",
    "start_up": "--runs 1",
    "storm": "--runs 1 montecarlo",
    "synth": "--repeat 1 --row 20",
    "throughput": "--rounds 1 --pods 2 --passes 2 --lines 600",
}
MORE = {"checkpoints": "--gigabytes 0.02 --interval 2"}
"""What those measure that have two measurements."""


def test_each_benchmark_is_here() -> None:
    assert set(SMALL) == {file.stem for file in (ROOT / "benchmarks").glob("*.py")}


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(("name", "words"), [*SMALL.items(), *MORE.items()])
def test_a_benchmark_runs(name: str, words: str) -> None:
    program = [sys.executable, ROOT / f"benchmarks/{name}.py", *words.split()]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip()

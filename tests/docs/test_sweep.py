"""The page on sweeps: its blocks run as they stand, in the order of the page."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from paddle_aws.operations.board.comparison import Comparison
from paddle_aws.operations.jobs import rehearsal_backend

PROJECT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

pytestmark = [pytest.mark.slow, pytest.mark.long]


def test_the_pages_blocks_run_and_every_run_can_be_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"{PROJECT / '.venv/bin'}:{os.environ['PATH']}"
    said = ""
    for language, text in BLOCK.findall((PROJECT / "docs/do/sweep.md").read_text()):
        if name := re.match(r"# (\S+\.(?:py|yaml))\n", text):
            (tmp_path / name[1]).write_text(text)
            continue
        command = {"sh": ["bash", "-euc"], "python": [sys.executable, "-c"]}[language]
        done = subprocess.run(
            [*command, text],
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        said += done.stdout
    assert "best: 0.2, py-lr-0-2" in said
    listed = re.findall(r"^(\S*lr\S*) +done", said, re.MULTILINE)
    assert listed == ["sweep-lr-0-1", "sweep-lr-0-01"]
    assert float((tmp_path / "results/weight").read_text()) == pytest.approx(4 * 0.98**20)
    monkeypatch.chdir(tmp_path)
    names = ["sweep-lr-0-01", "sweep-lr-0-1"]
    jobs = [rehearsal_backend.load(name=name) for name in names]
    with jobs[0].volume() as first, jobs[1].volume() as second:
        page = Comparison([(jobs[0], first), (jobs[1], second)])
        data = json.loads(page.answer("data", {}).content)
    assert [job["job"] for job in data["jobs"]] == names and data["differing"] == ["command"]
    assert [job["settings"] for job in data["jobs"]] == [
        ["python train.py --lr 0.01"],
        ["python train.py --lr 0.1"],
    ]
    last = [job["metrics"]["loss"][-1] for job in data["jobs"]]
    assert last[0][0] == last[1][0] == 20 and last[0][1] > last[1][1]

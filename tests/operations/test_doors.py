"""Strangers' inputs at the four doors: `try`, `rehearse`, `manifests` and `submit --dry-run` refuse
each with the same sentence, or take it.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import Done, Run

from paddle_aws.operations.commands import rehearse
from paddle_aws.rehearsal import __main__ as rehearsal

pytestmark = pytest.mark.slow
PROJECT = Path(__file__).parents[2]
CASES: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("doors.yaml").read_text())
JOB = {"name": "t", "trainers": 1, "command": "python train.py", "paddle": "2.6"}
DOORS = (("try",), ("rehearse",), ("manifests",), ("submit", "--dry-run"))


@pytest.fixture(autouse=True)
def untried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Overrides the fixture for the other tests: here programs are tried, and a rehearsal takes no
    other process's place.
    """

    def rehearse_here(_: str, words: list[str]) -> None:
        monkeypatch.setattr(sys, "argv", words[words.index("-m") + 1 :])
        rehearsal.main()

    monkeypatch.setattr(rehearse.os, "execv", rehearse_here)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")


def lay(folder: Path, case: dict[str, Any]) -> None:
    for name, text in {"train.py": "print(1)\n", **case.get("files", {})}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if text.startswith("-> "):
            (folder / name).symlink_to(text.removeprefix("-> "))
        else:
            (folder / name).write_text(text, newline="")
    text = case.get("text") or yaml.safe_dump(JOB | case.get("job", {}))
    (folder / "job.yaml").write_text(text)
    subprocess.run(["sh", "-ec", case.get("run", "true")], cwd=folder, check=True)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_same_sentence(run: Run, folder: Path, case: dict[str, Any]) -> None:
    lay(folder, case)
    if "written" in case:
        # Who writes manifests may have no Paddle here: they say what is left out.
        written = run("manifests")
        assert written.code == 0 and case["written"] in written.err
        shutil.rmtree(folder / "dist")
    doors = [door for door in DOORS if "written" not in case or door != ("manifests",)]
    ends: dict[tuple[str, ...], Done] = {door: run(*door) for door in doors}
    said = {door: end.err.splitlines()[-1] for door, end in ends.items() if end.err}
    assert {end.code for end in ends.values()} == {2}, ends
    assert len(set(said.values())) == 1 and case["refused"] in said["try",], said
    assert not [*folder.glob("dist"), *folder.glob(".rehearsal/volume")]

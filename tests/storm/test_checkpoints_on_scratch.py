"""Storms with `checkpoints: local`: a rank is killed, whose scratch stays, then each pod, with all
that its scratch has. Each ends as undisturbed. Five minutes and more per test.
"""

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.storm.conftest import storm_in

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/programs"))
from stack_jobs import lay  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.long]
IMAGE = "program.environment=image"
"""So that a new pod does not unpack its packages first."""
STORMS = {
    # Its epochs.jsonl is part of no checkpoint, and lost with the pod of rank 0.
    "launch": (("processes=1",), "kill-rank/1@step-5,kill-pod/1@step-9,kill-rank/0@step-14"),
    "llama": ((IMAGE,), "kill-rank/1@step-25,kill-pod/1@step-35,kill-pod/0@step-45"),
    "paddleclas": (
        (IMAGE, "command+=-o Global.epochs=6"),
        "kill-rank/1@step-10,kill-pod/1@step-14,kill-pod/0@step-18",
    ),
}
THEIRS = {"llama": ["output/all_results.json lacks 1 line that undisturbed runs have"]}
"""See test_examples.py."""
NEED_AN_INDEX = ("llama", "paddleclas")
"""Those with packages, which PROGRAMS=, as for tests/programs, allows to be downloaded."""


@pytest.mark.parametrize("name", STORMS)
def test_a_program_on_its_pods_scratch_ends_as_undisturbed(tmp_path: Path, name: str) -> None:
    if name in NEED_AN_INDEX and "PROGRAMS" not in os.environ:
        pytest.skip("make test-programs downloads its packages")
    place = tmp_path / name
    if (ROOT / "examples" / name).is_dir():
        shutil.copytree(ROOT / "examples" / name, place)
    else:
        lay(name, place)
    settings, faults = STORMS[name]
    words = [word for setting in ("checkpoints=local", *settings) for word in ("--set", setting)]
    ended = storm_in(place, *words, "--no-shrink", "--faults", faults)
    assert "3 of 3 faults" in ended.output, ended.output
    sentences = [
        finding["sentence"] for run in ended.receipt["runs"] for finding in run["findings"]
    ]
    assert sentences == THEIRS.get(name, []), ended.output
    assert ended.receipt["calm"]["compared"]

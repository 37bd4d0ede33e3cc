"""A storm of each example and tutorial that this project ships, with frequent checkpoints and,
where records are split, a step more in one shard: each ends as undisturbed. Two to ten minutes per
test.

Two others have tests of their own: examples/launch without `checkpoints: local` (test_launcher.py)
and examples/collective with dropout (test_collective.py).
"""

import os
import random
import shutil
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
import yaml

from tests.storm.conftest import storm_in

pytestmark = [pytest.mark.slow, pytest.mark.long]
EXAMPLES = Path(__file__).parents[2] / "examples"
RECORDS = 3 * 30 * 32 + 1
"""One more than makes 30 steps of 32 records in each of three shards."""
FREQUENT = ("checkpoint_minutes=0.02",)
FEW_PASSES = (*FREQUENT, "passes=2")
"""Of the tutorials' ten."""
SERVERS = "kill-rank/1@step-9,spot-notice/2@step-25,volume-full/0@save-20,kill-server/0@step-40"
LAUNCHED = "kill-rank/1@step-50,spot-notice/0@step-100"
STORMS = {
    "regression/job.yaml": (FREQUENT, SERVERS),
    "recommendation/job.yaml": (FREQUENT, SERVERS),
    "finetune/pretrain.yaml": ((), LAUNCHED),
    "finetune/finetune.yaml": ((), LAUNCHED),
    "launch/job.yaml": (
        ("checkpoints=local",),
        "kill-rank/1@step-12,kill-pod/1@step-20,kill-pod/0@step-26",
    ),
    "llama/job.yaml": ((), "kill-rank/1@step-25,spot-notice/0@step-45"),
    "tutorials/kubernetes-on-aws.yaml": (
        FREQUENT,
        "freeze-rank/0@step-11,volume-full/0@step-36,spot-notice/2@step-66,"
        "volume-failing/1@saved-91,kill-server/0@save-141",
    ),
    "tutorials/distributed-training.yaml": (
        FEW_PASSES,
        "freeze-rank/0@step-11,kill-pod/1@step-40,spot-notice/2@step-66,kill-server/0@step-120",
    ),
    "tutorials/aws-recommendation.yaml": (
        FEW_PASSES,
        "kill-rank/2@step-20,kill-agent/0@step-60,volume-failing/0@save-20",
    ),
}
FIRST = {"finetune/finetune.yaml": "finetune/pretrain.yaml"}
"""Whose volume another needs: their storms are one test."""
THEIRS = {"llama/job.yaml": "output/all_results.json lacks 1 line that undisturbed runs have"}
"""PaddleFormers' train_loss after a resume is the sum since then, over all steps; the loss of each
step and the model are as undisturbed.
"""
NEED_AN_INDEX = ("llama/job.yaml",)
"""Those with packages, which PROGRAMS=, as for tests/programs, allows to be downloaded."""


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    """A copy of the examples, in which those that have only a program have data and a job file."""
    folder = shutil.copytree(EXAMPLES, tmp_path / "examples")
    for name in ("regression", "recommendation"):
        job = {
            "name": name,
            "trainers": 3,
            "passes": 3,
            "program": {"folder": "."},
            "data": {"source": "records"},
            "resources": {"cpu": "1", "memory": "2Gi"},
        }
        (folder / name / "job.yaml").write_text(yaml.safe_dump(job))
    sample = [sys.executable, "make_sample.py", "sample.csv"]
    subprocess.run(sample, cwd=folder / "launch", check=True)
    dice = random.Random(1)
    flats = [
        (dice.randint(1, 9), dice.randint(1, 6), dice.randint(20, 180)) for _ in range(RECORDS)
    ]
    (folder / "regression/records").write_text(
        "".join(
            f"{district},{rooms},{area},{area * 2000 + rooms * 9000 + district * 7000}\n"
            for district, rooms, area in flats
        )
    )
    with (EXAMPLES / "recommendation/sample.tsv").open() as sample:
        (folder / "recommendation/records").write_text("".join(islice(sample, RECORDS)))
    return folder


@pytest.mark.parametrize("name", [name for name in STORMS if name not in FIRST.values()])
def test_an_example_ends_as_undisturbed(examples: Path, name: str) -> None:
    if name in NEED_AN_INDEX and "PROGRAMS" not in os.environ:
        pytest.skip("make test-programs downloads its packages")
    for each in filter(None, (FIRST.get(name), name)):
        settings, faults = STORMS[each]
        file = examples / each
        words = [word for setting in settings for word in ("--set", setting)]
        ended = storm_in(file.parent, *words, "--no-shrink", "--faults", faults, job=file.name)
        count = faults.count(",") + 1
        assert f"{count} of {count} faults" in ended.output, ended.output
        found = [one["sentence"] for run in ended.receipt["runs"] for one in run["findings"]]
        assert found == [*filter(None, [THEIRS.get(each)])], ended.output
        assert ended.code == (each in THEIRS) and ended.receipt["calm"]["compared"]

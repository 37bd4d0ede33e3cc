"""Each job file of the documents rehearses by one command, as it lies there."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from paddle_node.volume.job_folder import JobFolder

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[2]


FIRST, *OTHERS = sorted((PROJECT / "examples/paddlejob").glob("*.yaml"))
PADDLE_JOBS = [FIRST, *(pytest.param(file, marks=pytest.mark.long) for file in OTHERS)]
TUTORIALS = sorted((PROJECT / "examples/tutorials").glob("*.yaml"))
PREPARED = "examples/recommendation stands in for them"


def rehearse(file: Path, folder: Path) -> str:
    command = [sys.executable, "-P", "-m", "paddle_aws.operations.main", "rehearse", str(file)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return " ".join(done.stdout.split())


@pytest.fixture(scope="module", autouse=True)
def samples() -> None:
    for name in ("quick_start", "recommendation"):
        file = PROJECT / "examples" / name / "sample.tsv"
        if not file.exists():
            subprocess.run([sys.executable, file.with_name("make_sample.py"), file], check=True)


@pytest.mark.long
@pytest.mark.parametrize("file", TUTORIALS, ids=lambda file: file.stem)
def test_a_tutorials_job_trains_ten_passes_in_pods_that_find_each_other_by_list(
    tmp_path: Path, file: Path
) -> None:
    output = rehearse(file, tmp_path)
    first, last = re.findall(r"10 passes by 3 trainers, loss ([\d.]+) -> ([\d.]+)", output)[0]
    assert float(last) < 0.6 * float(first)
    assert "nothing was held out (data.hold_out), so nothing was measured" in output
    assert (PREPARED in output) == (file.stem == "aws-recommendation")
    folder = JobFolder(tmp_path / ".rehearsal/volume/paddle-cluster-job")
    # Trainer ids follow the pods' addresses, as numbers.
    pods = {}
    for log in (tmp_path / ".rehearsal/logs").glob("*.trainer.log"):
        text = log.read_text()
        pods[int(re.findall(r"\[agent (\d+)\]", text)[0])] = log
    assert sorted(pods) == [0, 1, 2]
    assert all(folder.train_log(rank).stat().st_size for rank in range(3))
    assert (folder.output / "pass-00009" / "done").exists()


@pytest.mark.parametrize("file", PADDLE_JOBS, ids=lambda file: file.stem)
def test_a_paddle_job_of_the_guide_trains_a_model(tmp_path: Path, file: Path) -> None:
    output = rehearse(file, tmp_path)
    assert re.search(r"✓ train (2 ps and )?2 worker pods ran to their ends", output)
    (log,) = (tmp_path / ".rehearsal/logs").glob("*-worker-0.paddle.log")
    model = json.loads(log.read_text().splitlines()[-1])
    assert model["accuracy"] > model["baseline"] + 0.15
    assert model["last_loss"] < model["first_loss"]
    if file.stem == "gpu-node-selection":
        assert "no GPU here: pods that would get 1 each compute on the CPU" in output
        assert "examples/paddlejob/programs/wide_and_deep.py stand for it" in output


def test_a_volume_that_nothing_stands_in_for_is_one_sentence(tmp_path: Path) -> None:
    job = (PROJECT / "examples/tutorials/aws-recommendation.yaml").read_text()
    job = job.replace("folder: recommendation", "folder: mine") + "passes: 1\n"
    (tmp_path / "job.yaml").write_text(job)
    command = [sys.executable, "-P", "-m", "paddle_aws.operations.main", "rehearse", "job.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert "nothing here stands in for them: put them into" in done.stderr
    # Where they lie there, they are used.
    folder = JobFolder(tmp_path / ".rehearsal/volume/paddle-cluster-job")
    shutil.copytree(PROJECT / "examples/recommendation", folder.root / "mine")
    for rank in range(3):
        folder.older_shard(rank).mkdir(parents=True)
        lines = (folder.root / "mine/sample.tsv").read_text().splitlines(keepends=True)
        (folder.older_shard(rank) / "part-0").write_text("".join(lines[rank:3000:3]))
    done = subprocess.run(
        [*command, "--volume", "keep"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3,000" in done.stdout and PREPARED not in done.stdout

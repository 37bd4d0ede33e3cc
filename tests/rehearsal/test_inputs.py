"""examples/finetune, rehearsed as it lies there: a program without data, then a fine-tune from what
it left, and one from a file of weights.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.slow
PROJECT = Path(__file__).parents[2]


def rehearse(folder: Path, *words: str, code: int = 0) -> str:
    command = [
        sys.executable,
        "-P",
        "-m",
        "paddle_aws.operations.main",
        "rehearse",
        "--no-try",
        *words,
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return " ".join((done.stdout + done.stderr).split())


@pytest.mark.long
def test_a_fine_tune_from_an_earlier_job_and_from_a_file(tmp_path: Path) -> None:
    example = tmp_path / "finetune"
    shutil.copytree(PROJECT / "examples/finetune", example)
    jobs = {
        name: yaml.safe_load((example / f"{name}.yaml").read_text())
        for name in ("pretrain", "finetune")
    }
    for job in jobs.values():
        job["command"] += " --steps 40"
    jobs["weights"] = jobs["finetune"] | {
        "name": "weighed",
        "inputs": {"base": "./model.pdparams", "names": "./names.txt"},
        "environment": {"BASE": "{base}"},
    }
    for name, job in jobs.items():
        (example / f"{name}.yaml").write_text(yaml.safe_dump(job))
    volume = tmp_path / ".rehearsal/volume"

    def result(job: str) -> dict:
        return json.loads((volume / job / "output/result.json").read_text())

    said = rehearse(tmp_path, "finetune/pretrain.yaml")
    assert "no data; the program brings its own" in said
    rehearse(tmp_path, "finetune/finetune.yaml")
    assert result("finetuned")["names"] == ["left", "right"]
    assert result("finetuned")["first_loss"] < result("pretrained")["first_loss"]

    shutil.copy(volume / "pretrained/output/model.pdparams", example)
    rehearse(tmp_path, "--volume", "keep", "finetune/weights.yaml")
    assert result("weighed")["first_loss"] == result("finetuned")["first_loss"]
    # The dictionary, and the weights, which came from two places.
    copies = [copy for copy in (volume / "shared/inputs").iterdir() if copy.name != "sources"]
    assert len(copies) == 2

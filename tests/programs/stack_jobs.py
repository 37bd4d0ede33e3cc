"""The programs of stacks.yaml, laid out as the jobs of their users."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from k8s_charts.spec import TrainingJob
from paddle_aws.operations.images import interpreter

HERE = Path(__file__).parent
CLONES = Path(os.environ.get("PROGRAMS", "")).absolute()
STACKS = yaml.safe_load((HERE / "stacks.yaml").read_text())


def lay(name: str, place: Path) -> None:
    """Makes the folder of a stack's job, with its clone and its data."""
    stack = STACKS[name]
    shutil.copytree(HERE / name, place)
    if "clone" in stack:
        if not (clone := CLONES / stack["clone"]).is_dir():
            pytest.skip(f"{clone} is not there")
        git = ["git", "-C", clone, "rev-parse", "HEAD"]
        commit = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
        if commit != stack["commit"]:
            print(f"{clone} is at {commit}: {stack['commit']} was tried")
        (place / stack["clone"]).symlink_to(clone)
    if (place / "make_data.py").exists():
        job = TrainingJob.load(place / "job.yaml")
        data = place / "data"
        data.mkdir()
        shutil.copy(place / "config.yaml", data)
        python = interpreter.folder(job) / "python"
        subprocess.run([python, place / "make_data.py", data], check=True, timeout=300)
        shutil.make_archive(str(data), "tar", data)

"""`paddle-aws manifests` and `cdk8s synth`, as a user runs them."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from k8s_charts.deployed import ClusterOutputs

PROJECT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
# The check for a newer cdk8s asks npm's registry, which a test must not need.
ENVIRONMENT = {
    **os.environ,
    "PATH": f"{BIN}:{os.environ['PATH']}",
    "CDK8S_CHECK_UPGRADE": "false",
    "VIRTUAL_ENV": str(BIN.parent),
}
pytestmark = pytest.mark.slow


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with the files that a user edits and their data, and nothing deployed."""
    for name in ("job.yaml", "cdk8s.yaml"):
        shutil.copy(PROJECT / name, tmp_path)
    (tmp_path / "examples/quick_start").mkdir(parents=True)
    (tmp_path / "examples/quick_start/sample.tsv").write_text("a\tb\n")
    return tmp_path


def run(*command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, env=ENVIRONMENT, text=True, capture_output=True)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def deploy(clone: Path, outputs: ClusterOutputs) -> None:
    values = outputs.model_dump(by_alias=True, exclude={"placeholders"})
    (clone / "outputs.json").write_text(
        json.dumps({"storage": values, "paddle-cluster": {"ClusterName": "paddle"}})
    )


def test_bad_input_is_one_sentence_and_leaves_the_last_manifests(
    clone: Path, outputs: ClusterOutputs
) -> None:
    (clone / "dist").mkdir()
    (clone / "dist" / "0000-paddle-namespace.k8s.yaml").write_text("old")
    deploy(clone, outputs)
    done = run("paddle-aws", "manifests", folder=clone)
    no_image = (
        "image is missing: set it in the job file, or run `make push`, which writes image.json\n"
    )
    assert (done.returncode, done.stderr) == (2, no_image)
    assert files(clone / "dist") == {"0000-paddle-namespace.k8s.yaml": b"old"}


def test_cdk8s_synth_gives_the_same_bytes(clone: Path, outputs: ClusterOutputs) -> None:
    deploy(clone, outputs)
    (clone / "image.json").write_text(
        json.dumps({"image": "registry.example/paddle@sha256:" + "cd" * 32})
    )
    assert run("cdk8s", "synth", folder=clone).returncode == 0
    by_cdk8s = files(clone / "dist")
    assert run("paddle-aws", "manifests", "--out", "other", folder=clone).returncode == 0
    assert files(clone / "other") == by_cdk8s
    text = b"".join(by_cdk8s.values())
    assert b'volumeHandle: "fs-0123456789abcdef0::fsap-0fedcba9876543210"' in text
    assert b"value: s3://paddle-storage-bucket/sources/quick-start/sample.tsv" in text
    assert b"image: registry.example/paddle@sha256:cdcd" in text


def test_without_a_cluster_manifests_hold_placeholders_and_diff_shows_what_would_change(
    clone: Path,
) -> None:
    nothing = run("paddle-aws", "manifests", "--diff", folder=clone)
    assert (nothing.returncode, nothing.stdout) == (2, "")
    assert nothing.stderr.startswith("dist holds no manifests: ")
    done = run("paddle-aws", "manifests", folder=clone)
    assert done.returncode == 0 and "outputs.json does not exist" in done.stderr
    assert "hold placeholders; write them again after `cdk deploy" in done.stderr
    written = files(clone / "dist")
    assert done.stdout.split() == [f"dist/{name}" for name in written]
    assert b"placeholder.invalid/" in b"".join(written.values())
    same = run("paddle-aws", "manifests", "--diff", folder=clone)
    assert (same.returncode, same.stdout) == (0, "")
    job = (clone / "job.yaml").read_text()
    (clone / "job.yaml").write_text(job.replace("passes: 5", "passes: 7"))
    changed = run("paddle-aws", "manifests", "--diff", folder=clone)
    assert changed.returncode == 1
    lines = [
        line
        for line in changed.stdout.splitlines()
        if line[:1] in "+-" and line[:3] not in ("+++", "---")
    ]
    # Only the number of passes changes, and the names of the Job and of its settings, because both
    # are immutable.
    passes = [line for line in lines if "PASSES" in line]
    assert passes == ['-  PADDLE_NODE_PASSES: "5"', '+  PADDLE_NODE_PASSES: "7"']
    assert len(lines) == 8
    assert all("name: quick-start-" in line for line in lines if line not in passes)
    assert files(clone / "dist") == written

"""examples/gitops is a repository as docs/gitops.md describes it: its manifests are those of its
job file, its commands run, its CI's check fails when it should.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

PROJECT = Path(__file__).parents[2]
EXAMPLE = PROJECT / "examples" / "gitops"
PAGE = (PROJECT / "docs" / "gitops.md").read_text()
GIT = ["git", "-c", "user.name=somebody", "-c", "user.email=somebody@example.com"]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """The example as a repository of one commit."""
    folder = tmp_path / "training"
    shutil.copytree(EXAMPLE, folder)
    for arguments in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "words"]):
        subprocess.run([*GIT, *arguments], cwd=folder, check=True)
    return folder


def run(repository: Path, script: str) -> subprocess.CompletedProcess[str]:
    script = script.replace("git commit", " ".join([*GIT, "commit"]))
    return subprocess.run(
        ["bash", "-euc", script], cwd=repository, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_the_commands_of_the_page(repository: Path) -> None:
    write, check = re.findall(r"^```sh\n(.*?)^```", PAGE, re.M | re.S)
    consistent, review = check.splitlines()
    assert run(repository, consistent).stdout == ""
    job = repository / "jobs/words/job.yaml"
    job.write_text(job.read_text().replace("trainers: 3", "trainers: 4"))
    stale = run(repository, consistent)
    assert (stale.returncode, stale.stderr) == (1, "")
    assert run(repository, write).returncode == 0
    reviewed = run(repository, review)
    assert reviewed.returncode == 0, reviewed.stderr
    assert "--- HEAD~1/0003-words-training.k8s.yaml" in reviewed.stdout
    assert re.search(r"^-  +parallelism: 3$\n^\+  +parallelism: 4$", reviewed.stdout, re.M)
    unknown = run(repository, f"{consistent} --against gone")
    assert unknown.returncode == 2 and unknown.stderr.startswith("--against is gone: ")
    assert run(repository, "git status --porcelain").stdout == ""


def test_what_is_committed_has_no_placeholder_and_no_job_that_expires() -> None:
    documents = [
        document
        for file in sorted((EXAMPLE / "jobs/words/manifests").iterdir())
        for document in yaml.safe_load_all(file.read_text())
    ]
    assert "placeholder" not in yaml.safe_dump(documents)
    jobs = [document for document in documents if document["kind"] == "Job"]
    assert len(jobs) == 2
    assert not any("ttlSecondsAfterFinished" in job["spec"] for job in jobs)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed here")
def test_the_kustomization_keeps_what_stays_and_starts_trainers_last() -> None:
    done = subprocess.run(
        ["kubectl", "kustomize", "jobs/words"],
        cwd=EXAMPLE,
        capture_output=True,
        text=True,
        check=True,
    )
    annotations = {
        (document["kind"], document["metadata"]["labels"].get("app.kubernetes.io/component")): (
            document["metadata"].get("annotations", {})
        )
        for document in yaml.safe_load_all(done.stdout)
    }
    waves = {
        whose for whose, values in annotations.items() if "argocd.argoproj.io/sync-wave" in values
    }
    assert waves == {("Job", "trainer")}
    kept = {
        kind
        for (kind, _), values in annotations.items()
        if "argocd.argoproj.io/sync-options" in values
    }
    assert kept == {"Namespace", "PersistentVolume", "PersistentVolumeClaim"}

"""Repositories of others by a job.yaml of at most eight lines, as a newcomer meets them: `try`, a
rehearsal in its pods to the end, another with a rank killed behind its first checkpoint, and
`results --model`.

`make test-programs REPOSITORIES=/path/to/clones` runs them; repositories.yaml names the clones.
docs/receipts/repositories.json is what was seen. That a repository does not resume exactly is no
failure here, if repositories.yaml says so.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from k8s_charts.spec import TrainingJob
from paddle_aws.operations.images import interpreter

sys.path.insert(0, str(Path(__file__).parent))
from rehearsed import Rehearsal

HERE = Path(__file__).parent
CLONES = Path(os.environ.get("REPOSITORIES", "")).absolute()
RECEIPT = HERE.parents[1] / "docs" / "receipts" / "repositories.json"
REPOSITORIES = yaml.safe_load((HERE / "repositories.yaml").read_text())
CLI = Path(sys.executable).with_name("paddle-aws")


def lay(name: str, place: Path) -> None:
    """Lays the job of a repository, or of a program of ours, with its data."""
    known = REPOSITORIES[name]
    if (HERE / name).is_dir():
        shutil.copytree(HERE / name, place)
    place.mkdir(exist_ok=True)
    (place / "job.yaml").write_text(known["job"])
    if "repository" in known:
        clone = CLONES / Path(known["repository"]).name
        if not clone.is_dir():
            pytest.skip(f"{clone} is not there")
        git = ["git", "-C", clone, "rev-parse", "HEAD"]
        commit = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
        assert commit == known["commit"], f"{clone} is at {commit}"
        (place / clone.name).symlink_to(clone)
    if "{data}" in known["job"]:
        data = place / "data"
        data.mkdir()
        for file in place.glob("config.*"):
            shutil.copy(file, data)
        job = TrainingJob.load(HERE.parents[1] / "examples" / "launch" / "job.yaml")
        python = interpreter.folder(job) / "python"
        subprocess.run([python, place / "make_data.py", data], check=True, timeout=300)
        shutil.make_archive(str(data), "tar", data)


def run(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([CLI, *words], cwd=place, capture_output=True, text=True, timeout=1800)


def lines_of(attempt: str, pattern: str) -> list[str]:
    return list(dict.fromkeys(re.findall(pattern, attempt)))


def write(name: str, entry: dict[str, object]) -> None:
    """Writes an entry of the receipt."""
    RECEIPT.parent.mkdir(exist_ok=True)
    receipt = json.loads(RECEIPT.read_text()) if RECEIPT.exists() else {}
    RECEIPT.write_text(json.dumps({**receipt, name: entry}, indent=2, sort_keys=True) + "\n")


@pytest.mark.slow
@pytest.mark.skipif("REPOSITORIES" not in os.environ, reason="make test-programs runs these")
@pytest.mark.parametrize("name", REPOSITORIES)
def test_a_repository_does_what_its_entry_says(name: str, tmp_path: Path) -> None:
    known, place = REPOSITORIES[name], tmp_path / "job"
    lay(name, place)
    job = TrainingJob.load(place / "job.yaml")
    begin, tries = time.monotonic(), 1
    tried = run(place, "try", "--install")
    while tried.returncode and tries < 5:
        run(place, "try", "--install", "--write")
        tried, tries = run(place, "try", "--install"), tries + 1
    assert tried.returncode == 0, tried.stdout + tried.stderr
    ready = time.monotonic()
    calm = Rehearsal(place, job.name, known["process"])
    entry = {
        "repository": known.get("repository", f"tests/programs/{name}"),
        "commit": known.get("commit", ""),
        "job_lines": len(known["job"].splitlines()),
        "tries": known["tries"],
        "tries_here": tries,
        "pods": job.trainers,
        "trained": 0,
        "resumed": False,
        "exact": False,
        "why": known.get("why", ""),
        "model": [],
        "seconds_to_packages": round(ready - begin),
        "packages": list(job.program.requirements),
        "stopped_by": known.get("stopped_by", []),
    }
    if "cannot" in known:
        assert calm.process.wait(1800) == 1 and known["cannot"] in calm.messages, calm.messages
        write(name, entry)
        return
    (whole,) = calm.attempts(1800)
    seconds = time.monotonic() - ready
    lines = lines_of(whole, known["line"])
    got = run(place, "results", "--model", "--to", "model")
    if got.returncode and "model" in known:
        got = run(place, "results", "--download", known["model"], "--to", "model")
    models = [str(path.relative_to(place)) for path in (place / "model").rglob("*")]
    assert lines, calm.messages

    lay(name, tmp_path / "killed")
    killed = Rehearsal(tmp_path / "killed", job.name, known["process"])
    killed.wait_for(f"attempts/*-1/{known['saved']}")
    if "after" in known:  # Of a file that is written in place.
        killed.wait_for_line(known["after"])
    killed.kill_rank(job.trainers - 1)
    first, *_, last = (lines_of(attempt, known["line"]) for attempt in killed.attempts(1800))
    resumed = "training starts from output/" in killed.messages or known.get("by_itself", False)
    exact = resumed and len(last) < len(lines) and last == lines[-len(last) :]
    entry |= {"trained": len(lines), "resumed": resumed, "exact": exact}
    write(name, entry | {"model": sorted(models)[:4], "seconds": round(seconds)})
    assert (resumed, exact) == (known["resumes"] != "no", known["resumes"] == "exactly"), (
        lines[-len(last) :],
        last,
        first,
    )
    assert models, got.stderr


def test_the_jobs_of_repositories_have_eight_lines() -> None:
    for name, known in REPOSITORIES.items():
        assert len(known["job"].splitlines()) <= 8, name


def test_the_receipt_has_what_was_tried() -> None:
    receipt = json.loads(RECEIPT.read_text())
    assert receipt.keys() <= REPOSITORIES.keys()
    for name, entry in receipt.items():
        known = REPOSITORIES[name]
        assert entry["commit"] == known.get("commit", ""), name
        assert bool(entry["trained"]) == ("cannot" not in known), name
        assert entry["exact"] or entry["why"] == known["why"], name

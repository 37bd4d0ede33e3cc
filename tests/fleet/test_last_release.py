"""What 0.1.0 left on a volume is resumed from: a job in two pods that was told to stop in its
second pass, and a command in its third epoch. `last_release` holds the volumes as that release left
them, packed, but for logs and the run's secret.
"""

import json
import tarfile
from collections import Counter
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
LEFT = Path(__file__).with_name("last_release")


def unpack(job, name: str) -> None:
    with tarfile.open(LEFT / f"{name}.tar.gz") as archive:
        archive.extractall(job.folder.root.parent, filter="tar")
    job.program_name = name  # As the pods' TRAIN_CONFIG_DIR says it.


def sealed(job) -> dict[str, int]:
    """When the last release's files were written, by name."""
    return {
        str(path): path.stat().st_ctime_ns
        for path in (job.folder.attempts / "run-1/pass-00000").rglob("*")
        if path.is_file()
    }


def test_a_job_resumes_inside_the_pass_and_keeps_what_is_sealed(training_job) -> None:
    job = training_job(pods=2, PASSES="3", KEEP_PASSES="0", RUN_ID="next")
    unpack(job, "passes")
    before = sealed(job)
    log = job.run()
    assert "passes found: 1 of this data and program; training resumes after" in log
    assert "inside pass 1, after its checkpoint attempts/run-1/interrupted-00001" in log
    assert sealed(job) == before
    # Each record once a pass: those before the stop, and those after it.
    metrics = [line for trainer in range(2) for line in job.metrics(trainer) if "seconds" in line]
    counted = Counter()
    for line in metrics:
        counted[line["pass"]] += line["records"]
    assert counted == {0: 54, 1: 54, 2: 54}
    links = {path.name: str(path.readlink()) for path in job.folder.output.iterdir()
             if path.is_symlink()}  # fmt: skip
    assert links == {
        "pass-00000": "attempts/run-1/pass-00000",
        "pass-00001": "attempts/next-2/pass-00001",
        "pass-00002": "attempts/next-2/pass-00002",
        "inference": "attempts/next-2/inference",
    }
    assert all(json.loads((job.folder.output / name / "done").read_text()) for name in links)
    assert job.judged()["pass"] == 2


def test_a_command_resumes_from_what_it_wrote_to_output(training_job) -> None:
    job = training_job(
        pods=2,
        RUN_ID="next",
        RUNTIME="launch",
        COMMAND='["python", "train.py"]',
        RESUME='["{newest:output/epoch-*}"]',
        SUCCESS="output/result.json",
    )
    unpack(job, "command")
    log = job.run()
    assert "training starts from output/epoch-1" in log
    assert json.loads((job.folder.output / "result.json").read_text()) == {"began": 2}
    files = sorted(path.name for path in job.folder.output.glob("epoch-*"))
    assert files == [f"epoch-{epoch}" for epoch in range(4)]

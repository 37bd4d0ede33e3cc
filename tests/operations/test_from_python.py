"""`import paddle_aws`: what a program gets where a person reads sentences, and the example that
uses it.
"""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from job_controller import JobController, Script
from paddle_node.volume.job_folder import JobFolder
from saved_pass import save_model

import paddle_aws

PROJECT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


def test_the_example_trains_and_brings_the_model_home(folder: Path, trained: JobFolder) -> None:
    save_model(trained, {"model.pdmodel": b"network"})
    command = [
        sys.executable,
        PROJECT / "examples" / "submit_from_python.py",
        "job.yaml",
        "results",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    passes = [f"pass {number}: loss {3 - number}.0000, 200 records in 2 s" for number in range(3)]
    assert done.stdout.splitlines() == [*passes, "the model is in results/model"]
    assert (folder / "results" / "model" / "model.pdmodel").read_bytes() == b"network"
    assert "the data is split" in done.stderr
    again = subprocess.run(command, capture_output=True, text=True)
    assert (
        again.returncode == 1
        and "BadInput: this job has run already" in again.stderr.splitlines()[-1]
    )


def test_failures_are_exceptions_of_its_own_and_nothing_is_printed(
    api: JobController,
    folder: Path,
    trained: JobFolder,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (folder / "wrong.yaml").write_text("name: words\ntrainers: 0\ndata: {source: a.tsv}\n")
    for job, sentence in (
        ("none.yaml", "none.yaml"),
        ("wrong.yaml", "trainers must be at least 1"),
    ):
        with pytest.raises(paddle_aws.BadInput, match=sentence):
            paddle_aws.submit(job)
    with pytest.raises(paddle_aws.BadInput, match="there is no job words"):
        paddle_aws.find("words").status()
    with monkeypatch.context() as without:
        without.setenv("KUBECONFIG", "/nowhere/kubeconfig")
        with pytest.raises(paddle_aws.Unreachable, match=r"^there is no kubeconfig /nowhere"):
            paddle_aws.find("words")
    api.scripts["trainer"] = Script(code=None)
    messages: list[str] = []
    running = paddle_aws.submit(say=messages.append)
    assert running.status().phase == "running"
    assert any("the data is split" in line for line in messages)
    with pytest.raises(paddle_aws.TimedOut, match="keeps running"):
        running.wait(timeout=0)
    with pytest.raises(paddle_aws.BadInput, match="runs already"):
        paddle_aws.submit()
    assert running.cancel() and not api.of("trainer", "pods")
    api.scripts["trainer"] = Script(code=70, message="trainer 1 was killed")
    with pytest.raises(paddle_aws.JobFailed, match="trainer 1 was killed"):
        paddle_aws.submit().wait()
    # What the first submission returned never answers for a later one of that name.
    settings = yaml.safe_load((folder / "job.yaml").read_text())
    (folder / "job.yaml").write_text(yaml.safe_dump(settings | {"seed": 7}))
    api.scripts["trainer"] = Script()
    newer = paddle_aws.submit()
    assert [result.records for result in newer.results()] == [200] * 3
    for ask in (running.status, running.results, lambda: running.model("results"), running.logs):
        with pytest.raises(paddle_aws.Failed, match="was submitted again as words-"):
            ask()
    # A job that no longer runs keeps what it has learned; a damaged model is none.
    assert [result.records for result in paddle_aws.find("words").results()] == [200] * 3
    (save_model(trained, {"model.pdmodel": b"network"}) / "model.pdmodel").write_bytes(b"changed")
    with pytest.raises(paddle_aws.Failed):
        paddle_aws.find().model("results")
    for error in (
        paddle_aws.BadInput,
        paddle_aws.JobFailed,
        paddle_aws.TimedOut,
        paddle_aws.Unreachable,
    ):
        assert issubclass(error, paddle_aws.Error)
    assert capfd.readouterr() == ("", "")

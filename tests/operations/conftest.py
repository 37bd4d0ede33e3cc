"""What the tests of the commands share: a Kubernetes API, a job's files, and commands run as a user
runs them.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "aws"))

import rights
from aws_api import AwsApi
from commands import Done, Run, lay_out
from job_controller import JobController
from paddle_node.volume.job_folder import JobFolder
from saved_pass import save_pass

from paddle_aws.rehearsal.cloud import Cloud

PROJECT = Path(__file__).parents[2]
# Only `make test-cluster` collects it, so that these tests never surprise a user on the cluster of
# their KUBECONFIG.
collect_ignore = [] if "TEST_CLUSTER" in os.environ else ["test_real_cluster.py"]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "cluster: a real Kubernetes API server; `make test-cluster` with KUBECONFIG"
    )


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JobController]:
    with JobController() as server:
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path / "kubeconfig")))
        yield server


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project's folder with a job file and a deployed cluster's outputs: the working directory,
    also of our own processes.
    """
    lay_out(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))
    return tmp_path


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """An emulated AWS account for a module's tests."""
    with Cloud(
        project=PROJECT, state=tmp_path_factory.mktemp("cloud"), extra={"CDK_VALIDATION": "false"}
    ) as started:
        yield started


@pytest.fixture
def aws(account: Cloud, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    """The account as the commands see it: through AWS's own environment variables."""
    for name, value in account.environment.items():
        monkeypatch.setenv(name, value)
    return account


@pytest.fixture
def aws_api(monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsApi]:
    """AWS's APIs as the commands see them, with a test's answers."""
    api = AwsApi(monkeypatch)
    yield api
    assert not api.wrong


@pytest.fixture(autouse=True)
def untried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most tests of `submit` have no program, so this machine appears to have no Paddle."""
    from paddle_aws.operations.images import interpreter

    monkeypatch.setattr(interpreter, "find", lambda job: None)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Callable[..., Done]:
    """Runs a command in this process. Its output goes to a pipe, unless `columns` makes it a
    terminal of that width.

    Fails if the command asks AWS or the cluster for more than its users (tests/aws/commands.yaml)
    are granted.
    """
    from paddle_aws.operations.cluster import cluster_api
    from paddle_aws.operations.jobs.watch import waiting
    from paddle_aws.operations.main import app

    monkeypatch.setattr(cluster_api, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(waiting, "POLL_INTERVAL", 0.05)
    monkeypatch.delenv("COLUMNS", raising=False)

    api = request.getfixturevalue("api") if "api" in request.fixturenames else None
    if "aws_api" in request.fixturenames:
        # The calls that it answers count, too: somebody must be allowed to make them.
        request.getfixturevalue("aws_api")
    calls = rights.record_calls(monkeypatch)

    def command(*arguments: str, columns: int | None = None) -> Done:
        environment = {"COLUMNS": str(columns)} if columns else {}
        before = len(api.requests) if api else 0
        calls.clear()
        result = CliRunner().invoke(app, list(arguments), env=environment, catch_exceptions=False)
        rights.check(arguments, calls, api.requests[before:] if api else [])
        return Done(result.exit_code, result.stdout, result.stderr)

    return command


@pytest.fixture
def trained(api: JobController, folder: Path) -> JobFolder:
    """What a job's trainers leave on the volume: three passes, and a half-saved fourth that one of
    the two has reported.
    """
    api.volume = folder / "volume"
    job = JobFolder(api.volume / "words")
    for number in range(3):
        save_pass(
            job,
            number,
            {"000/part-0": bytes([number]) * 100_000, "program/train.py": b"print('hello')\n"},
        )
    half = job.attempt("run", 1) / "pass-00003"
    half.mkdir()
    (half / "half").write_text("x")
    for trainer in range(2):
        job.node(trainer).mkdir(parents=True)
        lines = [
            {
                "pass": n,
                "attempt": 1,
                "trainer": trainer,
                "loss": 3.0 - n,
                "records": 100,
                "seconds": 2.0,
                "time": 1e9 + 60 * n,
            }
            for n in range(4 - trainer)
        ]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        job.metrics(trainer).write_text(text + '{"pass": 3, "attem')
        job.train_log(trainer).write_text("".join(f"line {n} of {trainer}\n" for n in range(3)))
    return job


@pytest.fixture
def job(run: Run, trained: JobFolder) -> JobFolder:
    """The same job, submitted and done."""
    assert run("submit", "--wait").code == 0
    return trained

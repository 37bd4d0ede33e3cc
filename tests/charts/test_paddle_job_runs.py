"""PaddleJobs as their pods would run: real Paddle processes with the environment that the operator gives each pod.

Limits: no operator and no containers. Each pod is one process on a loopback address, running a program of
examples/paddlejob/programs in place of the guide's images, which cannot be had here; jobs whose pods meet by Service
names are checked for what they are told, since nothing resolves those names on this machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from k8s_charts.documents import documents
from k8s_charts.outputs import ClusterOutputs
from k8s_charts.spec import TrainingJob
from rehearsal.pods.addresses import AddressBlock
from rehearsal.pods.paddle_job import OperatorPod, injected, pods

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[2]
EXAMPLES = PROJECT / "examples" / "paddlejob"
PYTHON = PROJECT / ".venv-image" / "bin" / "python"


def paddle_job(name: str, outputs: ClusterOutputs) -> dict[str, Any]:
    job = TrainingJob.load(EXAMPLES / f"{name}.yaml")
    return next(d for d in documents(job, outputs, job.image or "ours") if d["kind"] == "PaddleJob")


def test_each_pod_is_told_what_the_operator_tells_it(outputs: ClusterOutputs) -> None:
    job = paddle_job("wide-and-deep", outputs)
    made = pods(job)
    assert [pod.name for pod in made] == [f"wide-ande-deep-{role}-{i}" for role in ("ps", "worker") for i in (0, 1)]
    addresses = {pod.name: f"10.0.0.{i}" for i, pod in enumerate(made)}
    assert injected(job, made[3], addresses) == {
        "POD_IP": "10.0.0.3",
        "PADDLE_TRAINER_ID": "1",
        "TRAINING_ROLE": "TRAINER",
        "PADDLE_TRAINING_ROLE": "TRAINER",
        "TRAINER_PORTS_NUM": "20",
        "PADDLE_PORT": "36000",
        "PADDLE_PSERVERS_IP_PORT_LIST": "10.0.0.0:36000,10.0.0.1:36000",
        "PADDLE_TRAINER_ENDPOINTS": "10.0.0.2:36000,10.0.0.3:36000",
        "PADDLE_TRAINERS": "10.0.0.2,10.0.0.3",
        "PADDLE_TRAINERS_NUM": "2",
        "PADDLE_WITH_GLOO": "1",
        "PADDLE_GLOO_RENDEZVOUS": "3",
        "PADDLE_GLOO_HTTP_ENDPOINT": "10.0.0.0:36018",
    }


@pytest.mark.parametrize("name", ["service", "gpu-node-selection"])
def test_pods_that_meet_by_service_are_told_names(name: str, outputs: ClusterOutputs) -> None:
    job = paddle_job(name, outputs)
    made = pods(job)
    found = injected(job, made[0], {})
    assert found["POD_IP"] == made[0].name
    assert found["PADDLE_PSERVERS_IP_PORT_LIST"] == ",".join(f"{pod.name}:36000" for pod in made[:2])
    assert "PADDLE_WITH_GLOO" not in found


def test_an_elastic_job_is_told_its_own_variables(outputs: ClusterOutputs) -> None:
    settings = {"name": "x", "engine": "paddlejob", "mode": "collective", "trainers": 2, "image": "i", "volume": {"kind": "none"}}
    job = TrainingJob.parse({**settings, "paddlejob": {"elastic": 1, "etcd_server": "etcd:2379"}})
    document = next(d for d in documents(job, outputs, "i") if d["kind"] == "PaddleJob")
    found = injected(document, pods(document)[1], {pod.name: "10.0.0.1" for pod in pods(document)})
    assert {name: found[name] for name in found if "ELASTIC" in name} == {
        "PADDLE_ELASTIC_JOB_ID": "paddle-x",
        "PADDLE_ELASTIC_NP": "2",
        "PADDLE_ELASTIC_TIMEOUT": "60",
    }


def told(job: dict[str, Any]) -> str:
    """What all pods of a job are told, but for the job's name: jobs that are told the same run the same."""
    made = pods(job)
    addresses = {pod.name: f"10.0.0.{i}" for i, pod in enumerate(made)}
    return json.dumps([injected(job, pod, addresses) for pod in made])


def run(job: dict[str, Any], program: str, folder: Path) -> dict[str, Any]:
    """Runs all pods of the job to their end; returns the line that worker 0 printed."""
    with AddressBlock() as block:
        return _run(job, program, folder, {pod.name: block.next() for pod in pods(job)})


def _run(job: dict[str, Any], program: str, folder: Path, addresses: dict[str, str]) -> dict[str, Any]:
    made = pods(job)

    def start(pod: OperatorPod) -> subprocess.Popen[bytes]:
        environment = {"PATH": os.environ["PATH"], "HOME": str(folder), **injected(job, pod, addresses)}
        log = (folder / f"{pod.name}.log").open("wb")
        command = [str(PYTHON), str(EXAMPLES / "programs" / program)]
        return subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=subprocess.STDOUT)

    processes = {pod.name: start(pod) for pod in made}
    try:
        ends = {name: process.wait(timeout=600) for name, process in processes.items()}
    finally:
        for process in processes.values():
            process.kill()
    logs = {pod.name: (folder / f"{pod.name}.log").read_text(errors="replace") for pod in made}
    assert set(ends.values()) == {0}, "\n".join(f"{name}: {ends[name]}\n{logs[name][-2000:]}" for name in ends)
    first = next(pod.name for pod in made if pod.role == "worker")
    found: dict[str, Any] = json.loads(next(line for line in logs[first].splitlines() if line.startswith('{"accuracy"')))
    return found


needs_paddle = pytest.mark.skipif(
    not PYTHON.exists() or sys.platform != "linux", reason="the trainer image's environment is not made here"
)


PARAMETER_SERVER_RUNS = ("wide-and-deep", "own-program")


@pytest.mark.parametrize("name", ["wide-and-deep", "volcano", "podip", "pv-pvc", "own-program"])
def test_each_example_is_told_what_one_of_those_that_run_is_told(name: str, outputs: ClusterOutputs) -> None:
    assert told(paddle_job(name, outputs)) in [told(paddle_job(run, outputs)) for run in PARAMETER_SERVER_RUNS]


@needs_paddle
@pytest.mark.slow
@pytest.mark.parametrize("name", PARAMETER_SERVER_RUNS)
def test_parameter_servers_and_workers_train_a_model(name: str, outputs: ClusterOutputs, tmp_path: Path) -> None:
    found = run(paddle_job(name, outputs), "wide_and_deep.py", tmp_path)
    assert found["accuracy"] > found["baseline"] + 0.15
    assert found["last_loss"] < found["first_loss"]


@needs_paddle
@pytest.mark.slow
def test_collective_workers_train_a_model(outputs: ClusterOutputs, tmp_path: Path) -> None:
    found = run(paddle_job("resnet", outputs), "collective.py", tmp_path)
    assert found["accuracy"] > found["baseline"] + 0.15
    assert found["last_loss"] < found["first_loss"]

"""PaddleJobs as their pods would run: real Paddle processes, told what the operator tells each pod, by the rehearsal's own code.

Limits: those of rehearsal/paddle_job.py: no operator, no containers, no GPU, and programs of examples/paddlejob/programs in
place of the guide's images, which cannot be had here. Examples whose pods are told the same run the same: one of them runs.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from k8s_charts.deployed import ClusterOutputs
from k8s_charts.documents import documents
from k8s_charts.spec import TrainingJob
from rehearsal import paddle_job
from rehearsal.pods import image, manifests
from rehearsal.pods.addresses import AddressBlock, Names
from rehearsal.pods.manifests import Manifests, PaddleJob
from rehearsal.pods.paddle_job import OperatorPod, hosts, own, pods, run_paddle_job, shared
from rehearsal.pods.pod import Host

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[2]
EXAMPLES = PROJECT / "examples" / "paddlejob"
OURS = "ours"
"""This project's image."""


def read(name: str, outputs: ClusterOutputs) -> tuple[Manifests, PaddleJob]:
    job = TrainingJob.load(EXAMPLES / f"{name}.yaml")
    found = manifests.read(documents(job, outputs, job.image or OURS))
    (only,) = found.paddle_jobs
    return found, only


def injected(job: PaddleJob, pod: OperatorPod, addresses: dict[str, str]) -> dict[str, str]:
    """All that the operator tells a pod."""
    told = hosts(job, addresses)
    return {**shared(job, told), **own(job, pod, told)}


def own_variables(pod: OperatorPod) -> dict[str, str | None]:
    """What the manifest itself tells the pod's first container."""
    return {entry.name: entry.value for entry in pod.template.containers[0].environment}


def addresses_of(job: PaddleJob) -> dict[str, str]:
    return {pod.name: f"10.0.0.{i}" for i, pod in enumerate(pods(job))}


def test_each_pod_is_told_what_the_operator_tells_it(outputs: ClusterOutputs) -> None:
    _, job = read("wide-and-deep", outputs)
    made = pods(job)
    assert [pod.name for pod in made] == [f"wide-ande-deep-{role}-{i}" for role in ("ps", "worker") for i in (0, 1)]
    assert injected(job, made[3], addresses_of(job)) == {
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
    _, job = read(name, outputs)
    made = pods(job)
    found = injected(job, made[0], addresses_of(job))
    assert found["POD_IP"] == made[0].name
    assert found["PADDLE_PSERVERS_IP_PORT_LIST"] == ",".join(f"{pod.name}:36000" for pod in made[:2])
    assert "PADDLE_WITH_GLOO" not in found
    # The operator draws PADDLE_PORT, and its endpoints have 36000 all the same: the pods' own `env` goes before it.
    assert found["PADDLE_PORT"] != "36000"
    assert all(own_variables(pod)["PADDLE_PORT"] == "36000" for pod in made)


def told(name: str, outputs: ClusterOutputs) -> str:
    """What all pods of an example are told, but for the job's name: jobs that are told the same run the same."""
    _, job = read(name, outputs)
    return json.dumps([injected(job, pod, addresses_of(job)) for pod in pods(job)]).replace(f"{job.name}-", "")


RUNS = ("wide-and-deep", "own-program", "service", "resnet")
"""Examples that are run; each of the others is told what one of these is."""


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.yaml")))
def test_each_example_is_told_what_one_of_those_that_run_is_told(name: str, outputs: ClusterOutputs) -> None:
    assert told(name, outputs) in [told(run, outputs) for run in RUNS]


@pytest.mark.skipif(
    not (PROJECT / ".venv-image").exists() or sys.platform != "linux", reason="the trainer image's environment is not made here"
)
@pytest.mark.parametrize("name", RUNS)
def test_an_example_trains_a_model(name: str, outputs: ClusterOutputs, tmp_path: Path) -> None:
    found, written = read(name, outputs)
    laid_out = image.read(PROJECT / "trainer_image" / "Dockerfile")
    laid_out.lay_out(PROJECT, tmp_path / "image")
    (tmp_path / "volume").mkdir()
    host = Host(
        found, laid_out, tmp_path / "image", tmp_path / "pods", tmp_path / "volume", tmp_path / "logs",
        Names(tmp_path / "hosts.json", ()), PROJECT / ".venv-image" / "bin",
    )  # fmt: skip
    job = paddle_job.ready(written, found, OURS, PROJECT)

    async def run() -> Any:
        with AddressBlock() as block:
            return await asyncio.wait_for(run_paddle_job(job, host, block), 300)

    result = asyncio.run(run())
    logs = {end.name: end.logs["paddle"] for end in result.ended}
    assert result.succeeded, "\n".join(f"{name}:\n{log.read_text(errors='replace')[-2000:]}" for name, log in logs.items())
    model = paddle_job.measured(logs[f"{job.name}-worker-0"])
    assert model is not None
    assert model.metric == "accuracy"
    assert model.value > model.baseline + 0.15
    assert model.last_loss < model.first_loss

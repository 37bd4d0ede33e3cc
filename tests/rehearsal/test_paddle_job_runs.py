"""PaddleJobs as their pods would run: real Paddle processes, told what the operator tells each pod, by the rehearsal's own code.

Limits: those of rehearsal/paddle_job.py: no operator, no containers, no GPU, and programs of examples/paddlejob/programs in
place of the guide's images, which cannot be had here. Examples whose pods are told the same run the same: one of them runs.
"""

from pathlib import Path

import pytest

from k8s_charts.deployed import ClusterOutputs
from k8s_charts.documents import documents
from k8s_charts.spec import TrainingJob
from rehearsal import paddle_job
from rehearsal.pods import manifests

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[2]
OURS = "ours"
"""This project's image."""


@pytest.mark.parametrize("name", ["wide-and-deep", "own-program", "service", "resnet"])
def test_an_example_trains_a_model(name, machine):
    job = TrainingJob.load(PROJECT / "examples" / "paddlejob" / f"{name}.yaml")
    found = manifests.read(documents(job, ClusterOutputs.placeholder(), job.image or OURS))
    host = machine.state.host(PROJECT, found, PROJECT / ".venv-image" / "bin")
    runs = paddle_job.ready(found.paddle_jobs[0], found, OURS, PROJECT)
    result = machine.run_on(host, runs)
    logs = {end.name: end.logs["paddle"] for end in result.ended}
    assert result.succeeded, "\n".join(f"{name}:\n{log.read_text(errors='replace')[-2000:]}" for name, log in logs.items())
    model = paddle_job.measured(logs[f"{runs.name}-worker-0"])
    assert model.metric == "accuracy" and model.value > model.baseline + 0.15
    assert model.last_loss < model.first_loss

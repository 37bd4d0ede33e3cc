"""A PaddleJob's pods as real processes get their variables, a failing pod fails the job, no process
is left, and examples train.

Limits: those of paddle_aws/rehearsal/paddle_job.py: no operator, no containers, no GPU, and
programs of examples/paddlejob/programs in place of the guide's images, which are not available
here. Of examples that give their pods the same settings, only one runs.
"""

import json
from pathlib import Path

import pytest
import yaml

from k8s_charts.deployed import ClusterOutputs
from k8s_charts.documents import documents
from k8s_charts.spec import TrainingJob
from paddle_aws.rehearsal import paddle_job
from paddle_aws.rehearsal.pods import manifests

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[2]
OURS = "ours"
"""This project's image."""


def document(ps: str, worker: str) -> dict:
    found = yaml.safe_load(Path(__file__).with_name("pods.yaml").read_text())["paddle_job"]
    for role, script in (("ps", ps), ("worker", worker)):
        found["spec"][role]["template"]["spec"]["containers"][0]["args"] = [script]
    return found


@pytest.fixture
def run(machine):
    """A function that runs a PaddleJob. Returns its result, and the logs' words by pod."""

    def go(found: dict):
        result = machine.run([found])
        return result, {
            file.name.split(".")[0]: file.read_text().split() for file in machine.logs.glob("*.log")
        }

    return go


def test_the_operators_variables_and_the_shared_ones(run):
    tell = (
        "echo $POD_IP $PADDLE_TRAINER_ID $TRAINING_ROLE $PADDLE_TRAINERS_NUM $PADDLE_PORT "
        "$PADDLE_PSERVERS_IP_PORT_LIST"
    )
    result, said = run(document(tell, tell))
    assert result.succeeded and result.reason == "Completed"
    port = said["x-ps-1"][4]
    assert int(port) % 100 == 0 and int(port) >= 36000, "a rehearsal beside another shifts it"
    servers = ",".join(f"{said[f'x-ps-{i}'][0]}:{port}" for i in (0, 1))
    assert said["x-ps-1"][1:] == ["1", "PSERVER", "2", port, servers]
    # The template's own `env` takes precedence over the operator's ConfigMap, as in Kubernetes.
    assert said["x-worker-0"][1:] == ["0", "TRAINER", "2", "1", servers]


def test_a_pod_that_fails_fails_the_job_and_ends_the_others(run):
    result, _ = run(document("sleep 60", '[ "$PADDLE_TRAINER_ID" = 0 ] && exit 3; sleep 60'))
    assert (result.succeeded, result.reason) == (False, "Failed")
    assert (result.culprit.name, result.culprit.codes) == ("x-worker-0", {"paddle": 3})
    assert len(result.ended) == 4


@pytest.mark.parametrize("name", ["wide-and-deep", "own-program", "service", "resnet"])
def test_an_example_trains_a_model(name, machine):
    job = TrainingJob.load(PROJECT / "examples" / "paddlejob" / f"{name}.yaml")
    found = manifests.read(documents(job, ClusterOutputs.placeholder(), job.image or OURS))
    host = machine.state.host(PROJECT, found, PROJECT / ".venv-image" / "bin")
    runs = paddle_job.ready(found.paddle_jobs[0], found, OURS, PROJECT)
    result = machine.run_on(host, runs)
    logs = {end.name: end.logs["paddle"] for end in result.ended}
    assert result.succeeded, "\n".join(
        f"{name}:\n{log.read_text(errors='replace')[-2000:]}" for name, log in logs.items()
    )
    model = json.loads(logs[f"{runs.name}-worker-0"].read_text().splitlines()[-1])
    assert model["accuracy"] > model["baseline"] + 0.15
    assert model["last_loss"] < model["first_loss"]

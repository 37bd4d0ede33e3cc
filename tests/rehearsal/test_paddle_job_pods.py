"""A PaddleJob's pods as real processes: what they are told, one that fails fails the job, nothing is left, and examples train.

Limits: those of rehearsal/paddle_job.py: no operator, no containers, no GPU, and programs of examples/paddlejob/programs in
place of the guide's images, which cannot be had here. Examples whose pods are told the same run the same: one of them runs.
"""

import sys
from pathlib import Path

import pytest

from k8s_charts.deployed import ClusterOutputs
from k8s_charts.documents import documents
from k8s_charts.spec import TrainingJob
from rehearsal import paddle_job
from rehearsal.pods import manifests
from rehearsal.pods.container import private_mounts_work

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[2]
OURS = "ours"
"""This project's image."""


def document(ps: str, worker: str, **spec: object) -> dict:
    def role(script: str, **container: object) -> dict:
        first = {"name": "paddle", "image": "any", "command": ["/bin/sh", "-c"], "args": [script], **container}
        pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [first]}
        return {"replicas": 2, "template": {"spec": pod}}

    mine = {"env": [{"name": "PADDLE_PORT", "value": "1"}]}
    roles = {"ps": role(ps), "worker": role(worker, **mine)}
    return {"apiVersion": "v1", "kind": "PaddleJob", "metadata": {"name": "x"}, "spec": {**roles, **spec}}


@pytest.fixture
def run(machine):
    """Runs a PaddleJob: its result, and the logs' words by pod."""

    def go(found: dict):
        result = machine.run([found])
        return result, {file.name.split(".")[0]: file.read_text().split() for file in machine.logs.glob("*.log")}

    return go


def test_the_operators_variables_and_the_shared_ones(run):
    tell = "echo $POD_IP $PADDLE_TRAINER_ID $TRAINING_ROLE $PADDLE_TRAINERS_NUM $PADDLE_PORT $PADDLE_PSERVERS_IP_PORT_LIST"
    result, said = run(document(tell, tell))
    assert result.succeeded and result.reason == "Completed"
    servers = ",".join(f"{said[f'x-ps-{i}'][0]}:36000" for i in (0, 1))
    assert said["x-ps-1"][1:] == ["1", "PSERVER", "2", "36000", servers]
    # The template's own `env` goes before the operator's ConfigMap, as in Kubernetes.
    assert said["x-worker-0"][1:] == ["0", "TRAINER", "2", "1", servers]


def test_service_names_resolve_where_a_pod_may_have_hosts_of_its_own(run):
    known = "socket.gethostbyname('$POD_IP'), '$POD_IP', socket.gethostbyname(socket.gethostname())"
    look = f'{sys.executable} -c "import socket; print({known})"'
    result, said = run(document(look, look, intranet="Service"))
    assert result.succeeded, said
    names = private_mounts_work()
    for pod in ("x-ps-0", "x-ps-1", "x-worker-0", "x-worker-1"):
        address, told, own = said[pod]
        assert address.startswith("127.")
        assert told == (pod if names else address)
        assert own == address or not names, "a pod's host name is its address, by which gloo for one meets"


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
    assert result.succeeded, "\n".join(f"{name}:\n{log.read_text(errors='replace')[-2000:]}" for name, log in logs.items())
    model = paddle_job.measured(logs[f"{runs.name}-worker-0"])
    assert model.metric == "accuracy" and model.value > model.baseline + 0.15
    assert model.last_loss < model.first_loss

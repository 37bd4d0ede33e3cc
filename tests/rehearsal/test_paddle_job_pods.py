"""A PaddleJob's pods as real processes get their variables, a failing pod fails the job, and no
process is left. That the guide's examples train is shown in test_documents.py.

Limits: those of paddle_aws/rehearsal/paddle_job.py: no operator, no containers, no GPU, and
programs of examples/paddlejob/programs in place of the guide's images, which are not available
here.
"""

from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.slow


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

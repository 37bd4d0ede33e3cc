"""A PaddleJob's pods as real processes: what they are told, one that fails fails the job, and nothing is left."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from rehearsal.pods import image, manifests
from rehearsal.pods.addresses import AddressBlock, Names
from rehearsal.pods.container import private_mounts_work
from rehearsal.pods.paddle_job import run_paddle_job
from rehearsal.pods.pod import Host

pytestmark = pytest.mark.slow


def document(ps: str, worker: str, **spec: object) -> dict:
    def role(script: str, **container: object) -> dict:
        first = {"name": "paddle", "image": "any", "command": ["/bin/sh", "-c"], "args": [script], **container}
        pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [first]}
        return {"replicas": 2, "template": {"spec": pod}}

    mine = {"env": [{"name": "PADDLE_PORT", "value": "1"}]}
    roles = {"ps": role(ps), "worker": role(worker, **mine)}
    return {"apiVersion": "v1", "kind": "PaddleJob", "metadata": {"name": "x"}, "spec": {**roles, **spec}}


@pytest.fixture
def run(tmp_path):
    """Runs a PaddleJob below tmp_path: its result and the logs by pod; afterwards nothing that knows of it is alive."""

    def go(found: dict):
        read = manifests.read([found])
        (tmp_path / "Dockerfile").write_text("FROM scratch\n")
        laid_out = image.read(tmp_path / "Dockerfile")
        laid_out.lay_out(tmp_path, tmp_path / "image")
        host = Host(
            read, laid_out, tmp_path / "image", tmp_path / "pods", tmp_path, tmp_path / "logs",
            Names(tmp_path / "hosts.json", ()), Path(sys.executable).parent,
        )  # fmt: skip

        async def all_pods():
            with AddressBlock() as block:
                return await asyncio.wait_for(run_paddle_job(read.paddle_jobs[0], host, block), 240)

        result = asyncio.run(all_pods())
        return result, {file.name.split(".")[0]: file.read_text().split() for file in (tmp_path / "logs").glob("*.log")}

    yield go
    for process in Path("/proc").glob("[0-9]*"):
        if process.name != str(os.getpid()):
            try:
                known = (process / "environ").read_bytes()
            except OSError:
                continue
            assert str(tmp_path).encode() not in known


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


def test_where_names_cannot_resolve_pods_are_told_addresses(run, monkeypatch):
    monkeypatch.setattr("rehearsal.pods.paddle_job.private_mounts_work", lambda: False)
    tell = "echo $POD_IP $PADDLE_PSERVERS_IP_PORT_LIST"
    result, said = run(document(tell, tell, intranet="Service"))
    assert result.succeeded
    servers = ",".join(f"{said[f'x-ps-{i}'][0]}:36000" for i in (0, 1))
    assert servers.startswith("127.")
    assert said["x-worker-1"][1] == servers


def test_a_pod_that_fails_fails_the_job_and_ends_the_others(run):
    result, _ = run(document("sleep 60", '[ "$PADDLE_TRAINER_ID" = 0 ] && exit 3; sleep 60'))
    assert (result.succeeded, result.reason) == (False, "Failed")
    assert (result.culprit.name, result.culprit.codes) == ("x-worker-0", {"paddle": 3})
    assert len(result.ended) == 4

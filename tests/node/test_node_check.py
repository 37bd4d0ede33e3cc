"""The check of a node before each attempt: a missing GPU ends the pod on that node, and nothing
trains without it.

`nvidia-smi` here prints the GPUs that the test gives each pod's node.
tests/fleet/test_node_check.py has the real all-reduce.
"""

import os
from pathlib import Path

import pytest
from node_pods import StandIns

pytestmark = pytest.mark.slow


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder; its file gpus-N says how many of its two GPUs the node of pod N has."""
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(
        f"#!/bin/sh\nfor gpu in $(seq $(cat {tmp_path}/gpus-$JOB_COMPLETION_INDEX)); do echo "
        '"GPU $gpu: H100"; done\n'
    )
    program.chmod(0o755)
    monkeypatch.setattr(StandIns, "path", f"{program.parent}:{os.environ['PATH']}")
    for pod in range(3):
        (tmp_path / f"gpus-{pod}").write_text("2")
    return tmp_path


def test_a_node_that_lacks_a_gpu_ends_its_own_pod_before_any_attempt_and_the_others_wait(
    nodes: Path,
) -> None:
    (nodes / "gpus-1").write_text("1")
    stand_in = {"fails": [[2, 1, 1, 1]], "holds": [1, 0, 2]}
    with StandIns(nodes, GPUS="2", EFA="0", NODE="ip-10-0-0-7", stand_in=stand_in) as pods:
        pods.start()
        assert pods.pods[1].wait() == 71
        assert "node ip-10-0-0-7 is not fit: 1 of 2 GPUs are visible; `kubectl cordon`" in pods.log(
            1
        )
        pods.wait_for(0, "2 GPUs: ")
        assert "attempt 1" not in pods.logs()
        (nodes / "gpus-1").write_text("2")
        pods.start(1)
        # The node is checked again before the second attempt.
        pods.wait_for(0, "waits in step")
        (nodes / "gpus-0").write_text("0")
        pods.release()
        assert pods.pods[0].wait() == 71
        assert "0 of 2 GPUs are visible" in pods.log(0) and "attempt 2" not in pods.logs()
        (nodes / "gpus-0").write_text("2")
        pods.start(0)
        pods.end_undisturbed()


def test_an_adapter_that_is_missing(nodes: Path) -> None:
    with StandIns(nodes, count=1, EFA="16") as pods:
        pods.start()
        assert pods.codes() == [71] and "0 of 16 EFA adapters are there" in pods.log(0)

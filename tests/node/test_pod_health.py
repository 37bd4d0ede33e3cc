"""The probe looks at progress: it fails only in the pod that holds the others up, and names who is waited for."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from paddle_node.agent import health

IMAGE = Path(__file__).parents[2] / "trainer_image"
TRAINING = {
    "clock": 100.0,
    "state": "training",
    "trainer_id": 1,
    "trainer": {"pass": 3, "step": 17, "seconds": 2.0, "waits_in": None, "waits_for": []},
}


OWN = "this pod's pserver has answered nothing for"


@pytest.mark.parametrize(("change", "now", "healthy", "sentence"), [
    ({}, 101, True, "training: pass 3, step 17, 3 s ago"),
    ({}, 120, False, "the agent has been silent for 20 s"),
    ({"seconds": 50.0}, 101, False, "training: pass 3, step 17; no step for 51 s (PADDLE_NODE_STALL is 30), and it waits for"),
    ({"seconds": 50.0, "waits_in": "barrier step", "waits_for": [0, 2]}, 101, True,
     "training: pass 3, step 17; waits for trainer 0, 2 in barrier step since 51 s"),
    ({"seconds": 50.0, "silent_servers": [[2, 40.0]]}, 101, True,
     "training: pass 3, step 17; waits for pserver 2, which has answered nothing for 41 s"),
    # Even if its own trainer waits for others: they wait for this pod's pserver.
    ({"seconds": 50.0, "waits_in": "barrier step", "waits_for": [0], "silent_servers": [[1, 40.0]]}, 101, False,
     f"training: pass 3, step 17; {OWN} 41 s (PADDLE_NODE_STALL is 30)"),
    ({"seconds": 50.0, "silent_servers": [[1, 20.0]]}, 101, True, f"training: pass 3, step 17; {OWN} 21 s"),
    ({"pass": None, "step": None, "seconds": 40.0}, 101, False, "training: before the first step; no step for 41 s"),
    (None, 101, True, "training"),
])  # fmt: skip
def test_only_the_pod_at_fault_is_unhealthy(change, now, healthy, sentence):
    found = health.assess({**TRAINING, "trainer": None if change is None else TRAINING["trainer"] | change}, now, 30)
    assert found[0] is healthy and found[1].startswith(sentence)


def test_a_frozen_agent_is_killed_by_the_probe_and_nobody_else_of_its_number(tmp_path):
    """After a minute of silence: what is killed starts again at once, what the kubelet ends takes the pod's grace period."""
    script = (
        "import os, sys; from pathlib import Path; from paddle_node.agent import health; health.write(Path(sys.argv[1]), {});"
    )
    frozen = subprocess.Popen([sys.executable, "-c", f"{script} os.kill(os.getpid(), 19)", tmp_path], cwd=IMAGE)
    os.waitid(os.P_PID, frozen.pid, os.WSTOPPED)
    status = json.loads(health.status_file(tmp_path).read_text())
    late = status["clock"] + health.FROZEN
    assert not health.kill_frozen(status, late - 1)
    # The status of an earlier container of the pod, whose number another process has by now; and PID 1, which nobody kills.
    assert not health.kill_frozen({**status, "started": "1"}, late + 1)
    assert not health.kill_frozen({**status, "process": 2**22 + 1, "started": None}, late + 1)
    assert not health.kill_frozen({**status, "process": 1}, late + 1) and not health.kill_frozen(None, late)
    assert frozen.poll() is None and health.kill_frozen(status, late + 1)
    assert frozen.wait(20) == -9
    assert not health.kill_frozen(status, late + 2)

"""The probe and a frozen agent; tests/fleet has pservers and trainers that hang."""

import json
import os
import subprocess
import sys
from pathlib import Path

from paddle_node.agent import health

IMAGE = Path(__file__).parents[2] / "trainer_image"


def test_a_frozen_agent_is_killed_by_the_probe_and_nobody_else_of_its_number(tmp_path):
    """It is killed after a minute of silence: then it restarts at once, while a kubelet would wait
    for the grace period.
    """
    script = (
        "import os, sys; from pathlib import Path; from paddle_node.agent import health; "
        "health.write(Path(sys.argv[1]), '');"
    )
    frozen = subprocess.Popen(
        [sys.executable, "-c", f"{script} os.kill(os.getpid(), 19)", tmp_path], cwd=IMAGE
    )
    os.waitid(os.P_PID, frozen.pid, os.WSTOPPED)
    status = json.loads(health.status_file(tmp_path).read_text())
    late = status["clock"] + health.FROZEN
    assert health.assess(status, status["clock"] + 20, 30) == (
        False,
        "the agent has been silent for 20 s",
    )
    assert not health.kill_frozen(status, late - 1)
    # The status of an earlier container, whose process id another process has by now; and PID 1,
    # which nobody kills.
    assert not health.kill_frozen({**status, "started": "1"}, late + 1)
    assert not health.kill_frozen({**status, "process": 2**22 + 1, "started": None}, late + 1)
    assert not health.kill_frozen({**status, "process": 1}, late + 1) and not health.kill_frozen(
        None, late
    )
    assert frozen.poll() is None and health.kill_frozen(status, late + 1)
    assert frozen.wait(20) == -9
    assert not health.kill_frozen(status, late + 2)

"""A pod whose volume stands still leaves it, though it has written there what the server has not
taken.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from nfs_machine import Volume, server_down
from node_pods import ENTRY, StandIns

TALKS = """
import time
from pathlib import Path
line, number = "x" * 1000, 0
with open("output/log", "a") as log:
    while True:
        number += 1
        print(number, line, flush=True)
        log.write(line)
        log.flush()
        time.sleep(0.01)
"""


def test_nfs_a_pod_that_leaves_a_volume_that_stands_still_exits(
    volume: Volume, tmp_path: Path
) -> None:
    (tmp_path / "volume").symlink_to(volume.a)
    with StandIns(tmp_path, 1, program=ENTRY, RUNTIME="launch", LEASE="9") as pods:
        pods.variables["COMMAND"] = json.dumps([sys.executable, "train.py"])
        (pods.folder.program("quick_start") / "train.py").write_text(TALKS)
        pods.start()
        pods.wait_for(0, "] 100 x")
        with server_down():
            pods.wait_for(0, "this pod (ends|leaves)")
            began = time.monotonic()
            while pods.pods[0].poll() is None and time.monotonic() - began < 60:
                time.sleep(0.1)
            assert pods.pods[0].poll() == 75

"""A pod's real entry with the stand-in runtime (stand_in_process.py says what is not real)."""

import json
import os
import sys
from pathlib import Path

from paddle_node.__main__ import main
from paddle_node.environment import endpoint
from paddle_node.runtimes import Process, Runtime, python_program
from paddle_node.training.resumption import RecordedPasses


def processes(node, addresses, attempt):
    program = str(Path(__file__).with_name("stand_in_process.py"))
    servers = [endpoint(address, node.port) for address in addresses]
    environ = python_program.environ(node)
    server = {"address": node.pod_ip, "port": node.port}
    trainer = {"folder": str(node.folder.root), "index": node.trainer_id, "servers": servers}
    return (
        Process(
            "server",
            (sys.executable, program, "server", json.dumps(server)),
            environ,
            node.folder.server_log(node.trainer_id),
            ports=(node.port,),
        ),
        Process(
            "trainer",
            (sys.executable, program, "trainer", json.dumps(trainer)),
            environ,
            node.folder.train_log(node.trainer_id),
            waits_for_servers=json.loads(os.environ["STAND_IN"]).get("waits", False),
        ),
    )


if __name__ == "__main__":
    code = main(runtime_by_name=lambda name: Runtime("stand-in", processes, RecordedPasses))
    sys.stdout.flush()
    os._exit(code)

"""A pod's real entry with the stand-in runtime (stand_in_process.py says what is not real)."""

import contextlib
import errno
import json
import os
import sys
import time
from pathlib import Path

from paddle_node.__main__ import main
from paddle_node.runtimes import Process, Runtime, python_program
from paddle_node.training.resumption import RecordedPasses


def processes(node, peers, attempt):
    program = str(Path(__file__).with_name("stand_in_process.py"))
    servers = [peer.endpoint(node.port) for peer in peers]
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


def blind(flag):
    """As soon as there is this file, the holder's own looks at its lease fail: the one line at which the fault is forced."""
    from paddle_node.rendezvous import lease

    look = lease._newest

    def newest(folder):
        if flag.exists():
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return look(folder)

    lease._newest = newest


def late(seconds):
    """What the API server has to say reaches this pod late, but for its first answer."""
    from paddle_node.agent import pod_list

    def slowly(events):
        for event in events:
            time.sleep(seconds)
            yield event

    class LateWatching(pod_list._Watching):
        first = True

        def _list(self):
            time.sleep(0 if self.first else seconds)
            self.first = False
            return super()._list()

        def _ask(self, silence, **more):
            answer = super()._ask(silence, **more)
            return contextlib.nullcontext(slowly(answer)) if "watch" in more else answer

    pod_list._Watching = LateWatching


if __name__ == "__main__":
    if seconds := json.loads(os.environ["STAND_IN"]).get("late", {}).get(os.environ["POD_NAME"]):
        late(seconds)
    if flag := json.loads(os.environ["STAND_IN"]).get("blind"):
        blind(Path(flag))
    code = main(runtime_by_name=lambda name: Runtime("stand-in", processes, RecordedPasses))
    sys.stdout.flush()
    os._exit(code)

"""A pod's real entry point with a stand-in runtime, and that runtime's pserver and trainer: tiny,
quick, without Paddle.

The agent, the processes, their sockets, the memory that is lost with them, the session with the
rendezvous server and the passes on the volume are real. The model is not: it is one number per
server, and a step is an addition, so that a test knows the exact result of training. A server that
started empty shows in it, and so does a step that was lost or done twice.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from paddle_node import coordination
from paddle_node.__main__ import main
from paddle_node.environment import ProgramEnvironment, endpoint
from paddle_node.runtimes import Process, Runtime, python_program
from paddle_node.runtimes.pass_progress import PassProgress
from paddle_node.volume import passes
from paddle_node.volume.job_folder import JobFolder

SETTINGS = json.loads(os.environ["STAND_IN"])


def processes(node, addresses, attempt):
    own, environ = (sys.executable, __file__), python_program.environ(node)
    servers = [endpoint(address, node.port) for address in addresses]
    server = (*own, "server", node.pod_ip, str(node.port))
    trainer = (*own, "trainer", str(node.folder.root), *servers)
    return (
        Process(
            "server", server, environ, node.folder.server_log(node.trainer_id), ports=(node.port,)
        ),
        Process("trainer", trainer, environ, node.folder.train_log(node.trainer_id)),
    )


def serve(address: str, port: str) -> None:
    value = 0
    listener = socket.create_server((address, int(port)), backlog=64)
    print(f"serving on {address}:{port}", flush=True)
    while True:
        connection, _ = listener.accept()
        with connection, connection.makefile("rw") as stream:
            words = stream.readline().split()
            if words[:1] == ["stop"]:
                return
            if words:
                value = int(words[1]) + (value if words[0] == "add" else 0)
            stream.write(f"{value}\n")


def tell(server: str, command: str) -> int:
    host, _, port = server.rpartition(":")
    with (
        socket.create_connection((host, int(port)), timeout=5) as connection,
        connection.makefile("rw") as stream,
    ):
        stream.write(command + "\n")
        stream.flush()
        return int(stream.readline() or 0)


def wait(folder: JobFolder, where: str, stop: list[int]) -> None:
    """Waits until the test releases it, or until a stop or a kill ends it: a test can stay here as
    long as it wants.
    """
    print(f"waits in {where}", flush=True)
    while not stop and not Path(SETTINGS["released"]).exists():
        time.sleep(0.02)


def train(root: str, *servers: str) -> None:
    folder, worker = JobFolder(Path(root)), ProgramEnvironment.read()
    index, attempt, first = worker.trainer_id, worker.attempt, 0
    if SETTINGS.get("absent"):
        return
    if SETTINGS.get("aborts", [None])[0] == index:
        threading.Timer(SETTINGS["aborts"][1], os.abort).start()
    if "shell" in SETTINGS:
        subprocess.run(["sh", "-c", SETTINGS["shell"]], check=True)
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
    session = coordination.join()
    session.servers()
    if "pass" in worker.resumed:
        saved, first = folder.output / worker.resumed["folder"], int(worker.resumed["pass"]) + 1
        for server, value in (
            zip(servers, json.loads((saved / "values").read_text()), strict=True)
            if index == 0
            else ()
        ):
            tell(server, f"set {value}")
    session.barrier("loaded")
    print(f"attempt {attempt}: from pass {first}", flush=True)
    if "barriers" in SETTINGS:
        session.barrier(SETTINGS["barriers"][index])
    if SETTINGS.get("leaves") == index:
        return
    for number in range(first, SETTINGS["passes"]):
        if [attempt, number, "start"] == SETTINGS.get("holds"):
            wait(folder, f"the start of pass {number}", stop)
        for step in range(SETTINGS["steps"]):
            if [index, attempt, number, step] in SETTINGS.get("fails", []):
                print("this trainer fails on purpose", flush=True)
                sys.exit(SETTINGS.get("code", 7))
            if SETTINGS.get("hang") == [index, number, step]:
                print("this trainer hangs on purpose", flush=True)
                time.sleep(3600)
            for server in servers:
                tell(server, f"add {index + 1}")
            session.progress(number, step + 1)
            time.sleep(0.05)
            if [attempt, number, step] == SETTINGS.get("holds"):
                wait(folder, f"step {step} of pass {number}", stop)
            if any(session.gather("step", bool(stop))):
                print("told to stop", flush=True)
                sys.exit(143)
        print(f"pass {number}", flush=True)
        if index == 0 and SETTINGS.get("forget_done") != number:
            save(folder, worker, number, [tell(server, "add 0") for server in servers], stop)
        session.barrier("saved")
    if SETTINGS.get("fails_at_end") == index:
        print("this trainer fails after its last pass", flush=True)
        sys.exit(7)
    session.leave()
    for server in servers if index == 0 else ():
        tell(server, "stop")


def save(
    folder: JobFolder, worker: ProgramEnvironment, number: int, values: list[int], stop: list[int]
) -> None:
    directory = folder.attempt(worker.run_id, worker.attempt) / f"pass-{number:05d}"
    directory.mkdir(parents=True)
    (directory / "values").write_text(json.dumps(values))
    if [worker.attempt, number, "save"] == SETTINGS.get("holds"):
        wait(folder, f"the save of pass {number}", stop)
    identity = {"data": worker.data_digest, "program": worker.program_digest}
    passes.seal(
        directory,
        {
            "pass": number,
            "run": worker.run_id,
            "attempt": worker.attempt,
            **identity,
            "trainers": [],
        },
    )
    passes.link_newest(folder, directory.name)
    passes.keep_newest(folder, passes.Identity(**identity), SETTINGS.get("keep", 0), set())


if __name__ == "__main__":
    role, *arguments = sys.argv[1:] or ["agent"]
    if role == "agent":
        code = main(arguments=[], find_runtime=lambda way: Runtime(processes, PassProgress))
        sys.stdout.flush()
        os._exit(code)
    {"server": serve, "trainer": train}[role](*arguments)

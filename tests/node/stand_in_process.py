"""Stands in for a pserver or a trainer: tiny, quick, no Paddle.

What is real: the process, its socket, its memory that is lost with it, the session with the rendezvous server, the passes on
the volume. What is not: the model is one number a server, and a step is an addition, so that a test knows to the
last digit what training must have come to; a server that started empty, or a step lost or done twice, shows.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from paddle_node import coordination
from paddle_node.contract import JobFolder
from paddle_node.training import passes


def serve(address: str, port: int) -> None:
    value = 0
    if code := json.loads(os.environ["STAND_IN"]).get("server_code"):
        sys.exit(code)
    if json.loads(os.environ["STAND_IN"]).get("deaf"):
        time.sleep(3600)
    listener = socket.create_server((address, port), family=socket.AF_INET6 if ":" in address else socket.AF_INET, backlog=64)
    print(f"serving on {address}:{port}", flush=True)
    while True:
        connection, _ = listener.accept()
        with connection, connection.makefile("rw") as stream:
            words = stream.readline().split()
            if words and words[0] == "add":
                value += int(words[1])
            elif words and words[0] == "set":
                value = int(words[1])
            elif words and words[0] == "stop":
                return
            stream.write(f"{value}\n")


def tell(endpoint: str, command: str) -> int:
    host, _, port = endpoint.rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port)), timeout=5) as connection, connection.makefile("rw") as stream:
        stream.write(command + "\n")
        stream.flush()
        return int(stream.readline() or 0)


def wait(folder: JobFolder, where: str, stop: list[int]) -> None:
    """Until the test lets it go on, it is told to stop, or it is killed: a test is here for as long as it wants to be."""
    print(f"waits in {where}", flush=True)
    while not stop and not (folder.root / "goes-on").exists():
        time.sleep(0.02)


def train(folder: JobFolder, index: int, servers: list[str], settings: dict) -> None:
    if settings.get("absent"):
        return
    if settings.get("raises") == index:
        raise RuntimeError("boom")
    if settings.get("floods"):
        for _ in range(settings["floods"]):
            print("x" * 1000)
    if settings.get("daemons"):
        # Neither its parent nor its session is this pod's any more.
        code = f"setsid sh -c 'echo $$ >> {folder.root}/daemons; exec sleep 3600' & exit 0"
        subprocess.run(["sh", "-c", code], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
    session = coordination.join(os.environ)
    session.servers()
    resumed = json.loads(os.environ["PADDLE_NODE_RESUMED"])
    resume = resumed.get("pass", "")
    saved = folder.output / resumed.get("folder", "")
    own = folder.attempt(os.environ["PADDLE_NODE_RUN_ID"], session.attempt)
    identity = {"data": os.environ["PADDLE_NODE_DATA_DIGEST"], "program": os.environ["PADDLE_NODE_PROGRAM_DIGEST"]}
    first = int(resume) + 1 if resume else 0
    if index == 0 and resume and (saved / "poisoned").exists():
        sys.exit("this pass cannot be loaded")
    if index == 0 and resume:
        for server, value in zip(servers, json.loads((saved / "values").read_text()), strict=True):
            tell(server, f"set {value}")
    session.barrier("loaded")
    attempt = session.attempt
    print(f"attempt {attempt}: from pass {first}", flush=True)
    for number in range(first, settings["passes"]):
        for step in range(settings["steps"]):
            if [index, attempt, number, step] in settings.get("fails", []):
                print("this trainer fails on purpose", flush=True)
                sys.exit(settings.get("code", 7))
            if settings.get("always_fail") == index:
                sys.exit(settings.get("code", 7))
            if settings.get("orphans"):
                subprocess.run(["sh", "-c", "setsid sleep 0.2 &"], check=True)
            if settings.get("hang") == [index, number, step]:
                print("this trainer hangs on purpose", flush=True)
                time.sleep(3600)
            for server in servers:
                tell(server, f"add {index + 1}")
            session.progress(number, step + 1)
            time.sleep(settings["seconds"])
            if [attempt, number, step] == settings.get("holds"):
                wait(folder, f"step {step} of pass {number}", stop)
            if any(session.gather("step", bool(stop))):
                print("told to stop", flush=True)
                sys.exit(143)
        print(f"pass {number}", flush=True)
        if index == 0 and settings.get("forget_done") != number:
            directory = own / f"pass-{number:05d}"
            directory.mkdir(parents=True)
            (directory / "values").write_text(json.dumps([tell(server, "get") for server in servers]))
            if [attempt, number] == settings.get("poisons"):
                (directory / "poisoned").touch()
            time.sleep(settings.get("save_seconds", 0))
            if [attempt, number, "save"] == settings.get("holds"):
                wait(folder, f"the save of pass {number}", stop)
            facts = {"run": os.environ["PADDLE_NODE_RUN_ID"], "attempt": attempt, **identity}
            passes.seal(directory, {"pass": number, **facts, "trainers": []})
            passes.lead(folder, directory.name)
            passes.keep_newest(folder, passes.Identity(**identity), settings.get("keep", 0), set())
        session.barrier("saved")
    session.leave()
    if index == 0 and settings.get("stop_servers", True):
        for server in servers:
            tell(server, "stop")


if __name__ == "__main__":
    role, facts = sys.argv[1], json.loads(sys.argv[2])
    if role == "server":
        serve(facts["address"], facts["port"])
    else:
        train(JobFolder(Path(facts["folder"])), facts["index"], facts["servers"], json.loads(os.environ["STAND_IN"]))

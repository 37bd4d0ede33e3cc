"""A command may be any script: whether it has trained is seen in the processes that trained, on two
real pods. The ranks are stand-ins that meet over a socket, as Paddle's and torch's do.
"""

import re
import sys

import pytest
from node_pods import ENTRY, StandIns

pytestmark = pytest.mark.slow

# train.py [how]: meets the other pod's rank, makes six steps, and ends as it is told to.
TRAIN = """
import os, signal, socket, sys, time
how = sys.argv[1] if len(sys.argv) > 1 else "well"
rank, port = int(os.environ["RANK"]), int(os.environ["MASTER_PORT"])
attempt = int(os.environ["PADDLE_NODE_ATTEMPT"])
if how == "config":
    raise KeyError("no such setting")
if rank == 0:
    server = socket.create_server(("", port), reuse_port=True)
    peer = server.accept()[0]
while rank:
    try:
        peer = socket.create_connection((os.environ["MASTER_ADDR"], port))
        break
    except OSError:
        time.sleep(0.05)
for step in range(6):
    print("step", step, flush=True)
    time.sleep(0.1)
    if step == 3 and how == "raise":
        raise RuntimeError("out of range label 17")
    if step == 3 and how == "exit":
        sys.exit("the label file has 3 columns")
    if step == 3 and how == "leave":
        os._exit(3)
    if step == 3 and how == "system":
        raise SystemExit(4)
    if step == 3 and how == "overflow":
        sys.exit(256)
    if step == 3 and how == "abort":
        os.abort()
    if step == 3 and (how == "kill" or how == "killed once" and attempt == 1):
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "once" and not os.path.exists("tried"):
        open("tried", "w").close()
        raise OSError("this happens once")
    if how == "fork" and step == 3 and os.fork() == 0:
        raise ValueError("a data worker fell, and the program went on")
open(os.environ["WROTE"] + f"/{rank}", "w").write("trained")
"""
FORKS = """
import os, runpy, sys
if (pid := os.fork()) == 0:
    runpy.run_path("train.py", run_name="__main__")
    os._exit(0)
os.waitpid(pid, 0)
"""
MULTIPROCESSING = """
import multiprocessing, runpy
def train():
    runpy.run_path("train.py", run_name="__main__")
if __name__ == "__main__":
    rank = multiprocessing.get_context("spawn").Process(target=train)
    rank.start()
    rank.join()
"""
LAUNCHES = """
import subprocess, sys
subprocess.run([sys.executable, "train.py", *sys.argv[1:]])
"""
RETRIES = """
import subprocess, sys
for _ in range(3):
    if subprocess.run([sys.executable, "train.py", "once"]).returncode == 0:
        sys.exit(0)
sys.exit(1)
"""
PLAIN = """
import sys, time
for step in range(4):
    print("step", step, flush=True)
    time.sleep(0.1)
if sys.argv[1:] == ["raise"]:
    raise RuntimeError("a plain program fell")
open("plain-done", "w").close()
"""
PLOT = "raise ImportError('no module named matplotlib')\n"
HANDLES = """
import runpy, traceback
try:
    raise ValueError("handled")
except ValueError:
    traceback.print_exc()
class Late:
    def __del__(self):
        raise RuntimeError("ignored")
Late()
runpy.run_path("train.py", run_name="__main__")
"""
DAEMON = """
import os, sys, time
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
time.sleep(600)
"""
SERVICE = "import time\ntime.sleep(600)\n"
FILES = {
    "train.py": TRAIN, "forks.py": FORKS, "spawns.py": MULTIPROCESSING, "launches.py": LAUNCHES,
    "retries.py": RETRIES, "plain.py": PLAIN, "plot.py": PLOT, "handles.py": HANDLES,
    "daemon.py": DAEMON, "service.py": SERVICE,
    "Makefile": "train:\n\t-python train.py raise\n",
}  # fmt: skip


@pytest.fixture
def scripts(job):
    """Makes two pods that run these lines by bash; `python` is this one."""

    def make(lines: str, **more: str) -> StandIns:
        settings = {"ATTEMPTS": "1", "PEER_DEADLINE": "30", **more}
        pods = job(
            count=2, program=ENTRY, RUNTIME="launch", COMMAND='["bash", "run.sh"]', **settings
        )
        folder = pods.folder.program("quick_start")
        pods.path = f"{pods.place}/bin:{pods.path}"
        (pods.place / "bin").mkdir()
        (pods.place / "bin/python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        (pods.place / "bin/python").chmod(0o755)
        (pods.place / "wrote").mkdir()
        lines = f"export WROTE={pods.place}/wrote\n{lines}\n"
        for name, text in {**FILES, "run.sh": lines}.items():
            (folder / name).write_text(text)
        return pods

    return make


LABEL = r"RuntimeError: out of range label 17"
BAD = {
    "tee": ("python train.py raise 2>&1 | tee train.log", LABEL),
    "grep": ("python train.py raise 2>&1 | grep -v step || true", LABEL),
    "awk": ("set -e\npython train.py raise 2>&1 | awk '{print}'", LABEL),
    "into Python": ("python train.py raise | python -c 'import sys; sys.stdin.read()'", LABEL),
    "echo done": ("python train.py raise; echo done", LABEL),
    "and true": ("python train.py raise && echo well\ntrue", LABEL),
    "if not": ("if ! python train.py raise; then echo it failed; fi", LABEL),
    "a function": ("train() { (python train.py raise); }\ntrain || echo no", LABEL),
    "in the background": ("nohup python train.py raise > train.log 2>&1 &\necho started", LABEL),
    "wait": ("python train.py raise &\nwait\necho done", LABEL),
    "setsid": ("setsid python train.py raise > log 2>&1 &\nsleep 0.1", LABEL),
    "disown": ("python train.py raise & disown", LABEL),
    "later": ("( sleep 1; python train.py raise ) &", LABEL),
    "then an evaluation": ("python train.py raise\npython plain.py", LABEL),
    "make": ("make train", LABEL),
    "a Python launcher": ("python launches.py raise", LABEL),
    "os.fork": ("python forks.py raise", LABEL),
    "multiprocessing": ("python spawns.py raise", "ended with 1"),
    "before it met": ("python train.py config | tee log", "KeyError: 'no such setting'"),
    "words": ("python train.py exit | tee log", "ended with 1: the label file has 3 columns"),
    "os._exit": ("python train.py leave | tee log", "ended with 3"),
    "SystemExit": ("python train.py system | tee log", "ended with 4"),
    "overflow": ("python train.py overflow", r"sys\.exit\(256\), which Linux takes for 0"),
    "abort": ("python train.py abort | tee log", r"ended with 134 \(SIGABRT\)"),
    "kill": ("python train.py kill | tee log", r"ended with 137 \(SIGKILL\)"),
    "killed in the background": ("python train.py kill &", r"ended with 137 \(SIGKILL\)"),
    "another PYTHONPATH": ("PYTHONPATH=. python train.py raise | tee log", "ended with 1"),
    "python -I": ("python -I train.py raise | tee log", "ended with 1"),
    "plain": ("python plain.py raise | tee log", "RuntimeError: a plain program fell"),
}


@pytest.mark.parametrize("name", BAD)
def test_training_that_failed_is_no_success(scripts, name) -> None:
    lines, cause = BAD[name]
    pods = scripts(lines)
    pods.start()
    codes = pods.codes()
    assert 0 not in codes, pods.logs()
    assert re.search(cause, pods.attempts()[0]["cause"]), pods.attempts()


SOUND = {
    "pipefail": "set -eo pipefail\npython train.py 2>&1 | tee train.log",
    "in the background": "nohup python train.py > train.log 2>&1 &\necho started",
    "later": "( sleep 1; python train.py ) &",
    "setsid": "setsid nohup python train.py > log 2>&1 & disown",
    "a warm-up": "python plain.py raise || true\npython train.py",
    "a service": "python service.py &\npython train.py",
    "a monitor": "while true; do date > /dev/null; sleep 1; done &\npython train.py",
    "a service that is stopped": "python service.py &\npython train.py; kill $!",
    "handled": "python handles.py",
    "a plot": "python train.py\npython plot.py\necho drawn",
    "an evaluation": "set -e\npython train.py\npython plain.py",
    "trap": "trap 'echo bye' EXIT TERM\npython train.py",
    "exec": "exec python train.py",
    "timeout": "timeout 60 python train.py",
    "xargs": "echo train.py | xargs python",
    "retries": "python retries.py",
    "a data worker": "python train.py fork",
    "a daemon": "python daemon.py\npython train.py",
    "head": "python train.py | head -n 100; ls | head -n 1",
    "os.fork": "python forks.py",
    "multiprocessing": "python spawns.py",
    "make": "make -f /dev/stdin <<< $'train:\\n\\tpython train.py'",
    "killed once": "python train.py 'killed once' | tee log",
}


@pytest.mark.parametrize("name", SOUND)
def test_training_that_went_well_is_no_failure(scripts, name) -> None:
    pods = scripts(SOUND[name], ATTEMPTS="2" if name == "killed once" else "1")
    pods.start()
    logs = pods.end_with()
    assert (pods.place / "wrote/0").exists() and (pods.place / "wrote/1").exists(), logs
    assert len(pods.attempts()) == (2 if name == "killed once" else 1)
    said = re.search("the job is done(.*)", logs)[1]
    assert "connected" not in said
    plot = "plot.py ended with 1: ImportError: no module named matplotlib (plot.py:1)"
    assert (plot in said) == (name == "a plot"), said

"""A command may be any script: whether it has trained is seen in the processes that trained, on two
real pods. The ranks are stand-ins that meet over a socket, as Paddle's and torch's do.
"""

import json
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
try:
    import paddle.distributed
except ImportError:
    pass
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
# Starts a rank in a session of its own, and falls with it, as torchrun, accelerate and Paddle's do.
LAUNCHER = """
import subprocess, sys
import paddle.distributed
words = sys.argv[next(place for place, word in enumerate(sys.argv) if word.endswith("train.py")):]
if code := subprocess.Popen([sys.executable, *words], start_new_session=True).wait():
    raise RuntimeError(f"ChildFailedError: {code}")
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
SMOKE = """
from paddle.optimizer.optimizer import Optimizer
Optimizer()._apply_optimize()
"""
MONITORS = """
import subprocess, sys
subprocess.Popen([sys.executable, "service.py"], start_new_session=True)
exec(open("slow.py").read())
"""
READY = """
import os
if not os.path.exists("tried"):
    open("tried", "w").close()
    raise ConnectionRefusedError("not yet")
"""
LISTING = "for number in range(200000): print('file', number)\n"
# Waits for the other pod, and does nothing more.
WAITS = TRAIN.split("for step")[0].replace("import paddle.distributed", "pass")
# Plain Python that trains for two seconds.
SLOW = """
import os, signal, sys, time
for step in range(20):
    print("step", step, flush=True)
    time.sleep(0.1)
    if step == 8 and len(sys.argv) > 1:
        os.kill(os.getpid(), getattr(signal, sys.argv[1]))
open(os.environ["WROTE"] + "/" + os.environ["RANK"], "w").write("trained")
"""
# Steps, and goes on in another thread.
THREAD = """
import runpy, threading
def train():
    exec(open("smoke.py").read())
    runpy.run_path("train.py", run_name="__main__")
thread = threading.Thread(target=train)
thread.start()
thread.join()
"""
# As `conda run` does: its lines in a file, and what they print at the end.
CONDA = """
import subprocess, sys
open("conda.sh", "w").write(" ".join(sys.argv[1:]))
done = subprocess.run(["bash", "conda.sh"], capture_output=True, text=True)
print(done.stdout, done.stderr)
sys.exit(done.returncode)
"""
POOL = """
import multiprocessing as mp, runpy
try:
    import paddle.distributed
except ImportError:
    pass
if __name__ == "__main__":
    with mp.get_context("spawn").Pool(2) as pool:
        pool.map(abs, [1, 2, 3])
    runpy.run_path("train.py", run_name="__main__")
"""
# Its last exit handler hides what happened.
LEAVES = """
import atexit, os, runpy
atexit.register(os._exit, 0)
runpy.run_path("train.py", run_name="__main__")
"""
# Python prints an exception of C's caller, and goes on.
CALLBACK = """
import ctypes, os, runpy, sys
ctypes.CFUNCTYPE(None)(lambda: 1 / 0)()
def called_by_an_extension():
    try:
        1 / 0
    except ZeroDivisionError as error:
        sys.last_value = error  # As PyErr_Print leaves it.
called_by_an_extension()
runpy.run_path("train.py", run_name="__main__")
os._exit(0)
"""
# Plain Python that saves in the job's output.
SAVES_RESULT = """
import os, time
os.makedirs("output", exist_ok=True)
time.sleep(1)
for path in ("output", os.environ["WROTE"]):
    open(f"{path}/{os.environ['RANK']}", "w").write("trained")
"""
FILES = {
    "train.py": TRAIN, "forks.py": FORKS, "spawns.py": MULTIPROCESSING, "launches.py": LAUNCHES,
    "retries.py": RETRIES, "plain.py": PLAIN, "plot.py": PLOT, "handles.py": HANDLES,
    "daemon.py": DAEMON, "service.py": SERVICE,
    "paddle/__init__.py": "in_dynamic_mode = lambda: True\n", "paddle/distributed/__init__.py": "",
    "paddle/distributed/launch.py": LAUNCHER, "torchrun": LAUNCHER, "accelerate": LAUNCHER,
    "paddle/optimizer/__init__.py": "",
    "paddle/optimizer/optimizer.py": "class Optimizer:\n    def _apply_optimize(self): pass\n",
    "smoke.py": SMOKE, "monitors.py": MONITORS, "ready.py": READY, "listing.py": LISTING,
    "waits.py": WAITS, "slow.py": SLOW, "pool.py": POOL,
    "leaves.py": LEAVES, "callback.py": CALLBACK,
    "saves_result.py": SAVES_RESULT, "thread.py": THREAD, "conda.py": CONDA,
    "Makefile": "train:\n\t-python train.py raise\n",
}  # fmt: skip


SAVES = """
import os, signal, sys, time
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
print("trains", flush=True)
step = 0
while not os.path.exists(os.environ["WROTE"] + "/released"):
    step += 1
    time.sleep(0.05)
    if told:
        time.sleep(1)
        name = os.environ["WROTE"] + "/saved-" + os.environ["RANK"]
        open(name, "w").write(f"{step} after {len(told)}")
        sys.exit(143)
"""
WRAPS = """
import signal, subprocess, sys
rank = subprocess.Popen([sys.executable, "saves.py"])
signal.signal(signal.SIGTERM, lambda *_: rank.terminate())
sys.exit(rank.wait())
"""
LOSES = """
import os, time
os.makedirs("checkpoints", exist_ok=True)
for step in range(4):
    print("step", step, "loss", 0.5 if step < 2 else "nan", flush=True)
    open(f"checkpoints/step_{step}.pdparams", "w").write("weights" * 1000)
    time.sleep(0.1)
"""
BAR = r"""
import sys, time
for step in range(1, 41):
    sys.stderr.write(f"\rEpoch 1: {step:4d}/40 [loss: {1 / step:.4f}]")
    sys.stderr.flush()
    time.sleep(0.1)
sys.stderr.write("\n")
"""
FILES |= {"saves.py": SAVES, "wraps.py": WRAPS, "loses.py": LOSES, "bar.py": BAR}


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
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        return pods

    return make


# Plain Python that is installed: its file is none of the program's.
TOOL = "install -D slow.py $WROTE/$RANK.d/bin/tool; python $WROTE/$RANK.d/bin/tool"
UV = f"{ENTRY.parents[1]}/.venv-uv/bin/uv run --no-project --python $(which python)"
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
    "multiprocessing": ("python spawns.py raise", LABEL),
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
    "other arguments": ("python train.py raise | tee a\npython train.py well | tee b", LABEL),
    "killed beside a helper": (
        "python slow.py SIGKILL &\nsleep 0.2\npython plain.py\nwait\necho done",
        "SIGKILL",
    ),
    "python -X utf8 -E": ("python -X utf8 -E slow.py SIGKILL | tee log", "SIGKILL"),
    "python -u -S": ("python -u -S slow.py SIGKILL | tee log", "SIGKILL"),
    "another sitecustomize": (
        "mkdir lib; touch lib/sitecustomize.py\n"
        "PYTHONPATH=$PWD/lib:$PYTHONPATH python slow.py SIGKILL | tee log",
        "SIGKILL",
    ),
    "-c": ("python -c 'import train' raise 2>&1 | tee log\n", "ended with 1"),
    "a script that begins later": (
        "printf 'sleep 2\\npython train.py raise\\n' > later.sh; bash later.sh > log 2>&1 &\n"
        "python -c 'print(1)'",
        LABEL,
    ),
    "a thread that trains": ("python thread.py raise", LABEL),
    "cProfile": ("python -m cProfile -o profile slow.py SIGKILL | tee log", "SIGKILL"),
    "a copy elsewhere": (
        "cp slow.py $WROTE/$RANK.py; python $WROTE/$RANK.py SIGKILL | tee log",
        "SIGKILL",
    ),
    "process substitution": ("python <(cat slow.py) SIGKILL > >(tee log); true", "SIGKILL"),
    "shared memory": (
        "python slow.py SIGBUS | tee log",
        r"SIGBUS.*out of shared memory \(raise resources\.shared_memory\)",
    ),
    "uv run": (f"{UV} python train.py kill || true", "SIGKILL"),
    "conda run": ("python conda.py python train.py raise || true", LABEL),
    "lines": ("echo 'raise RuntimeError(\"label 17\")' | python - | tee log", "label 17"),
    "-m": (
        "mkdir -p src/pkg; cp plain.py src/pkg/\n"
        "PYTHONPATH=src:$PYTHONPATH python -m pkg.plain raise | tee log",
        "a plain program fell",
    ),
    "conda run and a kill": ("python conda.py python train.py kill || true", "SIGKILL"),
    "bash -c": ("bash -c 'python train.py kill; true'", "SIGKILL"),
    "Perl": ("nohup perl -e 'sleep 1; system(\"python train.py raise\")' > log 2>&1 &", LABEL),
    "an installed tool": (f"{TOOL} SIGKILL | tee log", "SIGKILL"),
    "an installed tool in the background": (f"{TOOL} SIGKILL > log &", "SIGKILL"),
    "os._exit behind an exception": ("python leaves.py raise", LABEL),
    "python -i": ("python -i train.py raise < /dev/null", LABEL),
}
LAUNCHERS = {
    "Paddle's": "python -m paddle.distributed.launch",
    "torchrun": "python torchrun",
    "accelerate": "python accelerate launch --num_machines 2 --machine_rank $RANK",
}
BACKGROUND = {"a job": "{} &", "nohup": "nohup {} > train.log 2>&1 &\necho started"}
BAD |= {
    f"{launcher}, {background}, {how}": (lines.format(f"{words} train.py {how}"), cause)
    for launcher, words in LAUNCHERS.items()
    for background, lines in BACKGROUND.items()
    for how, cause in (("raise", LABEL), ("kill", "SIGKILL"))
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
    "a step alone": "set -e\npython smoke.py\npython train.py",
    "a Python's monitor": "python monitors.py",
    "a monitor that is stopped": (
        "python slow.py & T=$!\nsleep 0.5\npython service.py & M=$!\nwait $T\nkill $M"
    ),
    "a pool": "python pool.py",
    "a forked child": (
        "python -c 'import os; os.fork() or os._exit(7); os.wait()'\npython train.py"
    ),
    "until": "until python ready.py; do sleep 0.1; done\npython train.py",
    "head and plain Python": "python listing.py | head -n 1\npython slow.py",
    "a plain warm-up": "python plot.py || true\npython slow.py",
    "plain Python and a helper": "nohup python slow.py > log &\nsleep 0.3\npython plain.py",
    "a query of an interpreter": "python -I -B -c pass; python -I -B -c pass\npython train.py",
    "plain Python, monitors and a plot": (
        "python service.py &\nwhile true; do sleep 1; done &\npython saves_result.py\n"
        "python plot.py; true"
    ),
    "uv run": f"{UV} python train.py",
    "conda run": "python conda.py python train.py",
    "double fork": (
        "python -c 'import os, time; os.fork() and os._exit(0); os.setsid(); time.sleep(1); "
        "import train'"
    ),
    "a thread that trains": "python thread.py",
    "a thread that fell": (
        "python -c 'import threading as t; t.Thread(target=lambda: 1 / 0).start(); import train'"
    ),
    "a wait": "python waits.py\nnohup python train.py > log &",
    "Perl": "nohup perl -e 'sleep 1; system(\"python train.py\")' > log 2>&1 &",
    "an installed tool in the background": f"{TOOL} | tee log &",
    "a program of no Python in the background": (
        "cp $(which bash) compiled\nnohup ./compiled -c 'sleep 1; echo > $WROTE/$RANK; exit' &"
    ),
    "an installed tool that fell before a program of no Python": (
        "install -D plain.py $WROTE/$RANK.d/bin/tool; python $WROTE/$RANK.d/bin/tool raise || :\n"
        "cp $(which bash) compiled-$RANK\n./compiled-$RANK -c 'sleep 1; echo > $WROTE/$RANK; exit'"
    ),
    "a callback that fell": "python callback.py",
    "killed once under conda run": "python conda.py \"python train.py 'killed once'\" || true",
}
SOUND |= {
    f"{launcher}, {background}": lines.format(f"{words} train.py")
    for launcher, words in LAUNCHERS.items()
    for background, lines in BACKGROUND.items()
}


@pytest.mark.parametrize("name", SOUND)
def test_training_that_went_well_is_no_failure(scripts, name) -> None:
    pods = scripts(SOUND[name], ATTEMPTS="2" if "killed once" in name else "1")
    pods.start()
    logs = pods.end_with()
    assert (pods.place / "wrote/0").exists() and (pods.place / "wrote/1").exists(), logs
    assert len(pods.attempts()) == (2 if "killed once" in name else 1)
    said = re.search("the job is done(.*)", logs)[1]
    assert "connected" not in said or re.search("slow|monitors|result|compiled", SOUND[name])
    plot = "plot.py ended with 1: ImportError: no module named matplotlib (plot.py:1)"
    assert (plot in said) == ("plot.py" in SOUND[name]), said
    assert "ready.py" not in said
    assert ("ended with ZeroDivisionError" in said) == (name == "a thread that fell"), said
    assert ("ended with 7" in said) == (name == "a forked child"), said


def test_a_script_in_which_nothing_trained_is_done_with_a_doubt(scripts) -> None:
    pods = scripts("pyhton train.py 2>&1 | tee log")
    pods.start()
    said = "but trainer 0: no Python was seen to train: its exit code alone says that it is done"
    assert said in pods.end_with().splitlines()[-1]


WRAPPERS = {
    "a program": "exec python saves.py",
    "a script": "set -e\npython saves.py",
    "a pipe": "python saves.py 2>&1 | tee log",
    "a trap that hands on": "python saves.py &\nrank=$!\ntrap 'kill $rank' TERM\nwait $rank\nwait",
    "timeout": "timeout 600 python saves.py",
    "Python": "python wraps.py",
    "the background": "nohup python saves.py > log 2>&1 &",
}


@pytest.mark.parametrize("told", ["drain", "spot notice", "cancel"])
@pytest.mark.parametrize("name", WRAPPERS)
def test_each_rank_gets_sigterm_once_and_saves(scripts, name, told) -> None:
    """A drain and a spot notice tell one pod, whose machine is gone two minutes after the notice,
    whether or not the pod has ended; a cancel tells all.
    """
    pods = scripts(WRAPPERS[name], GRACE="30")
    pods.start()
    for index in (0, 1):
        pods.wait_for(index, "is process" if "> log" in WRAPPERS[name] else "trains")
    if "> log" in WRAPPERS[name]:
        pods.wait_until(lambda: len(list(pods.scratch.rglob("program/log"))) == 2)
        logs = list(pods.scratch.rglob("program/log"))
        pods.wait_until(lambda: all("trains" in log.read_text() for log in logs))
    pods.terminate(*([] if told == "cancel" else [1]))
    saved = [pods.place / f"wrote/saved-{index}" for index in (0, 1)]
    pods.wait_until(lambda: all(file.exists() and file.read_text() for file in saved), 60)
    if told == "spot notice":
        pods.kill(1)
    elif told == "drain":
        assert pods.pods[1].wait(60) == 143, pods.logs()
    assert all(re.fullmatch(r"\d+ after 1", file.read_text()) for file in saved), pods.logs()
    if told == "cancel":
        assert pods.codes() == [143, 143], pods.logs()
    else:
        (pods.place / "wrote/released").touch()
        pods.start(1)
        pods.end_with()
        assert pods.attempts()[0]["kind"] in ("stopped", "pod"), pods.attempts()


@pytest.mark.parametrize("nan", ["", "fail"])
def test_what_is_lost_and_what_became_nan_is_named(scripts, nan) -> None:
    metrics = {"step": r"step (\d+)", "loss": r"loss (\S+)", "speed": "speed (.*)"}
    resume = '["--from", "{newest:output/*.pdparams}"]'
    pods = scripts("python loses.py", METRICS=json.dumps(metrics), RESUME=resume, NAN=nan)
    pods.start()
    if nan:
        assert pods.codes() == [2, 2] and len(pods.attempts()) == 1, pods.logs()
        assert "loss is NaN since step 2 on rank" in pods.log(0).splitlines()[-1]
        return
    said = pods.end_with().splitlines()[-1]
    assert "trainer 0: loss is NaN since step 2 on rank 0; " in said
    outside = "what it wrote outside output/ goes with the pod: checkpoints/ (4 files, 28.0 kB)"
    assert outside in said and "metrics.speed matched no line: speed (.*)" in said
    assert "resume matched no file, so a break costs the whole training" in said


def test_a_progress_bar_tells_its_steps_while_it_runs(scripts) -> None:
    metrics = {"step": r"(\d+)/40", "loss": r"loss: ([0-9.]+)"}
    pods = scripts("python bar.py", METRICS=json.dumps(metrics))
    pods.start()
    file = pods.folder.steps(0, 0)
    pods.wait_until(lambda: file.exists() and len(file.read_text().splitlines()) > 2)
    assert None in [pod.poll() for pod in pods.pods.values()]
    pods.end_with()
    assert json.loads(file.read_text().splitlines()[-1])["step"] == 40

"""The processes of a command form the one world of the job, or the job ends and says why: real pods
and stand-ins for launchers.
"""

import json
import sys

import pytest
from node_pods import ENTRY, StandIns

pytestmark = pytest.mark.slow

TRAIN = """
import os, socket, sys, time
os.write(1, "rank {RANK} of {WORLD_SIZE}\\n".format(**os.environ).encode())
if os.environ["WORLD_SIZE"] == "1":
    time.sleep(60)
if os.environ["RANK"] == "0":
    with socket.create_server(("", int(os.environ["MASTER_PORT"])), reuse_port=True) as server:
        peers = [server.accept()[0] for _ in range(int(os.environ["WORLD_SIZE"]) - 1)]
        [peer.recv(1) for peer in peers]
else:
    while True:
        try:
            address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
            with socket.create_connection(address):
                time.sleep(1)
            break
        except OSError:
            time.sleep(0.05)

"""
# Starts a rank as torchrun does: what it is not told, it takes from PET_<flag>, else from a world
# of one.
LAUNCHER = """
import os, subprocess, sys
one = {} if "--standalone" in sys.argv else os.environ
nodes, node = int(one.get("PET_NNODES", 1)), int(one.get("PET_NODE_RANK", 0))
count = int(one.get("PET_NPROC_PER_NODE", 1))
more = {
    "MASTER_ADDR": one.get("PET_MASTER_ADDR", "127.0.0.1"),
    "MASTER_PORT": one.get("PET_MASTER_PORT", "29500"),
    "WORLD_SIZE": str(nodes * count),
}
ranks = [
    subprocess.Popen(
        [sys.executable, sys.argv[-1]],
        env=os.environ | more | {"RANK": str(node * count + local)},
    )
    for local in range(count)
]
sys.exit(max(rank.wait() for rank in ranks))
"""
ALONE = """
import os, sys, time
print("world_size: 1", flush=True)
time.sleep(float(sys.argv[1]))
"""
# A program that makes its own process group, as torch knows it.
OWN_GROUP = """
import sys, time, types
group = types.SimpleNamespace(is_initialized=lambda: True, get_world_size=lambda: 1)
sys.modules["torch.distributed"] = group
import paddle_node
paddle_node.report(loss=1.0)
time.sleep(60)
"""
# Starts two ranks of a world of two, as `accelerate launch --num_processes 2` does.
LOCAL = """
import os, subprocess, sys
world = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(30000 + os.getpid() % 9000)}
ranks = [
    subprocess.Popen(
        [sys.executable, "train.py"], env=os.environ | world | {"RANK": str(rank)}
    )
    for rank in range(2)
]
sys.exit(max(rank.wait() for rank in ranks))
"""
# Makes a hundred steps with an optimizer as Paddle has it, and meets nobody.
STEPS_ALONE = """
import time
from paddle.optimizer.optimizer import Optimizer
for _ in range(100):
    Optimizer()._apply_optimize()
time.sleep(60)
"""
FILES = {
    "local.py": LOCAL,
    "steps_alone.py": STEPS_ALONE,
    "paddle/__init__.py": "in_dynamic_mode = lambda: True\n",
    "paddle/optimizer/__init__.py": "",
    "paddle/optimizer/optimizer.py": "class Optimizer:\n    def _apply_optimize(self): pass\n",
    "train.py": TRAIN,
    "torchrun": LAUNCHER,
    "launcher.py": LAUNCHER,
    "alone.py": ALONE,
    "own_group.py": OWN_GROUP,
}


@pytest.fixture
def command(job):
    """Makes two pods of a command in a folder with `FILES` and run.sh, which has the lines."""

    def make(words: list[str], *lines: str, **more: str) -> StandIns:
        pods = job(count=2, program=ENTRY, RUNTIME="launch", COMMAND=json.dumps(words), **more)
        folder = pods.folder.program("quick_start")
        for name, text in {**FILES, "run.sh": "\n".join(lines)}.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        return pods

    return make


SCRIPT = ["bash", "run.sh"]
PYTHON = sys.executable
TWO = "and the job's world is 2: 2 pods with 1 process each"


@pytest.mark.parametrize(
    ("words", "line", "settings", "says"),
    [
        (SCRIPT, f"{PYTHON} torchrun --standalone train.py", {}, f"has --standalone, {TWO}"),
        (SCRIPT, f"{PYTHON} torchrun --nnodes=1 train.py", {}, f"has --nnodes 1, {TWO}"),
        (SCRIPT, f"env -u PET_NNODES {PYTHON} launcher.py train.py", {}, "WORLD_SIZE=1, and"),
        (SCRIPT, f"PADDLE_TRAINERS_NUM=6 {PYTHON} alone.py 60", {}, f"{TWO}; set processes: 3"),
        (
            [PYTHON, "alone.py", "0"],
            "",
            {"METRICS": '{"world_size": "world_size: (.*)"}'},
            f"says that its world_size is 1, {TWO}. Each pod would train alone: ",
        ),
        (
            SCRIPT,
            f"{PYTHON} local.py",
            {},
            f"has RANK=1, beside RANK=0, {TWO}. Each pod would train",
        ),
        (
            SCRIPT,
            f"accelerate() {{ shift; {PYTHON} $1; }}; accelerate launch steps_alone.py",
            {},
            "has ever been connected to another pod: each of the 2 pods would train alone. ",
        ),
        ([PYTHON, "own_group.py"], "", {}, "reports world_size 1, and the job's world is 2"),
    ],
    ids=[
        "standalone",
        "one node",
        "a launcher",
        "too many",
        "its lines",
        "local",
        "steps",
        "its report",
    ],
)
def test_another_world_ends_the_job(command, words, line, settings, says) -> None:
    job = command(words, line, **settings)
    job.start()
    assert set(job.codes()) == {2}, job.logs()
    assert says in job.logs(), job.logs()


def test_a_script_that_starts_torchrun_trains_in_one_world(command) -> None:
    job = command(SCRIPT, f"{PYTHON} torchrun train.py", PROCESSES="2")
    job.start()
    said = job.end_with()
    assert all(f"rank {rank} of 4" in said for rank in range(4)), said
    assert "ever connected to another pod" not in said


@pytest.mark.parametrize("apart", ["", "true"])
def test_that_pods_never_met_is_said_at_the_end(command, apart) -> None:
    job = command([PYTHON, "alone.py", "0"], APART=apart)
    job.start()
    last = job.end_with().splitlines()[-1]
    alone = "the job is done, but trainer 1: none of its processes was ever connected to another"
    assert (alone in last) == (not apart) and "the job is done" in last, last

"""What a program may use up in its pod: memory, and process ids. The limits are the kernel's own,
of a control group that the test makes for a pod.
"""

import contextlib
import json
import re
import sys
from pathlib import Path

import pytest
from node_pods import ENTRY, StandIns
from paddle_node.agent import limits

pytestmark = pytest.mark.slow
CGROUPS = Path("/sys/fs/cgroup")


@pytest.fixture
def limited(job, tmp_path):
    """Makes a job of one pod that runs `lines`, in a control group with this limit."""
    groups = []

    def make(controller: str, limit: dict[str, str], lines: str, **settings: str) -> StandIns:
        parent = CGROUPS / controller if (CGROUPS / controller).is_dir() else CGROUPS
        group = parent / f"pod-{tmp_path.parent.name}-{tmp_path.name}"
        try:
            group.mkdir()
            groups.append(group)
            for name, value in limit.items():
                if (group / name).exists():
                    (group / name).write_text(value)
        except OSError as error:
            pytest.skip(f"no control group can be made here: {error}")
        pods = job(count=1, program=ENTRY, RUNTIME="launch", **settings)
        enter = f'echo $$ > {group}/cgroup.procs; exec "$@"'
        pods.command = ("/bin/sh", "-c", enter, "sh", *pods.command)
        pods.variables["COMMAND"] = json.dumps([sys.executable, "train.py"])
        (pods.folder.program("quick_start") / "train.py").write_text(lines)
        return pods

    yield make
    for group in groups:
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (group.parent / "cgroup.procs").write_text(pid)
        group.rmdir()


COUNTS = {
    "v2": ("memory.events", "low 0\nhigh 0\nmax {0}9\noom {0}\noom_kill {0}\n", "memory.max"),
    "v1": (
        "memory/memory.oom_control",
        "oom_kill_disable 0\nunder_oom 0\noom_kill {0}\n",
        "memory/memory.limit_in_bytes",
    ),
    "v1 before Linux 4.13": ("memory/memory.failcnt", "{0}\n", "memory/memory.limit_in_bytes"),
}


@pytest.mark.parametrize("counts", COUNTS)
def test_the_kernels_counts_are_read_where_a_container_has_them(tmp_path, counts):
    """In a container, its own control group is what is mounted at /sys/fs/cgroup."""
    count, text, limit = COUNTS[counts]
    root = tmp_path / "sys/fs/cgroup"
    for name in (count, limit):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
    if counts != "v2":
        (root / "memory/memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\n")
    (root / limit).write_text("2147483648\n")
    (root / count).write_text(text.format(2))
    memory = limits.Memory({"PADDLE_NODE_ROOT": str(tmp_path)})
    assert memory.describe_shortage(True) == ""
    (root / count).write_text(text.format(3))
    assert memory.describe_shortage(True) == "out of memory at 2,048 MiB (raise resources.memory)"
    # A refusal is not yet a kill; a kill may have hit a child of what ended.
    assert bool(memory.describe_shortage(False)) is ("failcnt" not in count)
    memory.mark()
    assert memory.describe_shortage(True) == ""


EATS = """
import time
from pathlib import Path
print("eats", flush=True)
eaten = bytearray(600 << 20)
for place in range(0, len(eaten), 4096):
    eaten[place] = 1
"""


def test_a_kill_for_lack_of_memory_is_named(limited):
    memory = {"memory.limit_in_bytes": "300M", "memory.max": "300M", "memory.swap.max": "0"}
    pods = limited("memory", memory, EATS, ATTEMPTS="1")
    pods.start()
    pods.end_with(137)
    sentence = (
        "trainer 0 ended with 137 (SIGKILL), out of memory at 300 MiB (raise resources.memory), in "
        "job-0.job"
    )
    assert pods.attempts()[0]["cause"] == sentence
    assert sentence in pods.log(0)


TAKES = """
import os, sys, time
if os.environ["PADDLE_NODE_ATTEMPT"] == "2":
    sys.exit()
print("takes", flush=True)
while True:
    try:
        os.fork()
    except OSError:
        pass
"""


def test_a_program_that_takes_all_process_ids_ends_its_attempt_and_not_the_pod(limited):
    """Each of its processes makes more, also while they are killed; the lease needs threads."""
    pods = limited("pids", {"pids.max": "200"}, TAKES, LEASE="9")
    pods.start()
    pods.wait_for(0, r"\] takes")
    pods.end_with(0)
    first, second = pods.attempts()
    assert first["kind"] == "program" and second["cause"] == "done"
    assert re.fullmatch(
        r"the program took all process ids of this pod, \d+ for itself, in job-0.job",
        first["cause"],
    )

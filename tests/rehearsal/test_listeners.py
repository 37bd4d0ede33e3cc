"""Each server that a command starts on this machine, found by what listens while it runs: it is on
a loopback address and refuses a stranger, or it is Paddle's, which takes no key, and the command
names its ports.

Whose server it is says the port: Paddle's are of the range that a rehearsal names. What a rank of
the program listens at is only looked at: gloo's handshake ends if a stranger comes first. The
tunnel's and the inspection pod's have their tests in tests/operations.
"""

import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import yaml

sys.path.append(str(Path(__file__).parents[1] / "operations"))

from listeners import Server, ask_as_strangers, is_refused, listeners

pytestmark = pytest.mark.slow
PROJECT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-P", "-m", "paddle_aws.operations.main")
NAMED = re.compile(r"of this machine without a key, at a port (.*?):")
PROGRAM = """
import time
import paddle
import paddle.distributed as dist
dist.init_parallel_env()
for step in range(1, 5):
    time.sleep(1)
    print(f"step {step} loss {1 / step}", flush=True)
open("output/model", "w").write("x")
"""


def watch(process: "subprocess.Popen[str]", until: float = 400) -> dict[Server, set[int]]:
    """Returns each server of a running command, and what it answered to strangers."""
    seen: dict[Server, set[int]] = {}
    begun = time.monotonic()
    while process.poll() is None and time.monotonic() - begun < until:
        for server, is_rank in listeners(process.pid).items():
            if server in seen:
                continue
            seen[server] = set()
            if server[0].startswith("127.") and not is_rank:
                seen[server] = ask_as_strangers(server)
        time.sleep(0.05)
    return seen


def start(folder: Path, *words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*COMMAND, *words], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def check(seen: dict[Server, set[int]], said: str) -> None:
    ports = " ".join(NAMED.findall(" ".join(said.split())))
    named = re.findall(r"from (\d+) to (\d+)", ports)
    paddles = {port for first, last in named for port in range(int(first), int(last) + 1)}
    for (address, port), statuses in seen.items():
        assert address.startswith("127.") or port in paddles, (address, port, said)
        assert port in paddles or is_refused(statuses), (address, port, statuses)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "sample").write_text("one\ntwo\n")
    job = {
        "name": "mine",
        "trainers": 2,
        "paddle": "2.6",
        "program": {"folder": "."},
        "command": "python -m paddle.distributed.launch train.py",
        "data": {"source": "sample"},
        "metrics": {"step": r"step (\d+)", "loss": r"loss ([\d.]+)"},
        "resources": {"cpu": "1", "memory": "2Gi"},
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    return tmp_path


def test_a_rehearsal_and_a_board_of_it(job: Path) -> None:
    with start(job, "rehearse", "job.yaml") as process:
        seen = watch(process)
        said = process.stdout.read() if process.stdout else ""
    assert process.returncode == 0 and len(seen) > 2, said
    check(seen, said)
    with start(job, "board", "--no-browser") as board:
        assert board.stdout is not None
        while "http://" not in (line := board.stdout.readline()):
            assert line, "the board has ended"
        threading.Timer(5, board.send_signal, [signal.SIGINT]).start()
        seen = watch(board)
    assert len(seen) == 1
    check(seen, "")


@pytest.mark.long
def test_a_storm(job: Path) -> None:
    with start(job, "storm", "job.yaml", "--runs", "1", "--no-shrink") as process:
        seen = watch(process)
        said = process.stdout.read() if process.stdout else ""
    assert len(seen) > 2, said
    check(seen, said)


@pytest.mark.long
def test_a_rehearsal_with_the_deploy_and_parameter_servers(tmp_path: Path) -> None:
    """As `make rehearse` runs it: the emulated AWS account is among the servers."""
    words = (
        "--config",
        PROJECT / "cluster.yaml",
        "--set",
        "passes=1",
        "--job",
        PROJECT / "job.yaml",
    )
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "paddle_aws.rehearsal", *words], cwd=tmp_path,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as process:  # fmt: skip
        seen = watch(process)
        said = process.stdout.read() if process.stdout else ""
    assert process.returncode == 0 and len(seen) > 2, said
    check(seen, said)

"""Each server that a command starts on this machine, found by what listens while it runs: it is on
a loopback address and refuses a stranger, or it is Paddle's, which takes no key, and the command
names its ports.

A stranger is a request without a secret, as another user of the machine and a web page send it.
Whose server it is says the port: Paddle's are of the range that a rehearsal names. What a rank of
the program listens at is only looked at: gloo's handshake ends if a stranger comes first.
"""

import http.client
import re
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.slow
PROJECT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-P", "-m", "paddle_aws.operations.main")
NAMED = re.compile(r"of this machine without a key, at a port from (\d+) to (\d+)")
LISTENS = "0A"
STRANGERS: tuple[dict[str, str], ...] = (
    {}, {"Origin": "http://attacker.example"}, {"Host": "attacker.example"}
)  # fmt: skip
Server = tuple[str, int]
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


def processes(top: int) -> Iterator[int]:
    """Yields a process and all below it."""
    parents: dict[int, list[int]] = {}
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(place.name))
    waiting = [top]
    while waiting:
        yield (process := waiting.pop())
        waiting += parents.get(process, [])


def listeners(top: int) -> dict[Server, bool]:
    """Returns the addresses at which a process and those below it listen, and whether it is a rank
    of the program.
    """
    sockets: dict[str, bool] = {}
    for process in processes(top):
        with suppress(OSError):
            is_rank = b"train.py\0" in Path(f"/proc/{process}/cmdline").read_bytes()
            for descriptor in Path(f"/proc/{process}/fd").iterdir():
                with suppress(OSError):
                    sockets[str(descriptor.readlink())] = is_rank
    found = {}
    for version in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{version}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == LISTENS and (socket := f"socket:[{words[9]}]") in sockets:
                host, port = words[1].split(":")
                raw = b"".join(bytes.fromhex(host[n : n + 8])[::-1] for n in range(0, len(host), 8))
                address = IPv4Address(raw) if len(raw) == 4 else IPv6Address(raw)
                name = str(getattr(address, "ipv4_mapped", None) or address)
                found[name, int(port, 16)] = sockets[socket]
    return found


def answer(server: Server, method: str, headers: dict[str, str]) -> int:
    """Returns the status that a stranger gets; 0: no answer in HTTP."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for connection in (
        http.client.HTTPConnection(*server, timeout=3),
        http.client.HTTPSConnection(*server, timeout=3, context=context),
    ):
        with suppress(OSError, http.client.HTTPException):
            connection.request(method, "/", b"{}" if method == "POST" else None, headers)
            return connection.getresponse().status
        connection.close()
    return 0


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
                seen[server] = {
                    answer(server, method, headers)
                    for method in ("GET", "POST", "DELETE")
                    for headers in STRANGERS
                }
        time.sleep(0.05)
    return seen


def start(folder: Path, *words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*COMMAND, *words], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def check(seen: dict[Server, set[int]], said: str) -> None:
    named = NAMED.findall(" ".join(said.split()))
    paddles = {port for first, last in named for port in range(int(first), int(last) + 1)}
    for (address, port), statuses in seen.items():
        assert address.startswith("127.") or port in paddles, (address, port, said)
        assert port in paddles or not {code for code in statuses if 200 <= code < 400}, (
            address, port, statuses,
        )  # fmt: skip


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

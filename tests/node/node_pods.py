"""Pods of a test: real processes on loopback addresses of their own, with what a Job's controller would give them."""

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from paddle_node import durable
from paddle_node.contract import JobFolder

from rehearsal.pods.addresses import AddressBlock


class Pods:
    """N pods of one job on one folder. `end` leaves no process."""

    def __init__(
        self,
        volume: Path,
        count: int = 3,
        run: str = "run-1",
        stand_in: dict | None = None,
        program: Path | None = None,
        api=None,
        interpreter: str = sys.executable,
        **variables: str,
    ):
        self.block = AddressBlock()
        self.volume, self.count, self.run = volume, count, run
        self.folder = JobFolder(volume / "jobs/job")
        self.variables = variables
        self.own: dict[str, str] = {}
        """Variables of the pods that start from now on, by their whole names."""
        self.stand_in = {"passes": 2, "steps": 4, **(stand_in or {})}
        self.program = program or Path(__file__).with_name("stand_in.py")
        self.interpreter = interpreter
        self.api = api
        self.replaced: Counter[int] = Counter()
        self.pods: dict[int, subprocess.Popen[bytes]] = {}
        self._lives = itertools.count()
        self._all: list[subprocess.Popen[bytes]] = []
        self.scratch = volume / f"scratch-{run}"
        self.scratch.mkdir(parents=True, exist_ok=True)
        self.hosts = self.scratch / "hosts.json"
        self.hosts.write_text("{}")
        self.folder.program("quick_start").mkdir(parents=True, exist_ok=True)
        for index in range(count):
            shard = self.folder.shard(index)
            if not shard.exists():
                shard.mkdir(parents=True)
                (shard / "part-00000").write_text("a record\n")

    def address(self, index: int) -> str:
        """With pod-list, a replacement gets a new address, as it would in a cluster."""
        return f"{self.block.prefix}.{index + 1 + 8 * self.replaced[index]}"

    def listed(self, index: int, phase: str) -> None:
        """What the API server says of the pod, where there is one."""
        if self.api:
            self.api.put(self.pod_name(index), self.address(index), phase, uid=self.run)

    def pod_name(self, index: int) -> str:
        return f"job-{index}-{self.replaced[index]}"

    def environment(self, index: int) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(Path(__file__).parents[2] / "trainer_image"),
            "JOB_NAME": "job",
            "JOB_PATH": str(self.volume / "jobs"),
            "TRAIN_CONFIG_DIR": "quick_start",
            "CONF_PADDLE_GRADIENT_NUM": str(self.count),
            "JOB_COMPLETION_INDEX": str(index),
            "POD_NAME": self.pod_name(index),
            "POD_IP": self.address(index),
            "PADDLE_NODE_RUN_ID": self.run,
            "PADDLE_NODE_SERVICE": "job",
            "PADDLE_NODE_PASSES": str(self.stand_in["passes"]),
            "PADDLE_NODE_PEER_DEADLINE": "30",
            "PADDLE_NODE_GRACE": "600",
            "PADDLE_NODE_HOSTS": str(self.hosts),
            "STAND_IN": json.dumps(self.stand_in),
            # With pod-list what the tutorials' manifests say, and no more: no index, no service, no run id.
            **(dict.fromkeys(("JOB_COMPLETION_INDEX", "PADDLE_NODE_RUN_ID", "PADDLE_NODE_SERVICE"), "") if self.api else {}),
            **({"PADDLE_NODE_DISCOVERY": "pod-list", **self.api.environment} if self.api else {}),
            **{f"PADDLE_NODE_{name}": value for name, value in self.variables.items()},
            **self.own,
        }

    def name(self, index: int) -> None:
        """DNS knows the pod from now on."""
        hosts = json.loads(self.hosts.read_text())
        durable.write(self.hosts, json.dumps(hosts | {f"job-{index}.job": self.address(index)}))

    def start(self, *indexes: int, named: bool = True, unread: bool = False) -> None:
        for index in indexes or range(self.count):
            if named:
                self.name(index)
            life = self.scratch / f"pod-{index}-{next(self._lives)}"
            root = life / "root"
            (root / "home/paddle").mkdir(parents=True)
            if self.api:
                self.replaced[index] += index in self.pods
                self.api.lay_account(root)
                self.listed(index, "Running")
            (root / "jobs").symlink_to(self.volume / "jobs")
            with (life / "log").open("wb") as log:
                pod = subprocess.Popen(
                    [self.interpreter, self.program],
                    env={**self.environment(index), "PADDLE_NODE_ROOT": str(root), "JOB_PATH": "/jobs"},
                    cwd=root,
                    stdout=subprocess.PIPE if unread else log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            pod.life = life
            self.pods[index] = pod
            self._all.append(pod)

    def kill(self, index: int) -> None:
        """kill -9 of PID 1: the container and all in it is gone."""
        self.pods[index].kill()
        self.pods[index].wait()
        self.listed(index, "Failed")

    def terminate(self, *indexes: int) -> None:
        for index in indexes or range(self.count):
            self.pods[index].send_signal(signal.SIGTERM)

    def child(self, index: int, role: str) -> int:
        """Process id of the present pserver ("server") or trainer of a pod, as the agent tells it."""
        name = "pserver" if role == "server" else "trainer"
        self.wait_for(index, rf"attempt \d+: {name} \d+ is process \d+")
        return int(re.findall(rf"attempt \d+: {name} \d+ is process (\d+)", self.log(index))[-1])

    def log(self, index: int) -> str:
        return (self.pods[index].life / "log").read_text()

    def logs(self) -> str:
        return "\n".join(f"== {pod.life.name} -> {pod.poll()}\n{(pod.life / 'log').read_text()}" for pod in self._all)

    def wait_for(self, index: int, pattern: str, seconds: float = 90) -> None:
        self.wait_until(lambda: re.search(pattern, self.log(index)), seconds, f"pod {index} never said {pattern!r}\n")

    def wait_until(self, condition: Callable[[], object], seconds: float = 90, what: str = "") -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, what + self.logs()
            time.sleep(0.02)

    def start_and_hold(self) -> None:
        """Returns when all trainers are where `holds` says: [attempt, pass, a step or "start"], or trainer 0 in its "save"."""
        self.start()
        for index in [0] if self.stand_in["holds"][2] == "save" else range(self.count):
            self.wait_for(index, r"waits in (step|the (save|start))")

    def release(self) -> None:
        (self.folder.root / "goes-on").touch()

    def codes(self, seconds: float = 120) -> list[int]:
        """All exit codes; fails with the logs when a pod does not end."""
        self.wait_until(lambda: None not in [pod.poll() for pod in self.pods.values()], seconds, "a pod does not end\n")
        return [self.pods[index].returncode for index in sorted(self.pods)]

    def end_with(self, *codes: int) -> None:
        assert tuple(self.codes()) == codes, self.logs()
        assert not re.search("^Traceback", self.logs(), re.MULTILINE)  # Of an agent: the workers' lines have a prefix.

    def end_undisturbed(self) -> None:
        """All end with 0, and each server holds what it should: no step was lost or done twice."""
        self.end_with(*[0] * self.count)
        expected = self.stand_in["passes"] * self.stand_in["steps"] * sum(range(1, self.count + 1))
        values = json.loads((self.folder.pass_dir(self.stand_in["passes"] - 1) / "values").read_text())
        assert values == [expected] * self.count, self.logs()

    def attempts(self) -> list[dict]:
        return json.loads((self.folder.run_state / "attempts.json").read_text())["attempts"]

    def end(self) -> None:
        for pod in self._all:
            if pod.poll() is None:
                pod.kill()
                pod.wait()
        self.block.__exit__()


def runs(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False

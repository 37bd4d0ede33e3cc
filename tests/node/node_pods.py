"""A test's pods: real processes, each on its own loopback address, with what a Job's controller
would give them.
"""

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import ClassVar

from paddle_node import contract
from paddle_node.volume import durable
from paddle_node.volume.job_folder import JobFolder

from paddle_aws.rehearsal.pods.addresses import AddressBlock

PROJECT = Path(__file__).resolve().parents[2]
IMAGE = PROJECT / "trainer_image"
ENTRY = IMAGE / "start_paddle.py"
GOOD = {
    "JOB_NAME": "job",
    "TRAIN_CONFIG_DIR": "quick_start",
    "CONF_PADDLE_GRADIENT_NUM": "3",
    "JOB_COMPLETION_INDEX": "2",
    "PADDLE_NODE_RUN_ID": "uid",
    "PADDLE_NODE_SERVICE": "job",
    "POD_IP": "10.0.0.3",
}
"""The minimal settings of the third pod of three."""


class Pods(AbstractContextManager["Pods"]):
    """The pods of one run of a job on one volume. On exit it leaves no process behind."""

    command: Sequence[str | Path] = (sys.executable, ENTRY)
    path = os.environ["PATH"]
    program: Path
    """The program that `split` copies to the volume."""
    program_name = "quick_start"
    defaults: ClassVar[dict[str, str]] = {}
    """Pod settings that `variables` may override; the names of both lack the prefix
    PADDLE_NODE_.
    """

    def __init__(
        self, place: Path, count: int = 3, run: str = "run-1", api=None, **variables: str
    ) -> None:
        self.place, self.count, self.run_id, self.api = place, count, run, api
        self.variables = self.defaults | variables
        self.folder = JobFolder(place / "volume/job")
        self.block = AddressBlock()
        # The rendezvous of Paddle's collective mode listens on every address of the machine, so
        # each job needs its own port, and a stranger may do so on the usual ones.
        self.port = contract.FIRST_PORT + self.block.port_shift
        self.control_port = contract.CONTROL_PORT + self.block.port_shift
        self.replaced: Counter[int] = Counter()
        self.pods: dict[int, subprocess.Popen[bytes]] = {}
        self._lives = itertools.count()
        self._all: list[subprocess.Popen[bytes]] = []
        self.scratch = place / f"scratch-{run}"
        self.hosts = self.scratch / "hosts.json"
        self.folder.root.mkdir(parents=True, exist_ok=True)
        self.scratch.mkdir()
        self.hosts.write_text("{}")

    def address(self, index: int) -> str:
        """The pod's address. With pod-list, a replacement gets a new one, as it would in a
        cluster.
        """
        return f"{self.block.prefix}.{index + 1 + 8 * self.replaced[index]}"

    def listed(self, index: int, phase: str) -> None:
        """Sets the pod's phase in the API server, if the test has one."""
        if self.api:
            self.api.put_pod(self.pod_name(index), self.address(index), phase, uid=self.run_id)

    def pod_name(self, index: int) -> str:
        return f"job-{index}-{self.replaced[index]}"

    def environment(self, index: int, **more: str) -> dict[str, str]:
        return {
            "PATH": self.path,
            "JOB_NAME": "job",
            "JOB_PATH": "/volume",
            "TRAIN_CONFIG_DIR": self.program_name,
            "CONF_PADDLE_GRADIENT_NUM": str(self.count),
            "CONF_PADDLE_PORT": str(self.port),
            "JOB_COMPLETION_INDEX": str(index),
            "POD_NAME": self.pod_name(index),
            "POD_IP": self.address(index),
            "PADDLE_NODE_RUN_ID": self.run_id,
            "PADDLE_NODE_SERVICE": "job",
            "PADDLE_NODE_HOSTS": str(self.hosts),
            "PADDLE_NODE_CONTROL_PORT": str(self.control_port),
            # With pod-list, only what the tutorials' manifests set: no index, no service, no run
            # id.
            **(
                dict.fromkeys(
                    ("JOB_COMPLETION_INDEX", "PADDLE_NODE_RUN_ID", "PADDLE_NODE_SERVICE"), ""
                )
                if self.api
                else {}
            ),
            **({"PADDLE_NODE_DISCOVERY": "pod-list", **self.api.environment} if self.api else {}),
            **{f"PADDLE_NODE_{name}": value for name, value in (self.variables | more).items()},
        }

    def split(self, source: Path, hold_out: float = 0.1) -> None:
        environ = {
            "PATH": os.environ["PATH"],
            "OUT_DIR": str(self.folder.root),
            "SPLIT_COUNT": str(self.count),
            "DATA_SOURCE": str(source),
            "DATA_FORMAT": "lines",
            "HOLD_OUT": str(hold_out),
            "SHUFFLE_SEED": "1",
            "PROGRAM_FROM": str(self.program),
        }
        subprocess.run(
            [self.command[0], IMAGE / "split_data.py"], env=environ, check=True, capture_output=True
        )

    def name(self, index: int) -> None:
        """Adds the pod to DNS."""
        hosts = json.loads(self.hosts.read_text())
        durable.write(self.hosts, json.dumps(hosts | {f"job-{index}.job": self.address(index)}))

    def root(self, life: str) -> Path:
        """Makes a container's root folder, with the volume mounted in it."""
        root = self.scratch / life / "root"
        (root / "home/paddle").mkdir(parents=True)
        (root / "volume").symlink_to(self.place / "volume")
        (root / "sys").symlink_to("/sys")
        return root

    def start(
        self,
        *indexes: int,
        named: bool = True,
        unread: bool = False,
        arguments: Sequence[str] = (),
        **more: str,
    ) -> None:
        """Starts these pods, or all of a run; `more` are settings in the form of `variables`."""
        if not indexes:
            self.pods = {}
        for index in indexes or range(self.count):
            if named:
                self.name(index)
            root = self.root(f"pod-{index}-{next(self._lives)}")
            if self.api:
                self.replaced[index] += index in self.pods
                self.api.lay_account(root)
                self.listed(index, "Running")
            with (root.parent / "log").open("wb") as log:
                pod = subprocess.Popen(
                    [*self.command, *arguments],
                    env=self.environment(index, **more) | {"PADDLE_NODE_ROOT": str(root)},
                    cwd=root,
                    stdout=subprocess.PIPE if unread else log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            pod.life = root.parent
            self.pods[index] = pod
            self._all.append(pod)

    def kill(self, index: int) -> None:
        """Kills PID 1 with SIGKILL, which ends the container and everything in it."""
        self.pods[index].kill()
        self.pods[index].wait()
        self.listed(index, "Failed")

    def terminate(self, *indexes: int) -> None:
        for index in indexes or range(self.count):
            self.pods[index].send_signal(signal.SIGTERM)

    def child(self, index: int, role: str) -> int:
        """Process id of a pod's current pserver or trainer, as the agent logs it."""
        said = rf"attempt \d+: {role} \d+ is process (\d+)"
        self.wait_for(index, said)
        return int(re.findall(said, self.log(index))[-1])

    def log(self, index: int) -> str:
        return (self.pods[index].life / "log").read_text(errors="replace")

    def logs(self) -> str:
        each = ((pod, (pod.life / "log").read_text(errors="replace")) for pod in self._all)
        return "\n".join(f"== {pod.life.name} -> {pod.poll()}\n{log}" for pod, log in each)

    def wait_for(self, index: int, pattern: str) -> None:
        self.wait_until(
            lambda: re.search(pattern, self.log(index)),
            what=f"pod {index} never said {pattern!r}\n",
        )

    def wait_until(
        self, condition: Callable[[], object], seconds: float = 300, what: str = ""
    ) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, what + self.logs()
            time.sleep(0.02)

    def release(self) -> None:
        """Lets every process continue that waits where the test holds it."""
        (self.place / "released").touch()

    def codes(self) -> list[int]:
        """Returns all exit codes; fails with the logs if a pod does not end."""
        self.wait_until(
            lambda: None not in [pod.poll() for pod in self.pods.values()],
            600,
            "a pod does not end\n",
        )
        return [self.pods[index].returncode for index in sorted(self.pods)]

    def end_with(self, *codes: int) -> str:
        """Asserts that the pods end with `codes`, or all with 0. Returns their logs."""
        assert self.codes() == list(codes or [0] * self.count), self.logs()
        assert not re.search(
            "^Traceback", self.logs(), re.MULTILINE
        )  # An agent's: the workers' lines have a prefix.
        return "".join(map(self.log, self.pods))

    def attempts(self) -> list[dict]:
        return json.loads((self.folder.run_state / "attempts.json").read_text())["attempts"]

    def __exit__(self, *_: object) -> None:
        for pod in self._all:
            if pod.poll() is None:
                pod.kill()
                pod.wait()
        self.block.__exit__()


class StandIns(Pods):
    """Pods that train as stand_in.py or `program` does, on data made by hand."""

    defaults: ClassVar[dict[str, str]] = {"PEER_DEADLINE": "30", "GRACE": "600"}

    def __init__(
        self, place: Path, *args, stand_in: dict | None = None, program: Path | None = None, **more
    ) -> None:
        super().__init__(place, *args, **more)
        self.command = (sys.executable, program or Path(__file__).with_name("stand_in.py"))
        self.stand_in = {
            "passes": 2,
            "steps": 4,
            "released": str(place / "released"),
            **(stand_in or {}),
        }
        self.folder.program("quick_start").mkdir(parents=True, exist_ok=True)
        for shard in map(self.folder.shard, range(self.count)):
            if not shard.exists():
                shard.mkdir(parents=True)
                (shard / "part-00000").write_text("a record\n")

    def environment(self, index: int, **more: str) -> dict[str, str]:
        own = {"PYTHONPATH": str(IMAGE), "STAND_IN": json.dumps(self.stand_in)}
        return own | super().environment(index, **{"PASSES": str(self.stand_in["passes"]), **more})

    def start_and_hold(self) -> None:
        """Starts all pods; waits until all trainers, or 0 in its "save", are at `holds`: [attempt,
        pass, a step or "start"].
        """
        self.start()
        for index in [0] if self.stand_in["holds"][2] == "save" else range(self.count):
            self.wait_for(index, r"waits in (step|the (save|start))")

    def end_undisturbed(self) -> None:
        """Asserts that all pods end with 0 and each server holds the right value: no step was lost
        or done twice.
        """
        self.end_with()
        expected = self.stand_in["passes"] * self.stand_in["steps"] * sum(range(1, self.count + 1))
        values = json.loads(
            (self.folder.pass_dir(self.stand_in["passes"] - 1) / "values").read_text()
        )
        assert values == [expected] * self.count, self.logs()


def runs(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False

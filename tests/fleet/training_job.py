"""A whole job on a folder: the real split, pods that run the image's own entry point, the real evaluation."""

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from paddle_node.contract import JobFolder

from rehearsal.pods.addresses import AddressBlock

PROJECT = Path(__file__).resolve().parents[2]
IMAGE = PROJECT / "trainer_image"
EXAMPLES = PROJECT / "examples"
SPLIT = IMAGE / "split_data.py"
PADDLE = PROJECT / ".venv-image/bin/python"


class TrainingJob:
    """`pods` trainers of `program`; every pod on a loopback address of its own. `end` leaves no process."""

    def __init__(
        self, place: Path, program: str | Path = "quick_start", pods: int = 3, binaries: Path | None = None, **variables: str
    ) -> None:
        self.place, self.pods = place, pods
        self.program = EXAMPLES / program
        self.variables = variables
        self._path = ":".join(str(folder) for folder in (binaries, PADDLE.parent, os.environ["PATH"]) if folder)
        self.folder = JobFolder(place / "volume" / "job")
        self.folder.root.mkdir(parents=True)
        self._block = AddressBlock()
        self._network = self._block.prefix
        _, second, third = map(int, self._network.split("."))
        self.port = 10_000 + (second * 256 + third) * 16
        self._hosts = place / "hosts.json"
        self.add_pods(pods)
        self._runs, self._copies = itertools.count(), itertools.count()
        self.processes: list[subprocess.Popen[bytes]] = []
        self.logs: list[Path] = []

    def add_pods(self, pods: int) -> None:
        """DNS knows as many from now on, and so many are started."""
        self.pods = pods
        self._hosts.write_text(json.dumps({f"job-{i}.job": f"{self._network}.{i + 1}" for i in range(pods)}))

    def make_sample(self, *arguments: str) -> Path:
        file = self.place / "sample"
        own = self.program / "make_sample.py"
        subprocess.run(
            [sys.executable, own if own.exists() else EXAMPLES / "quick_start/make_sample.py", file, *arguments], check=True
        )
        return file

    def change(self, old: str, new: str) -> None:
        """From now on a copy of the program is trained whose `train.py` has `new` for its one `old`."""
        copy = self.place / f"changed-{next(self._copies)}" / self.program.name
        shutil.copytree(self.program, copy)
        self.program, train = copy, copy / "train.py"
        text = train.read_text()
        assert text.count(old) == 1
        train.write_text(text.replace(old, new))

    def at_each_record(self, statements: str) -> None:
        """The program's trainers do this, too, with each record: `seen` is how many a process has had.

        So a test is where it wants to be, on a busy machine and on an idle one.
        """
        head = "def sample(labelled):\n"
        count = "_seen = itertools.count(1)\nindex = os.environ.get('PADDLE_NODE_TRAINER_ID')\n\n\n"
        body = textwrap.indent(f"seen = next(_seen)\n{statements}\n", "    ")
        self.change(head, f"import itertools, os, signal, time\n\n{count}{head}{body}")

    def hold_at_record(self, number: int) -> None:
        """Each trainer waits there until `release`: whatever a test does meanwhile happens in the middle of that pass."""
        here = f"{str(self.place)!r}"
        self.at_each_record(
            f"if seen == {number}:\n"
            f"    open({here} + '/held-' + index, 'w').close()\n"
            f"    while not os.path.exists({here} + '/released'):\n"
            "        time.sleep(0.01)"
        )

    def wait_until_held(self) -> None:
        self.wait_until(lambda: len(list(self.place.glob("held-*"))) == self.pods)

    def release(self) -> None:
        (self.place / "released").touch()

    def split(self, source: Path, hold_out: float = 0.1, shards: int | None = None) -> None:
        environ = {
            "PATH": os.environ["PATH"],
            "OUT_DIR": str(self.folder.root),
            "SPLIT_COUNT": str(shards or self.pods),
            "DATA_SOURCE": str(source),
            "DATA_FORMAT": "lines",
            "HOLD_OUT": str(hold_out),
            "SHUFFLE_SEED": "1",
            "PROGRAM_FROM": str(self.program),
        }
        subprocess.run([PADDLE, SPLIT], env=environ, check=True, capture_output=True)

    def environment(self, index: int, **more: str) -> dict[str, str]:
        return {
            "PATH": self._path,
            "JOB_NAME": "job",
            "JOB_PATH": "/volume",
            "TRAIN_CONFIG_DIR": self.program.name,
            "CONF_PADDLE_GRADIENT_NUM": str(self.pods),
            "JOB_COMPLETION_INDEX": str(index),
            "POD_NAME": f"job-{index}-x",
            "POD_IP": f"{self._network}.{index + 1}",
            "PADDLE_NODE_RUN_ID": "run",
            "PADDLE_NODE_SERVICE": "job",
            "PADDLE_NODE_HOSTS": str(self._hosts),
            "PADDLE_NODE_PEER_DEADLINE": "180",
            "PADDLE_NODE_SEED": "1",
            # A rendezvous of Paddle's collective mode listens on every address of the machine: jobs must differ in the port.
            "CONF_PADDLE_PORT": str(self.port),
            **{f"PADDLE_NODE_{name}": value for name, value in (self.variables | more).items()},
        }

    def start(self, arguments: Sequence[str] = (), **more: str) -> None:
        """All pods, each with a root folder of its own and the volume mounted in it."""
        run = next(self._runs)
        self.processes, self.logs = [], []
        for index in range(self.pods):
            root = self.place / f"pod-{run}-{index}"
            (root / "home/paddle").mkdir(parents=True)
            (root / "volume").symlink_to(self.folder.root.parent)
            self.logs.append(root / "log")
            with (root / "log").open("wb") as log:
                environ = self.environment(index, **more) | {"PADDLE_NODE_ROOT": str(root)}
                command = [PADDLE, IMAGE / "start_paddle.py", *arguments]
                self.processes.append(subprocess.Popen(command, env=environ, cwd=root, stdout=log, stderr=log))

    def wait(self, seconds: float = 600) -> list[int]:
        """Every pod's exit code."""
        deadline = time.monotonic() + seconds
        for process in self.processes:
            process.wait(max(0.1, deadline - time.monotonic()))
        return [process.returncode for process in self.processes]

    def ends(self, *codes: int) -> str:
        """What the pods said, if they end with `codes`, or all with 0."""
        assert self.wait() == list(codes or [0] * self.pods), self.said()
        return "".join(log.read_text(errors="replace") for log in self.logs)

    def run(self, *codes: int, **more: str) -> str:
        """Starts all pods; see `ends`."""
        self.start(**more)
        return self.ends(*codes)

    def wait_until(self, condition: Callable[[], object], seconds: float = 600) -> None:
        deadline = time.monotonic() + seconds
        while True:
            going_on = any(process.poll() is None for process in self.processes) and time.monotonic() < deadline
            if condition():
                return
            assert going_on, self.said()
            time.sleep(0.05)

    def child(self, pod: int, role: str) -> int:
        """Process id of a pod's newest pserver or trainer, as its agent says."""
        text = rf"{role} {pod} is process (\d+)"
        self.wait_until(lambda: re.search(text, self.logs[pod].read_text(errors="replace")))
        return int(re.findall(text, self.logs[pod].read_text(errors="replace"))[-1])

    def said(self) -> str:
        return "\n".join(f"== pod {index}\n{log.read_text(errors='replace')[-3000:]}" for index, log in enumerate(self.logs))

    def evaluate(self) -> subprocess.CompletedProcess[str]:
        root = self.place / "evaluation"
        root.mkdir(exist_ok=True)
        if not (root / "volume").exists():
            (root / "volume").symlink_to(self.folder.root.parent)
        environ = self.environment(0) | {"PADDLE_NODE_ROOT": str(root)}
        return subprocess.run([PADDLE, IMAGE / "evaluate_pass.py"], env=environ, capture_output=True, text=True, cwd=root)

    def judged(self) -> dict:
        """What `evaluate` has found."""
        result = self.evaluate()
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    def predict(self) -> subprocess.CompletedProcess[str]:
        """The exported model's own lines, where nothing but Paddle is."""
        inference = self.folder.output / "inference"
        lines = (inference / "predict.py").read_text()
        assert len(lines.splitlines()) == 5 and "paddle_node" not in lines
        return subprocess.run([PADDLE, "-c", lines], env={}, cwd=inference, capture_output=True, text=True)

    def probe(self, pod: int, stall: str) -> subprocess.CompletedProcess[str]:
        """What Kubernetes runs in a pod of the first start."""
        environ = self.environment(pod) | {"PADDLE_NODE_ROOT": str(self.place / f"pod-0-{pod}"), "PADDLE_NODE_STALL": stall}
        command = [PADDLE, "-m", "paddle_node.agent.health"]
        return subprocess.run(command, env=environ, capture_output=True, text=True, cwd=IMAGE)

    def records(self) -> list[int]:
        """Of each shard, as the manifest counts them."""
        shards = json.loads(self.folder.data_manifest.read_text())["shards"]
        return [sum(file["records"] for file in shard["files"]) for shard in shards]

    def metrics(self, trainer: int) -> list[dict]:
        return [json.loads(line) for line in self.folder.metrics(trainer).read_text().splitlines()]

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()
        self._block.__exit__()

"""A whole job on a folder: the real split, pods that run the image's own entry point, the real
evaluation.
"""

import itertools
import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import ClassVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "node"))
from node_pods import ENTRY, IMAGE, PROJECT, Pods

EXAMPLES = PROJECT / "examples"
PADDLE = PROJECT / ".venv-image/bin/python"
HOLD = """import itertools, os, signal, time

_seen = itertools.count(1)
index = os.environ.get("PADDLE_NODE_TRAINER_ID")


def hold():
    open(f"{place}/held-{{index}}", "w").close()
    while not os.path.exists("{place}/released"):
        time.sleep(0.01)


"""


class TrainingJob(Pods):
    """A job of `program` with `pods` trainers."""

    command = (PADDLE, ENTRY)
    defaults: ClassVar[dict[str, str]] = {"PEER_DEADLINE": "180", "SEED": "1"}

    def __init__(
        self,
        place: Path,
        program: str | Path = "quick_start",
        pods: int = 3,
        binaries: Path | None = None,
        **variables: str,
    ) -> None:
        super().__init__(place, pods, "run", **variables)
        self.program = EXAMPLES / program
        self.program_name = self.program.name
        self.path = ":".join(
            str(folder) for folder in (binaries, PADDLE.parent, os.environ["PATH"]) if folder
        )
        self._copies = itertools.count()

    def make_sample(self, *arguments: str) -> Path:
        file = self.place / "sample"
        own = self.program / "make_sample.py"
        subprocess.run(
            [
                sys.executable,
                own if own.exists() else EXAMPLES / "quick_start/make_sample.py",
                file,
                *arguments,
            ],
            check=True,
        )
        return file

    def change(self, old: str, new: str) -> None:
        """Replaces the program by a copy whose `train.py` has `new` in place of its only `old`."""
        copy = self.place / f"changed-{next(self._copies)}" / self.program.name
        shutil.copytree(self.program, copy)
        self.program, train = copy, copy / "train.py"
        text = train.read_text()
        assert text.count(old) == 1
        train.write_text(text.replace(old, new))

    def at_each_record(self, statements: str) -> None:
        """Makes the trainers also run `statements` at each record; `seen` is the number of records
        that the process has had.

        `hold()` waits there for `release`, so that a test stops at the same point on a busy machine
        and on an idle one.
        """
        head = "def sample(labelled):\n"
        body = textwrap.indent(f"seen = next(_seen)\n{statements}\n", "    ")
        self.change(head, f"{HOLD.format(place=str(self.place))}{head}{body}")

    def hold_at_record(self, number: int) -> None:
        """Makes each trainer wait there until `release`: what a test does meanwhile happens in the
        middle of that pass.
        """
        self.at_each_record(f"if seen == {number}: hold()")

    def wait_until_held(self, trainers: int | None = None) -> None:
        self.wait_until(lambda: len(list(self.place.glob("held-*"))) == (trainers or self.count))

    def run(self, *codes: int, **more: str) -> str:
        """Starts all pods; see `end_with`."""
        self.start(**more)
        return self.end_with(*codes)

    def evaluate(self) -> subprocess.CompletedProcess[str]:
        root = self.root(f"evaluation-{next(self._lives)}")
        environ = self.environment(0) | {"PADDLE_NODE_ROOT": str(root)}
        return subprocess.run(
            [PADDLE, IMAGE / "evaluate_pass.py"],
            env=environ,
            capture_output=True,
            text=True,
            cwd=root,
        )

    def judged(self) -> dict:
        """Asserts that `evaluate` succeeds. Returns its findings."""
        result = self.evaluate()
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    def predict(self, more: str = "") -> subprocess.CompletedProcess[str]:
        """Runs the exported model's own lines, followed by `more`, with nothing but Paddle."""
        inference = self.folder.output / "inference"
        lines = (inference / "predict.py").read_text()
        assert len(lines.splitlines()) == 5 and "paddle_node" not in lines
        return subprocess.run(
            [PADDLE, "-c", lines + more], env={}, cwd=inference, capture_output=True, text=True
        )

    def predict_records(self, *records: str) -> list[str]:
        """Returns what the example's predict.py says of raw records, with nothing but Paddle."""
        inference = self.folder.output / "inference"
        words = [PADDLE, inference / "program" / "predict.py", *records]
        done = subprocess.run(words, env={}, cwd=self.place, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    def probe(self, pod: int, stall: str) -> subprocess.CompletedProcess[str]:
        """Runs the probe that Kubernetes runs in a pod."""
        environ = self.environment(pod, STALL=stall) | {
            "PADDLE_NODE_ROOT": str(self.pods[pod].life / "root")
        }
        command = [PADDLE, "-m", "paddle_node.agent.health"]
        return subprocess.run(command, env=environ, capture_output=True, text=True, cwd=IMAGE)

    def records(self) -> list[int]:
        """The number of records in each shard, as the manifest counts them."""
        shards = json.loads(self.folder.data_manifest.read_text())["shards"]
        return [sum(file["records"] for file in shard["files"]) for shard in shards]

    def metrics(self, trainer: int) -> list[dict]:
        return [json.loads(line) for line in self.folder.metrics(trainer).read_text().splitlines()]

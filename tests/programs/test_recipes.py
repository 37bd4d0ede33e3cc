"""Training stacks that are known, by a job.yaml that says nothing of them: two pods to the end, and
again with a rank killed behind its second checkpoint, as people run it.

`make test-programs` runs these. The environment of PaddleFormers takes a minute to make, once, and
2 GB; each of its runs about 20 s on two busy cores.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
PADDLEFORMERS = PROJECT / "examples" / "paddleformers"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("PROGRAMS" not in os.environ, reason="make test-programs runs these"),
]
STEP = re.compile(r"- loss: ([\d.eE+-]+), learning_rate: ([\d.eE+-]+), global_step: (\d+),")


class Rehearsal:
    """`paddle-aws rehearse` of an example, in a folder of its own."""

    def __init__(self, example: Path, place: Path) -> None:
        shutil.copytree(example, place)
        self.place = place
        environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        # Beside the job's folder, which is the program's as well.
        self._log = place.with_name("rehearsal.log")
        self._output = self._log.open("w")
        self.process = subprocess.Popen(
            ["paddle-aws", "rehearse", "job.yaml", "--no-try"],
            cwd=place,
            env=environment,
            stdout=self._output,
            stderr=subprocess.STDOUT,
        )

    @property
    def said(self) -> str:
        return " ".join(self._log.read_text().split())

    @property
    def output(self) -> Path:
        return self.place / ".rehearsal" / "volume" / "llama" / "output"

    def wait_for(self, pattern: str, seconds: float = 600) -> Path:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if match := next(self.output.glob(pattern), None):
                return match
            assert self.process.poll() is None, self.said
            time.sleep(0.01)
        raise AssertionError(f"no {pattern} in {seconds} s: {self.said}")

    def kill_rank(self, rank: int) -> None:
        """Kills the process of that rank that this rehearsal started."""
        killed = 0
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                mine = (folder / "cwd").readlink().is_relative_to(self.place.resolve())
                command = (folder / "cmdline").read_bytes()
                environment = (folder / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            named = f"PADDLE_TRAINER_ID={rank}".encode() in environment
            if mine and named and b"paddleformers/cli/launcher.py" in command:
                os.kill(int(folder.name), signal.SIGKILL)
                killed += 1
        assert killed, "no process of that rank is there"

    def steps(self) -> list[dict[int, tuple[str, str]]]:
        """Waits for the end. Returns loss and learning rate by step, for each attempt of rank 0."""
        assert self.process.wait(300) == 0, self.said
        log = (self.output / "node_0" / "train.log").read_text(errors="replace")
        attempts = re.split(r"(?m)^---- .* ----$", log)[1:]
        return [
            {int(step): (loss, rate) for loss, rate, step in STEP.findall(attempt)}
            for attempt in attempts
        ]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[int, tuple[str, str]]:
    run = Rehearsal(PADDLEFORMERS, tmp_path_factory.mktemp("undisturbed") / "job")
    (steps,) = run.steps()
    assert list(steps) == list(range(1, 61))
    assert "recipe paddleformers (PaddleFormers 1.2.0): the command has" in run.said
    assert float(steps[60][0]) < float(steps[1][0]) - 0.5
    assert list(run.output.glob("model-*.safetensors"))
    return steps


@pytest.mark.parametrize("truncated", [False, True])
def test_paddleformers_resumes_at_the_undisturbed_runs_step_loss_and_rate(
    undisturbed: dict[int, tuple[str, str]], tmp_path: Path, truncated: bool
) -> None:
    run = Rehearsal(PADDLEFORMERS, tmp_path / "job")
    run.wait_for("attempts/*-1/output/checkpoint-20/scheduler.pdparams")
    run.wait_for("attempts/*-1/output/checkpoint-20/rng_state_1.pth")
    run.kill_rank(1)
    saved = run.output.glob("attempts/*-1/output/checkpoint-*/scheduler.pdparams")
    newest = max((path.parent for path in saved), key=lambda path: int(path.name[11:]))
    if truncated:
        (optimizer,) = newest.glob("optimizer-*.safetensors")
        os.truncate(optimizer, optimizer.stat().st_size // 2)
    first, second = run.steps()
    resumed = int(newest.name[11:]) - (10 if truncated else 0)
    assert resumed >= 10 and list(second) == list(range(resumed + 1, 61)), run.said
    assert second == {step: undisturbed[step] for step in second}
    assert set(first) < set(undisturbed)
    set_aside = run.output / "not-whole" / "attempt-2" / newest.name
    assert set_aside.is_dir() == truncated, run.said

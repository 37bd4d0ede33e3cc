"""Makes docs/board.png and docs/board-dark.png from a real run: rehearses the quick start on more
data, kills a trainer with SIGKILL while it trains, and photographs the board with Chromium.

    . .venv/bin/activate && python docs/board_pictures.py     # about two minutes
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

PROJECT = Path(__file__).parents[1]
QUICK_START = PROJECT / "examples/quick_start"
COMMAND = [sys.executable, "-m", "paddle_aws.operations.main"]
LINES, PASSES, KILLED_AT = 60_000, 5, 1000
"""Lines of the sample, passes, and the step at which trainer 1 is killed."""
SCHEMES = {"board.png": 1, "board-dark.png": 0}
"""Chromium's numbers of the preferred colour scheme."""
BROWSER = (
    "chromium",
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--virtual-time-budget=8000",
    "--window-size=1280,1390",
)


def rehearse(folder: Path) -> None:
    """Rehearses the job, and kills a process of its first attempt."""
    job = yaml.safe_load((PROJECT / "job.yaml").read_text())
    job |= {"passes": PASSES, "program": {"folder": str(QUICK_START)}}
    job["data"]["source"] = "sample.tsv"
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    sample = [QUICK_START / "make_sample.py", folder / "sample.tsv", "--lines", str(LINES)]
    subprocess.run([sys.executable, *sample], check=True)
    rehearsal = subprocess.Popen([*COMMAND, "rehearse"], cwd=folder)
    state = folder / ".rehearsal"
    steps = state / "volume/quick-start/output/node_1/steps-1.jsonl"
    while not steps.exists() or last_step(steps) < KILLED_AT:
        if rehearsal.poll() is not None:
            raise SystemExit(f"the rehearsal ended with {rehearsal.returncode} before the kill")
        time.sleep(0.1)
    log = "".join(file.read_text(errors="replace") for file in state.glob("logs/*.log"))
    os.kill(int(re.findall(r"attempt 1: trainer 1 is process (\d+)", log)[0]), signal.SIGKILL)
    if rehearsal.wait():
        raise SystemExit(f"the rehearsal ended with {rehearsal.returncode}")


def last_step(steps: Path) -> int:
    """Returns the newest step in a rank's metrics."""
    return max(map(int, re.findall(r'"step": (\d+)', steps.read_text())), default=0)


def photograph(folder: Path) -> None:
    """Opens the rehearsal's board, and takes its pictures."""
    command = [*COMMAND, "board", "--no-browser", "--evaluate"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as board:
        assert board.stderr is not None
        address = next(
            match[0] for line in board.stderr if (match := re.search(r"http://\S+", line))
        )
        for name, scheme in SCHEMES.items():
            picture = Path(__file__).with_name(name)
            options = [f"--blink-settings=preferredColorScheme={scheme}", f"--screenshot={picture}"]
            subprocess.run(
                [*BROWSER, *options, f"{address}#step,log"], check=True, capture_output=True
            )
        board.send_signal(signal.SIGINT)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        rehearse(Path(temporary))
        photograph(Path(temporary))

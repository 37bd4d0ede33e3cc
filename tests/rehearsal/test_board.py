"""In a real browser, the board of a rehearsal with a kill -9 and a slow rank shows what the raw
files say.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.long]

SLOWED = """
import os, time
from paddle_node.training.backends.parameter_servers import ParameterServers
STEP = ParameterServers.step
PACE = 0.02 if os.environ.get("PADDLE_NODE_TRAINER_ID") == "2" else 0.008
ParameterServers.step = lambda self, samples: time.sleep(PACE * len(samples)) or STEP(self, samples)
"""
BROWSER = (
    "chromium",
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--virtual-time-budget=20000",
    "--window-size=1300,1600",
)


def shown(page: str, name: str) -> str:
    """Returns the text of the element with this id."""
    found = re.search(rf'id="{name}"[^>]*>([^<]*)<', page)
    assert found, page
    return found[1]


def test_attempts_lost_steps_goodput_and_the_slow_rank(make_clone) -> None:
    clone = make_clone("board")
    program = clone.folder / "examples/quick_start/train.py"
    program.write_text(program.read_text().replace("\njob = ", f"{SLOWED}\njob = "))
    # A trainer is slow if seven looks at it, or the board's last minute, show it: all three times
    # shorter here.
    shorter = {
        "trainer_image/paddle_node/rendezvous/trainers.py": ("PACE_INTERVAL, WINDOW = 10.0", "3.3"),
        "paddle_aws/operations/board/page/attempts.js": ("MINUTE = 60", "20"),
        "job.yaml": ("passes: 5", "2"),
    }
    for name, (old, new) in shorter.items():
        text = (clone.folder / name).read_text()
        assert text.count(old) == 1
        (clone.folder / name).write_text(text.replace(old, f"{old.rpartition(' ')[0]} {new}"))
    rehearsal = clone.start("--local", "--no-try")
    output = clone.state / "volume/quick-start/output"
    steps = {rank: output / f"node_{rank}/steps-{rank}.jsonl" for rank in range(3)}
    while not (steps[2].exists() and steps[2].read_bytes().count(b"\n") >= 8):
        assert rehearsal.poll() is None, rehearsal.communicate()[0]
        time.sleep(0.1)
    log = "".join(file.read_text(errors="replace") for file in clone.state.glob("logs/*.log"))
    os.kill(int(re.findall(r"attempt 1: trainer 1 is process (\d+)", log)[0]), signal.SIGKILL)
    said = " ".join(rehearsal.communicate()[0].split())
    assert rehearsal.returncode == 0, said
    assert re.search(
        r"trainer 2 on \S+ is slow: a step takes it [23]\.\d times as long as the median", said
    )

    points = {
        rank: [json.loads(line) for line in file.read_text().splitlines()]
        for rank, file in steps.items()
    }
    attempts = json.loads((output / "run/attempts.json").read_text())["attempts"]
    assert [(one["number"], one["cause"][:33]) for one in attempts] == [
        (1, "trainer 1 ended with 137 (SIGKILL)"[:33]),
        (2, "done"),
    ]
    seconds = {
        part: sum(one["seconds"][part] for one in attempts) for part in attempts[0]["seconds"]
    }
    share = seconds["training"] / sum(seconds.values())
    mean = {
        part: sum(own[-1]["spent"][part] for own in points.values()) / 3
        for part in ("data", "training", "saving", "slowest")
    }
    assert attempts[0]["seconds"]["lost"] > 1 and attempts[0]["seconds"]["training"] == 0
    assert attempts[1]["seconds"] == pytest.approx(attempts[1]["seconds"] | mean, abs=0.01)
    busy = {
        rank: [one["spent"]["data"] + one["spent"]["training"] for one in own]
        for rank, own in points.items()
    }
    assert busy[2][-1] > 1.5 * busy[0][-1] and mean["slowest"] > 5

    paddle_aws = [sys.executable, "-m", "paddle_aws.operations.main"]
    environment = os.environ | {"PYTHONPATH": f"{clone.folder}:{clone.folder}/trainer_image"}
    results = subprocess.run(
        [*paddle_aws, "results", "--json"],
        cwd=clone.folder,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(results.stdout)["goodput"]["share"] == pytest.approx(share, abs=1e-3)
    assert f"goodput {share:.0%} of" in said
    command = [*paddle_aws, "board", "--no-browser", "--evaluate"]
    with subprocess.Popen(
        command, cwd=clone.folder, env=environment, stderr=subprocess.PIPE, text=True
    ) as board:
        assert board.stderr is not None
        address = next(
            re.search(r"http://\S+", line)[0] for line in board.stderr if "is shown at" in line
        )
        page = subprocess.run(
            [*BROWSER, "--dump-dom", address], capture_output=True, text=True, check=True
        ).stdout
        subprocess.run(
            [*BROWSER, f"--screenshot={clone.folder / 'board.png'}", address],
            capture_output=True,
            check=True,
        )
        board.send_signal(signal.SIGINT)
    assert 'data-shown="yes"' in page
    assert shown(page, "goodput") == f"{round(100 * share)} %"
    # Lost work is one number: what the attempts' record says.
    lost = float(shown(page, "lost").removesuffix(" s"))
    assert lost == pytest.approx(seconds["lost"], abs=0.06) and seconds["lost"] > 1
    assert shown(page, "world") == "3 pods · 3 shards of 900 records · 2 attempts"
    assert re.fullmatch(r"slow: rank 2.*, [23]\.\d times the median", shown(page, "slow"))
    assert "trainer 1 ended with 137 (SIGKILL)" in page and float(shown(page, "held-out")) > 0.6
    assert Path(clone.folder / "board.png").read_bytes().startswith(b"\x89PNG")

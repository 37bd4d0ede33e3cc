"""How long the board of 1,000 ranks and 1,000,000 steps takes to open, and what logging its steps
costs a training.

    python benchmarks/board.py [--ranks N]

Each rank's file is as full as it gets. A browser (Chromium) opens the page once the folder lies
there, and an empty page for comparison; seconds of the whole browser process, the fastest of three.
Steps: microseconds of processor time that logging one takes, beside those of a step of the quick
start (32 records).
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

PROJECT = Path(__file__).parents[1]
sys.path[:0] = [str(PROJECT), str(PROJECT / "trainer_image")]

from paddle_node.training.step_log import MOST_LINES, StepLog, TimeSpent  # noqa: E402
from paddle_node.volume.job_folder import JobFolder  # noqa: E402

from paddle_aws.operations.board.job_page import JobPage  # noqa: E402
from paddle_aws.operations.board.site import Site  # noqa: E402
from paddle_aws.operations.jobs.volume.server import Folder  # noqa: E402

# The page looks for news every five seconds of its own time: in this time budget, once.
BROWSER = (
    "chromium",
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--virtual-time-budget=4000",
    "--dump-dom",
)
STEPS = 1_000_000


def laid_out(folder: JobFolder, ranks: int) -> None:
    """Writes what `ranks` ranks leave after `STEPS` steps."""
    folder.run_state.mkdir(parents=True)
    attempt = {
        "number": 1,
        "run": "run",
        "started": 1e9,
        "cause": "done",
        "ended": 1e9 + STEPS,
        "made": "",
        "seconds": {"training": 1e6},
    }
    (folder.run_state / "attempts.json").write_text(json.dumps({"attempts": [attempt]}))
    for rank in range(ranks):
        lines = []
        for step in range(0, STEPS, STEPS // MOST_LINES):
            spent = {
                "data": 0.1 * step,
                "training": step,
                "saving": 0.0,
                "slowest": 0.0,
                "kept_data": 0.0,
                "kept_training": 0.0,
            }
            facts = {
                "attempt": 1,
                "step": step,
                "time": 1e9 + step,
                "pass": 0,
                "records": 64 * step,
                "spent": spent,
            }
            lines.append(json.dumps({**facts, "metrics": {"loss": 1 / (1 + step) + rank / 1e4}}))
        folder.node(rank).mkdir(parents=True)
        folder.steps(rank, rank).write_text("\n".join(lines) + "\n")


def opened(address: str) -> tuple[float, str]:
    """Returns the seconds until the page is drawn, and the page."""
    began = time.monotonic()
    page = subprocess.run([*BROWSER, address], capture_output=True, text=True, check=True).stdout
    return time.monotonic() - began, page


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=1000)
    ranks = parser.parse_args().ranks
    with tempfile.TemporaryDirectory() as name:
        folder = JobFolder(Path(name))
        laid_out(folder, ranks)
        training = SimpleNamespace(completions=ranks, processes=1)
        view = SimpleNamespace(
            phase="running", reason="", training=training, pods=(), as_json=lambda: {"pods": []}
        )
        empty = SimpleNamespace(get=lambda *_, **query: {}, items=lambda *_, **query: [])
        where = SimpleNamespace(
            name="many", namespace="paddle", status=lambda: view, settings=dict, cluster=empty
        )
        page = Site(JobPage(where, Folder(folder.root), None, None))
        with page.server(0) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            address = f"http://127.0.0.1:{server.server_address[1]}/{page.secret}/"
            runs = [opened(address) for _ in range(3)]
            assert all('data-shown="yes"' in text for _, text in runs)
            blank = min(opened("about:blank")[0] for _ in range(3))
            began = time.monotonic()
            size = len(page.answer("127.0.0.1", f"/{page.secret}/data", {})[2])
            print(
                f"{ranks:,} ranks of {STEPS:,} steps: {min(seconds for seconds, _ in runs):.2f} "
                f"s, an empty page {blank:.2f} s"
            )
            print(
                f"of which reading the volume: {time.monotonic() - began:.2f} s; "
                f"{size / 1e6:.1f} MB to the browser"
            )
            server.shutdown()
        log, spent, count = StepLog(Path(name) / "steps.jsonl", 1), TimeSpent(lambda: 0.0), 200_000
        began = time.process_time()
        for step in range(count):
            spent.count_lap("data")
            spent.count_lap("training")
            log.add(
                {"loss": 0.5}, step, **{"pass": 0, "records": step, "spent": spent.round_seconds()}
            )
        step_seconds = (time.process_time() - began) / count
        print(
            f"a step is logged in {1e6 * step_seconds:.1f} us of processor time: "
            f"{step_seconds / 0.010:.2%} of one of 10 ms"
        )


if __name__ == "__main__":
    main()

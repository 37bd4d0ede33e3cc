"""No order for a terminal that a job file, a log, a cause or the name of a file holds gets out of a
command raw: escape sequences, C1 bytes, carriage returns, changes of the direction of writing.
"""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest
import yaml
from commands import Done, Run
from job_controller import JobController, Script
from paddle_node.volume.job_folder import JobFolder

pytestmark = pytest.mark.slow
COMMAND = (sys.executable, "-P", "-m", "paddle_aws.operations.main")
ORDERS = (
    "\x1b[2J\x1b]0;owned\x07\x1b]8;;owned\x1b\\"
    "\x1b]52;c;b3duZWQ=\x07\x9b31m\x8d\x7f\u202eowned\u2066"
)
RAW = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
RECORD = {
    "attempts": [
        {"number": 1, "run": "r", "started": 1e9, "ended": 1e9 + 9, "cause": f"lost {ORDERS}"}
    ],
    "outcomes": {"r": {"code": 70, "sentence": f"trainer 2 ended {ORDERS}"}},
}


def check(*texts: str) -> None:
    for text in texts:
        assert not RAW.search(text), ascii(text)


@pytest.fixture
def job(run: Run, api: JobController, trained: JobFolder) -> JobFolder:
    """A job that has failed, and has such orders wherever a program may write."""
    trained.run_state.mkdir(parents=True, exist_ok=True)
    (trained.run_state / "attempts.json").write_text(json.dumps(RECORD))
    (trained.output / f"model{ORDERS}").write_text("x")
    step = {"attempt": 1, "step": 1, "time": 1e9 + 1, "metrics": {f"loss{ORDERS}": 1.0, "loss": 2}}
    trained.steps(0, 0).write_text(f"{json.dumps(step)}\n")
    trained.train_log(0).write_text(f"{ORDERS}on the volume\r\n")
    said = f"trained{ORDERS}"
    api.scripts["trainer"] = Script(
        lines=(said,), code=1, message=said, events=(("FailedMount", said),)
    )
    done = run("submit", "--wait")
    assert done.code == 1
    check(done.out, done.err)
    return trained


LOOKS = (
    "list", "list -A", "status", "logs", "logs --verbose", "logs --volume train", "wait",
    "results", "results --download output",
)  # fmt: skip


def test_looking_at_a_job_on_a_cluster(run: Run, job: JobFolder) -> None:
    for look in LOOKS:
        for columns in (None, 50):
            done = run(*look.split(), columns=columns)
            assert done.out + done.err, look
            check(done.out, done.err)


def test_the_pages_of_a_board(job: JobFolder, folder: Path) -> None:
    command = [*COMMAND, "board", "--no-browser"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as board:
        assert board.stderr is not None
        address = next(
            match[0] for line in board.stderr if (match := re.search(r"http://\S+", line))
        )
        try:
            pages = [
                urlopen(f"{address}{name}").read().decode()
                for name in ("", "data", "job/words/", "job/words/data")
            ]
        finally:
            board.send_signal(signal.SIGINT)
        check(*pages, board.stderr.read())
    assert "owned" in pages[3]
    check(*(str(json.loads(page)) for page in pages[1::2]))


BAD = ({"program": {"folder": f"./{ORDERS}"}}, {"data": {"source": f"./{ORDERS}"}},
       {"image": ORDERS}, {ORDERS: 1}, {"name": ORDERS}, {"environment": {ORDERS: "1"}},
       {"volume": {"kind": ORDERS}}, {"command": f"python {ORDERS}.py"})  # fmt: skip


@pytest.mark.parametrize("setting", BAD, ids=range(len(BAD)))
def test_a_sentence_about_a_setting(run: Run, folder: Path, setting: dict[str, object]) -> None:
    job = yaml.safe_load((folder / "job.yaml").read_text())
    (folder / "job.yaml").write_text(yaml.safe_dump(job | setting))
    for words in ("manifests", "manifests --diff", "submit --dry-run", "try"):
        done: Done = run(*words.split())
        check(done.out, done.err)


PROGRAM = f"""
import os, sys
sys.stdout.reconfigure(errors="surrogateescape")
for step in range(1, 4):
    print(f"step {{step}} loss {{1 / step}}", {ORDERS!r}, flush=True)
open("output/" + {ORDERS!r}, "w").write("x")
if os.environ.get("FAILS"):
    raise RuntimeError({ORDERS!r})
"""


@pytest.mark.parametrize(
    "words",
    [
        "try job.yaml",
        "rehearse job.yaml",
        pytest.param("storm job.yaml --calm 2 --runs 1 --no-shrink", marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("fails", [{}, {"FAILS": "1"}], ids=["ends", "fails"])
def test_what_a_program_writes_on_this_machine(
    tmp_path: Path, words: str, fails: dict[str, str]
) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / f"data{ORDERS}").write_text("one\n")
    job = {
        "name": "mine",
        "trainers": 1,
        "paddle": "2.6",
        "program": {"folder": "."},
        "command": f"python train.py --name '{ORDERS}'",
        "data": {"source": f"data{ORDERS}"},
        "metrics": {"step": r"step (\d+)", "loss": r"loss ([\d.]+)"},
        "environment": {"NAME": ORDERS, **fails},
        "limits": {"attempts": 1},
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    done = subprocess.run([*COMMAND, *words.split()], cwd=tmp_path, capture_output=True)
    shown = [
        done.stdout + done.stderr,
        *(f.read_bytes() for f in tmp_path.glob(".storm/receipt.*")),
    ]
    check(*(text.decode() for text in shown))
    if not words.startswith("storm"):  # Whose faults may make a difference.
        ends = bool(fails) and not words.startswith("try")
        assert done.returncode == ends, shown[0].decode()
    if words.startswith("rehearse"):
        for look in (["status"], ["logs"], ["results"], ["list"]):
            done = subprocess.run([*COMMAND, *look], cwd=tmp_path, capture_output=True)
            check((done.stdout + done.stderr).decode())

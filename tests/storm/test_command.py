"""Storms of a command's job, a plain Python program whose every file has an exact content.

More seeds: STORM_SEEDS="4 5 6" pytest tests/storm
"""

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from paddle_aws.storm.calm_runs import CalmRuns

pytestmark = pytest.mark.slow
STEPS = 20
PROGRAM = f"""
import json, os, subprocess, sys, time
from pathlib import Path
attempt, rank = int(os.environ["PADDLE_NODE_ATTEMPT"]), int(os.environ["RANK"])
output, done, total = Path("output"), 0, 0
if len(sys.argv) > 1:
    done, total = json.loads(Path(sys.argv[1]).read_text())
log = open(output / "log", "a") if rank == 0 else None
for step in range(done + 1, {STEPS + 1}):
    total += step
    time.sleep(0.05)
    if rank == 0:
        with open(output / "steps", "a") as steps:
            steps.write(f"{{step}}\\n")
        print(attempt, step, file=log, flush=True)
        (output / "owner").write_text(str(attempt))
        (output / "draft").write_text(json.dumps([step, total]))
        (output / "draft").rename(output / f"step-{{step}}")
        # What it asks of a command is no line of its own.
        subprocess.run(["echo", "step 1 total 1"], stdout=subprocess.PIPE)
        print(f"step {{step}} total {{total}}", flush=True)
if rank == 0:
    (output / "result").write_text(str(total))
"""
SETTINGS = {
    "command": "python train.py",
    "resume": "{newest:output/step-*}",
    "success": "output/result",
    "metrics": {"step": r"step (\d+)", "total": r"total (\d+)"},
}
FAULTS = (
    "kill-rank,kill-agent,kill-pod,spot-notice,freeze-rank,freeze-pod,volume-full,volume-failing,"
    "volume-read-only"
)


@pytest.mark.parametrize("seed", os.environ.get("STORM_SEEDS", "1").split())
def test_whatever_comes_a_commands_files_end_exactly_as_undisturbed(storm, seed):
    ended = storm(
        *("--seed", seed, "--faults", FAULTS, "--runs", "1", "--no-shrink"),
        program=PROGRAM,
        **SETTINGS,
    )
    assert ended.code == 0 and "undisturbed runs are exactly equal" in ended.output, ended.output
    assert all(run["passed"] for run in ended.receipt["runs"])
    output = ended.folder.output
    assert (output / "result").read_text() == str(sum(range(STEPS + 1)))
    for step in range(1, STEPS + 1):
        saved = json.loads((output / f"step-{step}").read_text())
        assert saved == [step, sum(range(step + 1))]
    lines = [tuple(map(int, line.split())) for line in (output / "log").read_text().splitlines()]
    assert lines == sorted(lines), ended.output
    assert (output / "owner").read_text() == str(lines[-1][0])
    # Between two attempts at most the step that was not saved is repeated.
    steps = [step for _, step in lines]
    assert sorted(set(steps)) == list(range(1, STEPS + 1))
    assert len(steps) <= STEPS + len(ended.attempts)


@pytest.fixture
def bystander():
    """A process that is no part of any job."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def test_a_program_that_forgets_its_step_is_told_of_and_the_printed_line_shows_it_again(
    storm, bystander
):
    """It also speaks as an agent would, to have a process killed that is not its own."""
    forgetful = PROGRAM.replace("done, total = json", "_, total = json")
    forgetful = f"print('[agent 0] clears the screen: \\x1b[2J', flush=True)\n{forgetful}"
    forgetful += f"""
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.write(1, b"[agent 0] attempt 9: trainer 0 is process {bystander.pid}\\n")
    os._exit(0)
"""
    # Pods without indexes: they agree on their ranks.
    settings = {**SETTINGS, "discovery": "pod-list"}
    refused = storm("--faults", "kill-rank/0@stop-9", program=forgetful, **settings)
    assert refused.code == 2 and not (refused.place / ".storm").exists()
    assert "'kill-rank/0@stop-9': stop is no event; start, step, save, saved" in refused.output
    assert len(refused.output.splitlines()) == 1

    mistaken = storm("--set", "trainers=two")
    assert mistaken.code == 2 and mistaken.output.count("\n") == 1, mistaken.output
    assert "trainers must be a whole number (found two)" in mistaken.output

    ended = storm("--faults", "kill-rank/0@step-9")
    assert ended.code == 1, ended.output
    assert "✗ after kill-rank/0@step-9: total at step 1 is " in ended.output
    assert " in attempt 2; undisturbed runs have 1\n" in ended.output
    (line,) = [line for line in ended.output.splitlines() if line.startswith("replay: ")]
    again = storm(*shlex.split(line)[4:])
    assert again.code == 1 and line in again.output, again.output
    assert "\ncalm-1, calm-2: as in .storm/receipt.json of 2" in again.output
    runs = [(again.place / f".storm/{name}.txt").read_text() for name in ("calm-2", "run-1")]
    assert all("clears the screen: \\x1b[2J" in run and "\x1b" not in run for run in runs)
    assert bystander.poll() is None
    finding, *_ = again.receipt["runs"][0]["findings"]
    assert finding["symptom"] == "other values" and finding["after"] == "kill-rank/0@step-9"
    assert any("fault: kill-rank/0@step-9" in line for line in finding["lines"])
    never = storm("--faults", "kill-rank/0@step-900")
    assert never.code == 1 and "\n         did not come: kill-rank/0@step-900\n" in never.output
    shown = "none of its faults came, so it shows nothing; the last step of undisturbed runs is 20"
    assert shown in never.output and not never.receipt["passed"]
    check_that_no_other_calm_runs_are_taken(again)
    check_that_an_interrupted_storm_leaves_a_receipt(again, storm)


def check_that_no_other_calm_runs_are_taken(storm):
    text = json.dumps(storm.receipt)
    copy = storm.place / "receipt.json"

    def taken(text: str) -> bool:
        copy.write_text(text)
        return CalmRuns.read(copy) is not None

    assert taken(text)
    for find, put in (
        ('"total": 1.0', '"total": 1.5'),
        ('"calm_runs": {', '"calm_runs": [{'),
        ('"calm_runs": {', '"calm_runs": null, "runs": {'),
        (text, "[" * 100_000),
    ):
        assert find in text and not taken(text.replace(find, put)), put
    copy.unlink()
    copy.symlink_to(storm.place / ".storm/receipt.json")
    assert CalmRuns.read(copy) is None
    copy.unlink()


def check_that_an_interrupted_storm_leaves_a_receipt(storm, run):
    """Of an edited program, whose calm runs are others."""
    place, kept = storm.place / ".storm", storm.receipt["calm_runs"]
    (storm.place / "train.py").write_text(PROGRAM + "# edited")
    words = [Path(sys.executable).with_name("paddle-aws"), "storm", "job.yaml"]
    with subprocess.Popen(words, cwd=storm.place, stderr=subprocess.PIPE, text=True) as edited:
        while not (place / "run/pods").exists() and edited.poll() is None:
            time.sleep(0.1)
        assert not (place / "calm-2.txt").exists()
        refused = run()
        edited.terminate()
        _, said = edited.communicate()
    assert (refused.code, edited.returncode) == (2, 130), refused.output + said
    assert "another storm runs in this folder" in refused.output
    written = "receipt of what ran: .storm/receipt.json and .storm/receipt.html"
    assert said.splitlines() == [written, "interrupted: no process is left"]
    receipt = storm.receipt
    assert receipt["state"] == "interrupted" and not receipt["passed"] and not receipt["runs"]
    assert receipt["calm_runs"] == kept and ">interrupted<" in storm.page

"""Every command that talks to the cluster, under each of the faults that the cluster can have.

Passing faults (429, 5xx, an answer cut in the middle, an expired token) do not change what a
command does; a lasting 401 or 403 ends it with exit code 3 and one sentence that contains no
credential.
"""

import copy
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from aws_api import AwsApi
from commands import Run
from job_controller import JobController
from kubernetes_api import Fault
from paddle_node.volume.job_folder import JobFolder

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[2]
SECRET = "nobody-may-see-this-token"
CASES = yaml.safe_load(Path(__file__).with_name("faults.yaml").read_text())
COMMANDS = {name: line.split() for name, line in CASES["commands"].items()}


def prepare(api: JobController, folder: Path, command: str) -> None:
    """Prepares the cluster for the command: without the job for a submission, with a running one
    for a command that ends it.
    """
    api.kubeconfig(folder / "kubeconfig", {"token": SECRET})
    (folder / "note.txt").write_text("a note\n")
    if command == "submit":
        api.objects = {
            path: value for path, value in api.objects.items() if value["kind"] == "Namespace"
        }
    for document in api.all("jobs") if command in ("cancel", "delete") else ():
        document.pop("status")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_fault_that_passes_changes_nothing(
    run: Run, api: JobController, job: JobFolder, folder: Path, command: str
) -> None:
    prepare(api, folder, command)
    api.faults = [
        # Four faults hit the very first request, the others each kind of request.
        Fault("", status=429),
        Fault("", status=500),
        Fault("", cut=7),
        Fault("", status=401),
        Fault("", "PATCH", status=503, times=2),
        Fault("", "DELETE", status=500),
        Fault("/proxy/", status=502),
        Fault("/proxy/", cut=0),
        Fault("/log\\?", cut=3),
        Fault("/pods\\?", cut=11),
        Fault("/jobs\\?", status=504),
    ]
    done = run(*COMMANDS[command])
    assert done.code == 0, done.err
    assert all(fault.times == 0 for fault in api.faults[:4])
    assert "Traceback" not in done.err and SECRET not in done.out + done.err


@pytest.mark.parametrize(
    ("status", "words"), [(401, "does not know you (401)"), (403, "refuses (403)")]
)
def test_a_refusal_that_stays(
    run: Run, api: JobController, job: JobFolder, folder: Path, status: int, words: str
) -> None:
    prepare(api, folder, "delete")
    before = copy.deepcopy(api.objects)
    api.faults = [Fault("", status=status, times=9999)]
    for command in COMMANDS.values():
        done = run(*command)
        assert done.code == 3 and words in done.err
        assert len(done.err.splitlines()) == 1
        assert SECRET not in done.out + done.err
        assert api.objects == before


@pytest.mark.parametrize("screen", CASES["screens"])
def test_sixty_columns_without_colour(
    run: Run, job: JobFolder, aws_api: AwsApi, screen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    command = screen.format(project=PROJECT).split()
    narrow, wide = run(*command, columns=60), run(*command)
    assert "\x1b" not in narrow.out + narrow.err + wide.out
    lines = [line for line in narrow.out.splitlines() if not line.startswith("in all")]
    assert lines and max(map(len, lines)) <= 60
    assert all(line == line.rstrip() for line in [*lines, *wide.out.splitlines()])
    # Nothing is lost: every word of the wide table is in the narrow one, broken if it is longer
    # than its column.
    together = "".join(narrow.out.split())
    missing = [
        word
        for word in wide.out.split()
        if len(word) < 12 and word not in together and not word.isdigit()
    ]
    assert not missing


def test_ranks_have_colours_on_a_terminal_that_has_them(job: JobFolder) -> None:
    """The terminal is real: the command runs on its own pseudo-terminal."""
    shown = {name: on_a_terminal("logs", **{name: "1"}) for name in ("FORCE_COLOR", "NO_COLOR")}
    assert [line.split("\x1b")[1][:5] for line in shown["FORCE_COLOR"].splitlines()] == [
        "[36mt",
        "[32mt",
        "[35mt",
    ]
    assert shown["NO_COLOR"].splitlines() == [f"trainer {rank} | hello" for rank in range(3)]
    # NO_COLOR turns off bold, too.
    assert "\x1b[1m" in on_a_terminal("--help", FORCE_COLOR="1") and "\x1b" not in on_a_terminal(
        "--help", NO_COLOR="1"
    )


def on_a_terminal(*command: str, **environment: str) -> str:
    """Runs a command on a terminal. Returns what it writes there."""
    variables = {
        name: value
        for name, value in os.environ.items()
        if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")
    }
    program = shlex.join([sys.executable, "-m", "paddle_aws.operations.main", *command])
    terminal = ["script", "--quiet", "--return", "--command", program, os.devnull]
    done = subprocess.run(
        terminal,
        env=variables | {"TERM": "xterm"} | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.replace("\r\n", "\n")

"""Every command explains itself, with an example, and docs/commands.md names it."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from commands import Run

from paddle_aws.operations.errors import Exit
from paddle_aws.operations.main import app

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[2]
COMMANDS = (PROJECT / "docs" / "commands.md").read_text()


def commands(group: Any, before: str = "") -> Iterator[str]:
    """Every command's full name, preceded by its group's name."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{before}{name} ")
        elif not command.hidden:
            yield f"{before}{name}"


@pytest.mark.parametrize("name", list(commands(typer.main.get_command(app))))
def test_help_has_an_example(run: Run, name: str) -> None:
    done = run(*name.split(), "--help", columns=100)
    assert done.code == 0
    assert f"Example: paddle-aws {name}" in done.out or "&& paddle-aws " + name in done.out
    assert "[[" not in done.out and f"`{name}" in COMMANDS


def test_the_exit_codes_are_documented() -> None:
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", COMMANDS, re.M)} == {
        int(code) for code in Exit
    }


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("rehearse --bogus", "paddle-aws rehearse: no such option: --bogus"),
        ("submit --set", "option '--set' requires an argument"),
        ("submti", "paddle-aws: no such command 'submti'. Did you mean 'submit'?"),
        ("try --steps x", "paddle-aws try: invalid value for '--steps'"),
        ("lock x", "paddle-aws lock: no such command 'x'"),
    ],
)
def test_a_wrong_option_gets_one_sentence(run: Run, words: str, sentence: str) -> None:
    done = run(*words.split())
    assert (done.code, done.out) == (2, "") and done.err.count("\n") == 1
    assert sentence in done.err and "--help` shows what is allowed" in done.err


def test_help_flows_to_the_terminals_width(run: Run) -> None:
    shown = run("results", "--help", columns=60).out
    assert (
        "What goes to S3 passes" in " ".join(shown.split())
        and max(map(len, shown.splitlines())) <= 60
    )
    # A paragraph's lines break at the terminal's width, not where the source's lines end.
    assert not [line for line in shown.splitlines() if line.strip() == "goes"]


def test_help_starts_no_heavy_library() -> None:
    program = (
        "import sys; from paddle_aws.operations.main import app\n"
        "heavy = {'boto3', 'kubernetes', 'cdk8s', 'aws_cdk', 'plotly'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}
    done = subprocess.run(
        [sys.executable, "-c", program], text=True, capture_output=True, env=environment
    )
    assert done.stdout == "[]\n", done.stderr


def test_a_job_is_completed_without_a_cluster(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("name: quick-start\ntrainers: 3\n")
    (tmp_path / "cluster.yaml").write_text("name: paddle\nretain: false\n")
    asked = {
        "_PADDLE_AWS_COMPLETE": "complete_bash",
        "COMP_WORDS": "paddle-aws status ",
        "COMP_CWORD": "2",
        "KUBECONFIG": "none",
    }
    command = [Path(sys.executable).with_name("paddle-aws")]
    done = subprocess.run(
        command, env=os.environ | asked, cwd=tmp_path, text=True, capture_output=True, timeout=120
    )
    assert (done.stdout.split(), done.stderr) == (["job.yaml", "quick-start"], "")


def test_a_reader_that_leaves_early_gets_no_traceback() -> None:
    command = Path(sys.executable).with_name("paddle-aws")
    # As in a pipe, whose reader is gone when the command writes.
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([command, "--help"], stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert done.stderr == ""


@pytest.mark.parametrize("word", ["run", "deploy", "ps", "get"])
def test_a_command_of_another_tool_gets_a_hint(run: Run, word: str) -> None:
    done = run(word, "something", "--all")
    assert done.code == 2 and done.err.startswith(f"{word} is not a command of paddle-aws: `")
    assert done.err.count("\n") == 1
    assert all(f"`{name}`" in COMMANDS for name in re.findall(r"`paddle-aws (\w+)`", done.err))


def test_help_has_groups_and_each_option_says_what_it_does_there(run: Run) -> None:
    said = run("--help", columns=100).out
    groups = ["Jobs", "This machine", "Cluster", "Account"]
    assert re.findall(r"─ (Jobs|This machine|Cluster|Account|Commands) ─", said) == groups
    assert "Show the last" not in run("cancel", "--help", columns=100).out
    for name, means in {"rehearse": "at its beginning", "logs": "The log", "upload": "Up"}.items():
        shown = run(name, "--help", columns=300).out
        (said,) = re.findall(r"^│ +--volume +.*", shown, re.M)
        assert means in said

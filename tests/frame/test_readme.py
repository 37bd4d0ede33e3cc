"""README.md says what is so: every command in it exists and is run by a test, every link leads somewhere."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from typer.main import get_command

from operations.main import app

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()

# Where each command of the README is really run: (file, what stands there).
RUN_BY = {
    "make rehearse": ("tests/rehearsal/test_whole_rehearsal.py", "rehearsal"),
    "make setup": ("Makefile", "test: machine environments"),
    "make quick": ("Makefile", "test: machine environments $(CHECKOV)/.ready lint quick"),
    "make lint": ("Makefile", "test: machine environments $(CHECKOV)/.ready lint quick"),
    "make test": (".ci/run", "make test"),
    "make bench": ("tests/frame/test_readme.py", "make bench"),
    "make test-cluster KUBECONFIG=~/.kube/config": ("tests/operations/test_real_cluster.py", "pytest.mark.cluster"),
    "make image push": ("tests/image/test_build_and_push.py", "make push"),
    "make manifests": ("tests/charts/test_command.py", "manifests"),
    ". .venv/bin/activate": ("Makefile", "RUN      := PATH="),
    "cdk bootstrap": ("rehearsal/cloud.py", '"bootstrap"'),
    "cdk deploy --all --outputs-file outputs.json": ("rehearsal/cloud.py", '"deploy"'),
    "cdk destroy --all": ("rehearsal/cloud.py", '"destroy"'),
    "paddle-aws kubeconfig": ("tests/operations/test_account.py", "kubeconfig"),
    "paddle-aws submit --follow": ("tests/operations", "submit"),
    "paddle-aws status": ("tests/operations", "status"),
    "paddle-aws results --download last": ("tests/operations", "results"),
    "paddle-aws resume --follow": ("tests/operations", "resume"),
    "paddle-aws lock prices": ("tests/operations/test_cost.py", '"lock", "prices"'),
    "paddle-aws lock distribution": ("tests/operations/test_lock_distribution.py", '"lock", "distribution"'),
    "paddle-aws cost --hours 3": ("tests/operations/test_cost.py", "--hours"),
    "paddle-aws doctor": ("tests/operations/test_doctor.py", "doctor"),
    "paddle-aws doctor --destroy": ("tests/operations/test_doctor.py", "--destroy"),
    "paddle-aws leftovers": ("tests/operations/test_doctor.py", "leftovers"),
}


def commands() -> list[str]:
    lines = "\n".join(re.findall(r"^```sh\n(.*?)^```", README, re.M | re.S)).splitlines()
    return [part.strip() for line in lines for part in line.split("#")[0].split("&&") if part.strip()]


@pytest.mark.parametrize("command", commands())
def test_each_command_is_run_somewhere(command: str) -> None:
    where, evidence = RUN_BY[command]
    files = [ROOT / where] if (ROOT / where).is_file() else sorted((ROOT / where).glob("test_*.py"))
    assert any(evidence in file.read_text() for file in files), f"{where} does not run {command}"


def test_make_targets_exist() -> None:
    wanted = {word for line in commands() if line.startswith("make ") for word in line.split()[1:] if "=" not in word}
    listed = subprocess.run(["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert wanted <= set(re.findall(r"make ([a-z-]+) ", listed))


def test_paddle_aws_commands_and_options_exist() -> None:
    known = get_command(app).commands  # type: ignore[attr-defined]
    for command in commands():
        program, *words = shlex.split(command)
        if program == "paddle-aws":
            named = known[words[0]]
            for word in words[1:]:
                named = getattr(named, "commands", {}).get(word, named)
            options = {option for parameter in named.params for option in parameter.opts}
            assert {word for word in words if word.startswith("--")} <= options, command


@pytest.mark.parametrize("document", ["README.md", *sorted(f"docs/{file.name}" for file in (ROOT / "docs").glob("*.md"))])
def test_links_lead_somewhere(document: str) -> None:
    text = (ROOT / document).read_text()
    links = [
        link.split("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link and not link.startswith("#")
    ]
    assert [link for link in links if not ((ROOT / document).parent / link).exists()] == []


def test_benchmarks_run_by_make_bench_are_programs() -> None:
    """`make bench` takes minutes, so that CI compiles what it would run."""
    for program in sorted((ROOT / "benchmarks").glob("*.py")):
        compile(program.read_text(), str(program), "exec")

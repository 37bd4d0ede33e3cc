"""README.md, CONTRIBUTING.md and docs/ say what is so: each command exists, the first two's are run, links lead somewhere."""

import re
import runpy
from pathlib import Path

import pytest
from typer.main import get_command

from operations.main import app

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", "CONTRIBUTING.md"]
DOCUMENTS = [*PAGES, "CHANGELOG.md", *sorted(f"docs/{file.name}" for file in (ROOT / "docs").glob("*.md"))]
KNOWN = get_command(app).commands  # type: ignore[attr-defined]

# Where each command of those pages is really run: (file, what stands there).
RUN_BY = {
    "make rehearse": ("tests/rehearsal/test_whole_rehearsal.py", "rehearsal"),
    "make rehearse JOB=examples/launch/job.yaml": (
        "tests/rehearsal/test_whole_rehearsal.py",
        "make rehearse JOB=examples/launch",
    ),
    "make rehearse JOB=job.yaml": ("tests/rehearsal/test_strangers_hour.py", '"rehearse", "JOB=job.yaml"'),
    "paddle-aws try job.yaml": ("tests/rehearsal/test_strangers_hour.py", '"try", "job.yaml"'),
    "paddle-aws status --rehearsal": ("tests/rehearsal/test_strangers_hour.py", '"status", "--rehearsal"'),
    "paddle-aws results --model --to models": (
        "tests/rehearsal/test_strangers_hour.py",
        '"results", "--model", "--to", "models"',
    ),
    "paddle-aws evaluate": ("tests/operations/test_volume.py", 'run("evaluate")'),
    "make setup": ("Makefile", "test: machine environments"),
    "make quick": ("Makefile", "test: machine environments $(CHECKOV)/.ready lint quick"),
    "make lint": ("Makefile", "test: machine environments $(CHECKOV)/.ready lint quick"),
    "make test": (".ci/run", "make test"),
    "make test-nfs": (".ci/run", "make test-nfs"),
    "make bench": ("tests/frame/test_readme.py", "runpy.run_path"),
    "make test-cluster KUBECONFIG=~/.kube/config": ("tests/operations/test_real_cluster.py", "pytest.mark.cluster"),
    "make image push": ("tests/image/test_build_and_push.py", "make push"),
    "make manifests": ("tests/charts/test_command.py", "manifests"),
    ". .venv/bin/activate": ("Makefile", "RUN      := PATH="),
    "paddle-aws bootstrap": ("rehearsal/cloud.py", '"bootstrap"'),
    "cdk deploy --all --outputs-file outputs.json": ("rehearsal/cloud.py", '"deploy"'),
    "cdk destroy --all": ("rehearsal/cloud.py", '"destroy"'),
    "paddle-aws protect": ("tests/operations/test_doctor.py", 'run("protect"'),
    "paddle-aws diff": ("tests/operations/test_doctor.py", 'run("diff"'),
    "paddle-aws kubeconfig": ("tests/operations/test_account.py", 'run("kubeconfig"'),
    "paddle-aws submit --follow": ("tests/operations/test_submit.py", 'run("submit", "--follow")'),
    "paddle-aws status": ("tests/operations/test_looking.py", 'run("status")'),
    "paddle-aws resume --follow": ("tests/operations/test_volume.py", '"resume", "--follow"'),
    "paddle-aws lock prices": ("tests/operations/test_cost.py", '"lock", "prices"'),
    "paddle-aws lock distribution": ("tests/operations/test_lock_distribution.py", '"lock", "distribution"'),
    "paddle-aws cost --hours 3": ("tests/operations/test_cost.py", '"--hours"'),
    "paddle-aws doctor": ("tests/operations/test_doctor.py", 'run("doctor"'),
    "paddle-aws doctor --destroy": ("tests/operations/test_doctor.py", '"--destroy"'),
    "paddle-aws leftovers": ("tests/operations/test_doctor.py", '"leftovers"'),
}


def commands() -> list[str]:
    pages = "\n".join((ROOT / page).read_text() for page in PAGES)
    lines = "\n".join(re.findall(r"^```sh\n(.*?)^```", pages, re.M | re.S)).splitlines()
    return [part.strip() for line in lines for part in line.split("#")[0].split("&&") if part.strip()]


@pytest.mark.parametrize("command", commands())
def test_each_command_is_run_somewhere(command: str) -> None:
    where, evidence = RUN_BY[command]
    files = [ROOT / where] if (ROOT / where).is_file() else sorted((ROOT / where).glob("test_*.py"))
    assert any(evidence in file.read_text() for file in files), f"{where} does not run {command}"


def named(document: str, program: str) -> list[list[str]]:
    """The words behind `program`, wherever a code span or block of the document has it as a command."""
    text = (ROOT / document).read_text()
    code = "\n".join(re.findall(r"`([^`\n]+)`", text) + re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S))
    found = re.findall(rf"(?:^|\$ |&& ){program} ([a-z][^#|&;\n]*)", code, re.M)
    return [re.sub(r"[][]", "", words).split() for words in found]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_make_targets_exist(document: str) -> None:
    wanted = {word for words in named(document, "make") for word in words if "=" not in word}
    assert wanted <= set(re.findall(r"^([a-z-]+):.* ## ", (ROOT / "Makefile").read_text(), re.M))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_paddle_aws_commands_and_options_exist(document: str) -> None:
    for words in named(document, "paddle-aws"):
        command = KNOWN[words[0]]
        for word in words[1:]:
            command = getattr(command, "commands", {}).get(word, command)
        options = {option for parameter in command.params for option in parameter.opts} | {"--help"}
        assert {word for word in words if word.startswith("--")} <= options, words


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document: str) -> None:
    text = (ROOT / document).read_text()
    links = [
        link.split("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link and not link.startswith("#")
    ]
    assert [link for link in links if not ((ROOT / document).parent / link).exists()] == []


@pytest.mark.parametrize("program", sorted(f"benchmarks/{file.name}" for file in (ROOT / "benchmarks").glob("*.py")))
def test_what_make_bench_runs_finds_all_that_it_imports(program: str) -> None:
    """`make bench` takes minutes, so that CI loads each benchmark and measures nothing."""
    runpy.run_path(str(ROOT / program), run_name="loaded")

"""README.md, CONTRIBUTING.md and docs/ are true: each command exists, and links lead somewhere.
tests/rehearsal/test_readme.py runs README's commands.
"""

import re
import runpy
from pathlib import Path

import pytest
from typer.main import get_command

from paddle_aws.operations.main import app

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    str(file.relative_to(ROOT))
    for folder in (".", "docs", "docs/learn", "docs/do")
    for file in (ROOT / folder).glob("*.md")
)
KNOWN = get_command(app).commands  # type: ignore[attr-defined]


def test_each_command_of_readme_is_in_a_section_whose_commands_are_run() -> None:
    sections = (ROOT / "README.md").read_text().split("\n## ")
    assert [section.splitlines()[0] for section in sections if "```sh" in section] == [
        "Try it: no AWS account, no Docker",
        "Your repository",
        "On AWS",
    ]


def test_readme_is_read_in_five_minutes() -> None:
    words = (ROOT / "README.md").read_text().split()
    assert len(words) <= 800
    # What it has not run on stands in the first screen.
    assert "not run in an AWS account or on a GPU" in " ".join(words[:80])


RUN = {
    "README.md": "tests/rehearsal/test_readme.py",
    "CONTRIBUTING.md": "Makefile",
    "docs/commands.md": "tests/docs/test_pages.py",
    "docs/from-kubernetes-on-aws.md": "tests/docs/test_pages.py",
    "docs/gitops.md": "tests/charts/test_gitops.py",
    "docs/jobs.md": "tests/docs/test_pages.py",
    "docs/do/sweep.md": "tests/docs/test_sweep.py",
    "docs/learn/construct.md": "tests/docs/test_pages.py",
    "docs/learn/fine-tune.md": "tests/docs/test_pages.py",
    "docs/learn/how-a-job-runs.md": "tests/docs/test_pages.py",
    "docs/learn/first-hour.md": "tests/docs/test_pages.py",
    "docs/learn/first-hour.zh.md": "tests/docs/test_pages.py",
    "docs/learn/own-repository.md": "tests/docs/test_pages.py",
}
"""Pages whose blocks `sh` something runs. A block that nothing runs is called `bash`."""


def test_a_block_of_commands_is_run_or_marked() -> None:
    pages = {page for page in DOCUMENTS if re.search(r"^```sh", (ROOT / page).read_text(), re.M)}
    assert pages == set(RUN)


def named(document: str, program: str) -> list[list[str]]:
    """Returns the words after `program` wherever a code span or block of the document has it as a
    command.
    """
    text = (ROOT / document).read_text()
    code = "\n".join(
        re.findall(r"`([^`\n]+)`", text) + re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S)
    )
    commands = re.findall(rf"(?:^|\$ |&& ){program} ([a-z][^#|&;\n]*)", code, re.M)
    return [re.sub(r"[][]", "", words).split() for words in commands]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_what_a_document_names_exists(document: str) -> None:
    targets = {word for words in named(document, "make") for word in words if "=" not in word}
    assert targets <= set(re.findall(r"^([a-z-]+):.* ## ", (ROOT / "Makefile").read_text(), re.M))
    for words in named(document, "paddle-aws"):
        command = KNOWN[words[0]]
        for word in words[1:]:
            command = getattr(command, "commands", {}).get(word, command)
        options = {option for parameter in command.params for option in parameter.opts} | {"--help"}
        assert {word for word in words if word.startswith("--")} <= options, words
    links = re.findall(r"\]\(([^)\s#]+)", (ROOT / document).read_text())
    folder = (ROOT / document).parent
    assert [link for link in links if "://" not in link and not (folder / link).exists()] == []


@pytest.mark.parametrize(
    "program", sorted(f"benchmarks/{file.name}" for file in (ROOT / "benchmarks").glob("*.py"))
)
def test_what_make_bench_runs_finds_all_that_it_imports(program: str) -> None:
    """`make bench` takes minutes, so CI loads each benchmark and measures nothing."""
    runpy.run_path(str(ROOT / program), run_name="loaded")

"""The pages that a newcomer follows, each from an empty folder or a copy of the clone's examples:
files are written as shown, commands are run in their order, and what is shown as their output is
what they print, but for numbers.

A block `bash` is not run: it needs an account, or is what the test's environment stands for. A
block titled "second terminal" runs, again and again until it succeeds, beside the block before.
"""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = (
    "learn/first-hour.md",
    pytest.param("learn/own-repository.md", marks=pytest.mark.long),
    "learn/construct.md",
)
IN_CLONE = (
    "commands.md",
    "from-kubernetes-on-aws.md",
    "jobs.md",
    pytest.param("learn/fine-tune.md", marks=pytest.mark.long),
    "learn/how-a-job-runs.md",
)
CLONED = {"learn/fine-tune.md", *(page for page in IN_CLONE if isinstance(page, str))}
"""Pages whose commands run beside the examples."""
BESIDE = "second terminal"


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    title: str
    text: str


def blocks(page: str) -> Iterator[Block]:
    text = (DOCS / page).read_text()
    for language, title, body in re.findall(
        r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', text, re.M | re.S
    ):
        yield Block(language, title, body)


def masked(text: str) -> str:
    """Returns a text without its numbers, hashes and the width of its terminal."""
    text = re.sub(r"\b[0-9a-f]{8}\b|\d+(?:[.,]\d+)*", "0", text)
    return " ".join(text.split())


def start(block: Block, folder: Path) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    environment |= {
        "PATH": f"{ROOT / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "BASH_ENV": str(ROOT / "tests" / "rehearsal" / "readme.sh"),
        "NO_COLOR": "1",
        "COLUMNS": "80",
        "KUBECONFIG": str(folder / "no-cluster"),
    }
    # In a file of its own, so that `pkill -f` of a block does not meet the block.
    script = folder.with_name(f"{block.title or 'first terminal'}.sh")
    script.write_text(block.text)
    return subprocess.Popen(
        ["bash", "-euo", "pipefail", script],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(block: Block, process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate()
    assert process.returncode == 0, f"{block.text}ended with {process.returncode}:\n{output}"
    return output


@pytest.mark.parametrize("page", [*PAGES, *IN_CLONE])
def test_a_reader_gets_what_the_page_shows(page: str, tmp_path: Path) -> None:
    output, running, folder = None, None, tmp_path / "folder"
    folder.mkdir()
    if page in CLONED:
        shutil.copytree(ROOT / "examples", folder / "examples")
        shutil.copy(ROOT / "job.yaml", folder)
    todo = list(blocks(page))
    for number, block in enumerate(todo):
        following = todo[number + 1] if number + 1 < len(todo) else None
        if block.title == BESIDE:
            assert running is not None
            while finish_status(block, folder) and running.poll() is None:
                time.sleep(0.3)
            output, running = finish(todo[number - 1], running), None
        elif block.title:
            (folder / block.title).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.title).write_text(block.text)
        elif block.language == "sh":
            running = start(block, folder)
            if following is None or following.title != BESIDE:
                output, running = finish(block, running), None
        elif block.language == "bash":
            output = None
        elif block.language == "text" and output is not None:
            printed = masked(output)
            for line in block.text.splitlines():
                if line.strip() not in ("…", "..."):
                    assert masked(line) in printed, f"{line!r} is not in\n{output}"


def finish_status(block: Block, folder: Path) -> int:
    """Runs a block of the second terminal once. Returns its exit code."""
    process = start(block, folder)
    process.communicate()
    return process.returncode


def test_the_chinese_page_has_the_same_blocks() -> None:
    english, chinese = (
        [
            (block.language, block.title, re.sub(r"\s+#.*", "", block.text))
            for block in blocks(page)
            if block.language != "bash"
        ]
        for page in ("learn/first-hour.md", "learn/first-hour.zh.md")
    )
    assert english == chinese

"""The pages of docs/ are short, show commands that can be pasted, and begin with an example.

Words are counted outside of blocks of code. What a program writes is counted apart, and so is
Chinese. `pytest tests/docs/test_words.py -s -k words` prints how many each section has.
"""

import re
from collections import Counter
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
WRITTEN_BY_PROGRAMS = {"changes.md", "scale.md"}
PAGES = sorted(
    page
    for page in DOCS.rglob("*.md")
    if page.parent.name != "reference" and page.name not in WRITTEN_BY_PROGRAMS
)
ENGLISH = [page for page in PAGES if not page.name.endswith(".zh.md")]
BLOCK = re.compile(r"^( *)```(\w*)(?: title=\"[^\"]*\")?\n(.*?)^ *```$", re.M | re.S)
GENERATED = re.compile(r"<!-- generated.*?<!-- end -->", re.S)


def words(text: str) -> int:
    """Counts the words of prose and tables: of a link, those that a reader sees."""
    text = re.sub(r"\]\([^)]*\)", "]", BLOCK.sub("", GENERATED.sub("", text)))
    return sum(1 for word in text.split() if re.search(r"\w", word))


def section(page: Path) -> str:
    """Returns the place of a page in the menu, its first two levels."""
    menu = re.search(r"^nav:\n(.*)", (ROOT / "mkdocs.yml").read_text(), re.M | re.S)
    assert menu

    def find(entries: list[object], name: str) -> str | None:
        for entry in entries:
            title, below = next(iter(entry.items())) if isinstance(entry, dict) else ("", entry)
            if isinstance(below, list):
                if (found := find(below, name)) is not None:
                    return f"{title} > {found}" if found else title
            elif below == name:
                return ""
        return None

    found = find(yaml.safe_load(menu[1]), str(page.relative_to(DOCS)))
    assert found is not None, f"{page} is in no menu"
    return found or "Home"


def test_words() -> None:
    counted = Counter[str]()
    for page in ENGLISH:
        counted[section(page)] += words(page.read_text())
    for name, number in sorted(counted.items()):
        print(f"{number:6,}  {name}")
    chinese = sum(words(page.read_text()) for page in PAGES if page not in ENGLISH)
    generated = [*(DOCS / name for name in WRITTEN_BY_PROGRAMS), *DOCS.glob("reference/*.md")]
    written = sum(words(page.read_text()) for page in generated)
    print(f"{counted.total():6,}  by hand; {chinese:,} in Chinese, {written:,} by programs")
    assert counted.total() <= 20_000


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_a_command_stands_without_a_prompt_and_its_output_apart(page: Path) -> None:
    languages = {language for _, language, _ in BLOCK.findall(page.read_text())}
    assert languages <= {"bash", "json", "python", "sh", "text", "yaml"}
    for _, language, body in BLOCK.findall(page.read_text()):
        prompts = re.findall(r"^ *\$ .*", body, re.M)
        assert not prompts, f"{page} has a prompt: {prompts[0]}"
        if language in ("bash", "sh"):
            assert not re.search(r"^(✓|\[agent|trainer \d)", body, re.M), body


@pytest.mark.parametrize("page", ENGLISH, ids=lambda page: str(page.relative_to(DOCS)))
def test_a_page_begins_with_an_example(page: Path) -> None:
    text = page.read_text()
    opening = text[:2500]
    assert "\n```" in opening or "\n| " in opening, f"{page} has no example at its beginning"
    for phrase in ("This page is for", "For people who", "whoever", "passed over", "of its own"):
        assert phrase not in GENERATED.sub("", text), f"{page} says {phrase!r}"


def test_the_menu_has_at_most_seven_entries_a_level() -> None:
    menu = re.search(r"^nav:\n(.*)", (ROOT / "mkdocs.yml").read_text(), re.M | re.S)
    assert menu
    levels = [yaml.safe_load(menu[1])]
    while levels:
        level = levels.pop()
        assert len(level) <= 7, level
        levels += [
            below
            for entry in level
            if isinstance(entry, dict)
            for below in entry.values()
            if isinstance(below, list)
        ]


def test_each_claim_is_one_of_the_readme() -> None:
    readme = " ".join((ROOT / "README.md").read_text().replace("**", "").split())
    rows = re.findall(
        r'^\| "(.+?)".*?\| (.+?) \| (.+?) \|$', (DOCS / "claims.md").read_text(), re.M
    )
    assert len(rows) > 15
    for claim, _, pages in rows:
        assert claim in readme, f"the README does not say {claim!r}"
        for target in re.findall(r"\]\(([^)#]+)", pages):
            assert (DOCS / target).exists()


def test_blocks_that_something_runs() -> None:
    """Prints how many; there were 27 before the pages were halved."""
    number = 0
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ENGLISH):
        number += sum(language == "sh" for _, language, _ in BLOCK.findall(page.read_text()))
    for page in ("library.md", "cookbook.md", "learn/construct.md"):  # tests/frame/test_wheel.py
        languages = [language for _, language, _ in BLOCK.findall((DOCS / page).read_text())]
        number += languages.count("python")
    print(f"{number} blocks are run")
    assert number >= 29

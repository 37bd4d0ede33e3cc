"""A release is made of a tag that is the version, and of a changelog that has it."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


@pytest.mark.parametrize(
    ("tag", "sentence"),
    [
        (f"v{VERSION}", "CHANGELOG.md has changes that are not released: move them to a section "),
        ("v9.9.9", f"the tag is v9.9.9: pyproject.toml has version {VERSION}, whose tag is v"),
        (VERSION, f"the tag is {VERSION}: pyproject.toml has version {VERSION}, whose tag is v"),
    ],
)
def test_a_wrong_tag_builds_nothing(tag: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/release", tmp_path / ".ci")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "CHANGELOG.md").write_text(f"## [Unreleased]\n* new\n## [{VERSION}] - 2026-01-02\n")
    command = [tmp_path / ".ci/release", tag]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.startswith(sentence), done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".ci",
        "CHANGELOG.md",
        "pyproject.toml",
    ]


def test_the_workflow_publishes_what_it_checked_and_no_secret() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]
    assert jobs["publish"]["needs"] == ["test", "build"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert any(step.get("run", "").startswith(".ci/release ") for step in jobs["build"]["steps"])
    for file in (ROOT / ".github").rglob("*.yml"):
        assert "secrets." not in file.read_text(), file
        assert isinstance(yaml.safe_load(file.read_text()), dict), file


def test_the_changelog_is_in_the_form_of_keep_a_changelog() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    sections = [line for line in lines if line.startswith("## ")]
    assert sections[0] == "## [Unreleased]"
    assert all(re.fullmatch(r"## \[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", s) for s in sections[1:])
    kinds = {line for line in lines if line.startswith("### ")}
    assert kinds <= {
        f"### {kind}"
        for kind in ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security", "Upgrading")
    }

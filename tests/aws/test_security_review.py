"""Reviewers' tools find nothing unexplained in any variant, and every explanation is needed. The
shipped cluster and the tutorials' own kind show it; all others are long.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from .built import PROJECT
from .conftest import FILES

pytestmark = pytest.mark.slow

# The variants that ask for this print it at synth on purpose.
ON_PURPOSE = {
    (f"{name}-storage/FileSystem", "Annotation::paddle-aws:plain-nfs")
    for name in ("self", "paddle-cluster", "operator")
}


@pytest.fixture(
    scope="module",
    params=[("shipped", "self-managed"), pytest.param(tuple(FILES), marks=pytest.mark.long)],
    ids=["two", "all"],
)
def names(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return tuple(request.param)


@pytest.fixture(scope="module")
def reviews(
    names: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    out = tmp_path_factory.mktemp("review") / "reviews.json"
    command = [sys.executable, "-m", "tests.aws.security_review", out, *names]
    subprocess.run(command, check=True, cwd=PROJECT, env={**os.environ, "CDK_VALIDATION": "true"})
    by_variant: dict[str, dict[str, Any]] = json.loads(out.read_text())
    return by_variant


def _covers(acknowledged: list[str], finding: list[str]) -> bool:
    path, rule = acknowledged[:2]
    where, what = finding
    return rule == what and (where == path or where.startswith(f"{path}/"))


def test_every_finding_is_explained_and_no_explanation_left_over(
    reviews: dict[str, dict[str, Any]],
) -> None:
    for variant, review in reviews.items():
        findings, explained = review["findings"], review["acknowledged"]
        bare = [
            finding
            for finding in findings
            if tuple(finding) not in ON_PURPOSE
            and not any(_covers(explanation, finding) for explanation in explained)
        ]
        idle = [
            explanation[:2]
            for explanation in explained
            if not any(_covers(explanation, finding) for finding in findings)
        ]
        assert (bare, idle) == ([], []), variant


Places = set[tuple[str, str, str]]
"""(file, resource, rule); an empty resource stands for the whole template."""


def _written(variant: Any, names: tuple[str, ...], folder: Path, tool: str) -> Places:
    """Writes every template without its explanations for `tool`, and the first variant's as they
    are, too: there the tool reads the explanations itself. Returns the explanations.
    """
    explained: Places = set()
    for kind in ("as-is", "bare"):
        (folder / kind).mkdir()
    for name in names:
        for stack, template in variant(name).templates.items():
            file, bare = f"{name}-{stack}.json", json.loads(json.dumps(template))
            for place, holder in (("", bare), *bare.get("Resources", {}).items()):
                metadata = holder.get("Metadata", {}).pop(tool, {})
                rules = [
                    *metadata.get("config", {}).get("ignore_checks", []),
                    *(skip["id"] for skip in metadata.get("skip", [])),
                ]
                explained |= {(file, place, rule) for rule in rules}
            (folder / "bare" / file).write_text(json.dumps(bare))
            if name == names[0]:
                (folder / "as-is" / file).write_text(json.dumps(template))
    return explained


def _compare(findings: Iterable[tuple[Path, str, str]], explained: Places) -> None:
    by_kind: dict[str, Places] = {"as-is": set(), "bare": set()}
    for file, place, rule in findings:
        by_kind[file.parent.name].add((file.name, place, rule))
    explain = "explain it next to its construct (constructs_lib/acknowledged.py), or mend it"
    assert by_kind["bare"] - explained == set(), explain
    assert by_kind["as-is"] == set(), "the tool does not read an explanation"
    assert explained - by_kind["bare"] == set(), "nothing needs these explanations any more"


def test_cfn_lint_finds_what_is_explained_and_nothing_else(
    variant: Any, names: tuple[str, ...], tmp_path: Path
) -> None:
    explained = _written(variant, names, tmp_path, "cfn-lint")
    options = ["--regions", "us-west-2", "--format", "json", "--"]
    command = [
        str(Path(sys.executable).with_name("cfn-lint")),
        *options,
        *map(str, tmp_path.glob("*/*.json")),
    ]
    findings = [
        (Path(finding["Filename"]), finding["Location"]["Path"], finding["Rule"]["Id"])
        for finding in json.loads(subprocess.run(command, capture_output=True, text=True).stdout)
    ]
    _compare(
        ((file, path[1] if path[0] == "Resources" else "", rule) for file, path, rule in findings),
        explained,
    )


def test_checkov_finds_what_is_explained_and_nothing_else(
    variant: Any, names: tuple[str, ...], tmp_path: Path
) -> None:
    explained = _written(variant, names, tmp_path, "checkov")
    options = [
        "--framework",
        "cloudformation",
        "--skip-download",
        "--compact",
        "--quiet",
        "--output",
        "json",
    ]
    command = [
        str(PROJECT / ".venv-checkov" / "bin" / "checkov"),
        "--directory",
        str(tmp_path),
        *options,
    ]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.stdout.startswith("{"), ran.stderr[-3000:]
    report = json.loads(ran.stdout)
    assert report["summary"]["parsing_errors"] == 0
    assert report["summary"]["passed"] > 100 * len(names)
    failed = report["results"]["failed_checks"]
    _compare(
        (
            (Path(check["file_path"]), check["resource"].rpartition(".")[2], check["check_id"])
            for check in failed
        ),
        explained,
    )


def test_the_shipped_app_passes_the_cdks_strict_validation(tmp_path: Path) -> None:
    """Runs the real command line as a user does, with acknowledgments made and validation on."""
    environment = {**os.environ, "CDK_VALIDATION": "true"}
    command = [
        str(PROJECT / "node_modules" / ".bin" / "cdk"),
        "synth",
        "--quiet",
        "--output",
        str(tmp_path / "out"),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=PROJECT, env=environment)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert "paddle: retain is false: a destroy deletes everything" in ran.stderr
    assert "WARNING" not in ran.stderr
    assert not (PROJECT / "cdk.context.json").exists(), "nothing is looked up"
    assert [*(tmp_path / "out").glob("asset.*")] == []

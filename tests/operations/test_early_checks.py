"""The commands report what is wrong with a job's data or size before they write, deploy or send
anything.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import Run

JOB = {"name": "mine", "trainers": 2, "data": {"source": "mine.tsv"}}
GOOD = b"".join(b"%s\tword%d\n" % (b"ab"[n % 2 : n % 2 + 1], n) for n in range(50))


CASES = yaml.safe_load(Path(__file__).with_name("early_checks.yaml").read_text())


@pytest.mark.parametrize(("content", "settings", "sentence"), CASES)
def test_refused_before_a_manifest_is_written(
    run: Run, folder: Path, content: str | bytes, settings: dict[str, Any], sentence: str
) -> None:
    (folder / "mine.tsv").write_bytes(GOOD if content == "GOOD" else content or b"")
    (folder / "own").mkdir()
    (folder / "own/train.py").write_text("pass")
    nodes = {"few": {"instance_types": ["m5.large"]}, "many": {"instance_types": ["c5.4xlarge"]}}
    (folder / "cluster.yaml").write_text(yaml.safe_dump({"retain": False, "nodes": nodes}))
    (folder / "job.yaml").write_text(yaml.safe_dump(JOB | settings))
    done = run("manifests")
    assert run("submit", "--dry-run") == done
    assert done.code == 2 and sentence in done.err and done.err.count("\n") == 1
    assert not (folder / "dist").exists()


def test_what_nobody_knows_refuses_nothing_and_what_is_doubted_is_said(
    run: Run, folder: Path
) -> None:
    """Nodes of unknown size are accepted; a header draws a warning; a user's own program may use
    any encoding.
    """
    (folder / "mine.tsv").write_bytes(GOOD)
    (folder / "job.yaml").write_text(yaml.safe_dump({**JOB, "resources": {"cpu": 200}}))
    for nodes in ({"large": {"instance_types": ["c5.metal"]}}, {}):
        assert run("manifests").code == 0
        (folder / "cluster.yaml").write_text(
            yaml.safe_dump({"retain": False, **({"nodes": nodes} if nodes else {})})
        )

    (folder / "mine.tsv").write_bytes(b"label\ttext\n" + GOOD + "a\tcafé\n".encode("latin-1"))
    (folder / "job.yaml").write_text(yaml.safe_dump(JOB))
    done = run("manifests")
    assert done.code == 0
    assert (
        "warning: line 1 of mine.tsv looks like a header" in done.err
        and "line 52 of mine.tsv is not UTF-8" in done.err
    )
    (folder / "job.yaml").write_text(yaml.safe_dump({**JOB, "command": "python train.py"}))
    assert "warning" not in run("manifests").err

"""What is wrong with a job's data or its size is said before anything is written, deployed or sent."""

from pathlib import Path

import pytest
import yaml
from commands import Run

JOB = {"name": "mine", "trainers": 2, "data": {"source": "mine.tsv"}}
READER = "{data: {source: mine.tsv, format: 'reader:records'}, program: {from: folder, path: own}}"
GOOD = b"".join(b"%s\tword%d\n" % (b"ab"[n % 2 : n % 2 + 1], n) for n in range(50))


@pytest.mark.parametrize(
    ("content", "settings", "sentence"),
    [
        (GOOD, "resources: {cpu: 200}", "resources.cpu is 200: the nodes of m5.large, c5.4xlarge have at most 16 vCPUs"),
        (GOOD, "data_resources: {cpu: 17}", "data_resources.cpu is 17: the nodes of m5.large, c5.4xlarge have"),
        (b"", "", "data.source is mine.tsv: it is empty"),
        (b"PAR1\x15\x04\x00\x01\n", "", "and data.format is lines: its first records are no text; use files, or"),
        (b"\x28\xb5\x2f\xfd zstd", "", "data.source is mine.tsv: mine.tsv is compressed: of .gz, .zip, .tar and .tar.gz"),
        (GOOD, READER, "data.format names the module reader: the program's folder has no reader.py"),
    ],
)
def test_refused_before_a_manifest_is_written(run: Run, folder: Path, content: bytes, settings: str, sentence: str) -> None:
    (folder / "mine.tsv").write_bytes(content)
    (folder / "own").mkdir()
    (folder / "own/train.py").write_text("pass")
    nodes = {"few": {"instance_types": ["m5.large"]}, "many": {"instance_types": ["c5.4xlarge"]}}
    (folder / "cluster.yaml").write_text(yaml.safe_dump({"retain": False, "nodes": nodes}))
    (folder / "job.yaml").write_text(yaml.safe_dump({**JOB, **(yaml.safe_load(settings) or {})}))
    done = run("manifests")
    assert done.code == 2 and sentence in done.err and done.err.count("\n") == 1
    assert not (folder / "dist").exists()


def test_nodes_that_nobody_knows_refuse_nothing(run: Run, folder: Path) -> None:
    (folder / "job.yaml").write_text(yaml.safe_dump({**JOB, "resources": {"cpu": 200}}))
    for nodes in ({"large": {"instance_types": ["c5.metal"]}}, {}):
        assert run("manifests").code == 0
        (folder / "cluster.yaml").write_text(yaml.safe_dump({"retain": False, **({"nodes": nodes} if nodes else {})}))


def test_a_header_is_doubted_and_a_program_of_ones_own_may_have_any_encoding(run: Run, folder: Path) -> None:
    (folder / "mine.tsv").write_bytes(b"label\ttext\n" + GOOD + "a\tcafé\n".encode("latin-1"))
    (folder / "job.yaml").write_text(yaml.safe_dump(JOB))
    done = run("manifests")
    assert done.code == 0
    assert "warning: line 1 of mine.tsv looks like a header" in done.err and "line 52 of mine.tsv is not UTF-8" in done.err
    (folder / "job.yaml").write_text(yaml.safe_dump({**JOB, "command": "python train.py"}))
    assert "warning" not in run("manifests").err

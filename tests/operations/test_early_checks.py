"""The commands report what is wrong with a job's data or size before they write, deploy or send
anything.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import FILES, Run
from job_controller import JobController

PROJECT = Path(__file__).parents[2]
JOB = {"name": "mine", "trainers": 2, "data": {"source": "mine.tsv"}}
PROJECT = Path(__file__).parents[2]
GOOD = b"".join(b"%s\tword%d\n" % (b"ab"[n % 2 : n % 2 + 1], n) for n in range(50))


CASES = yaml.safe_load(Path(__file__).with_name("early_checks.yaml").read_text())
NAMESPACES = yaml.safe_load(Path(__file__).with_name("namespaces.yaml").read_text())


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


@pytest.mark.parametrize(
    ("mounts", "words"),
    [
        ("none", "there; set nodes.<group>.mount_file_system to it in cluster.yaml and deploy, or"),
        (
            "/efs,/home/admin/efs2",
            "there (but at /efs, /home/admin/efs2); set nodes.<group>.mount_",
        ),
        ("/home/admin/efs", ""),
        ("/home/admin", ""),
        (None, ""),
    ],
)
def test_the_documents_host_path_is_taken_where_nodes_mount_it(
    run: Run, folder: Path, mounts: str | None, words: str
) -> None:
    shutil.copy(PROJECT / "examples/tutorials/aws-recommendation.yaml", folder / "job.yaml")
    outputs = json.loads((folder / "outputs.json").read_text())
    outputs["paddle-nodes"] = {"FileSystemMounts": mounts} if mounts else {}
    (folder / "outputs.json").write_text(json.dumps(outputs))
    for command in (["manifests"], ["submit", "--dry-run"]):
        done = run(*command)
        assert done.code == (2 if words else 0), done.err
        assert words in done.err
        assert not words or done.err.startswith("volume.path is /home/admin/efs: no ")
    if words:
        assert done.err.count("\n") == 1 and not (folder / "dist").exists()
        return
    [volume] = [
        document
        for file in (folder / "dist").iterdir()
        for document in yaml.safe_load_all(file.read_text())
        if document["kind"] == "PersistentVolume"
    ]
    terms = volume["spec"].get("nodeAffinity", {}).get("required", {}).get("nodeSelectorTerms", [])
    values = {"/home/admin/efs": ["home.admin.efs"], "/home/admin": ["home.admin"]}.get(
        mounts or ""
    )
    assert [term["matchExpressions"][0]["values"] for term in terms] == ([values] if values else [])


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
    (folder / "train.py").write_text("pass")
    command = {**JOB, "command": "python train.py", "paddle": "2.6"}
    (folder / "job.yaml").write_text(yaml.safe_dump(command))
    assert "warning" not in run("manifests").err
    named = {"MONKEY": "x", "WANDB_API_KEY": "y", "hf_token": "z"}
    (folder / "job.yaml").write_text(yaml.safe_dump(command | {"environment": named}))
    assert "warning: environment has WANDB_API_KEY, hf_token, which" in run("manifests").err


def test_a_folder_is_packed_and_a_byte_order_mark_is_said(run: Run, folder: Path) -> None:
    (folder / "pictures").mkdir()
    (folder / "mine.tsv").write_bytes(b"\xef\xbb\xbf" + GOOD)
    (folder / "job.yaml").write_text(yaml.safe_dump(JOB))
    said = "warning: mine.tsv begins with a byte order mark, as Notepad and Excel write it: it is"
    assert said in run("manifests").err
    (folder / "train.py").touch()
    own = {"command": "python train.py", "paddle": "2.6", "inputs": {"x": "pictures"}}
    for settings, setting in (
        ({"data": {"source": "pictures"}}, "data.source"),
        (own, "inputs.x"),
    ):
        (folder / "job.yaml").write_text(yaml.safe_dump({**JOB, **settings}))
        done = run("manifests")
        assert done.code == 2 and done.err.splitlines()[-1] == (
            f"job.yaml: {setting} is pictures: that is a folder; pack it (`tar -cf pictures.tar "
            "-C pictures .`) and name the .tar, which is unpacked, or use s3://"
        )


@pytest.mark.parametrize(("settings", "deployed", "sentence"), NAMESPACES)
def test_a_data_job_without_a_right_to_its_bucket_is_refused(
    run: Run,
    api: JobController,
    folder: Path,
    settings: dict[str, Any],
    deployed: dict[str, str],
    sentence: str | None,
) -> None:
    """By the deployed stacks, and before the first deploy by cluster.yaml."""
    (folder / "mine.tsv").write_bytes(GOOD)
    (folder / "job.yaml").write_text(yaml.safe_dump(JOB | settings))
    (folder / "cluster.yaml").write_text("retain: false")
    cluster = {"c": {"JobsNamespace": "paddle"} | deployed}
    (folder / "outputs.json").write_text(json.dumps(FILES["outputs.json"] | cluster))
    done = run("manifests")
    if sentence is None:
        assert done.code == 0, done.err
        return
    assert done.code == 2 and done.err.rstrip().endswith(sentence) and done.err.count("\n") == 1
    assert not (folder / "dist").exists()
    done = run("submit")
    assert done.code == 2 and done.err.rstrip().endswith(sentence)
    assert not any(method == "PATCH" for method, _ in api.requests)
    if not deployed:
        (folder / "outputs.json").unlink()
        assert run("manifests").err.rstrip().endswith(sentence)


def test_a_job_takes_the_deployed_file_system_of_whatever_kind(
    run: Run, api: JobController, folder: Path
) -> None:
    """FSx for Lustre: its driver, and a folder that the job's own user makes."""
    storage = {name: value for name, value in FILES["outputs.json"]["paddle-storage"].items()}
    del storage["AccessPointId"]
    lustre = {"paddle-storage": storage | {"FileSystemMountName": "abcdef01"}}
    (folder / "outputs.json").write_text(json.dumps(lustre))
    assert run("manifests", "--out", "dist").code == 0
    written = "".join(file.read_text() for file in sorted(Path("dist").glob("*.yaml")))
    assert "driver: fsx.csi.aws.com" in written and "mountname: abcdef01" in written
    assert "job-folder" in written and "efs.csi" not in written
    (folder / "mine.tsv").write_bytes(GOOD)
    (folder / "job.yaml").write_text(yaml.safe_dump(JOB | {"volume": {"kind": "efs"}}))
    done = run("manifests")
    assert done.code == 2 and "the deployed file system is lustre: set it to lustre" in done.err
    config = PROJECT / "tests" / "aws" / "variants" / "lustre.yaml"
    allowed = run("setup", str(config), "--yaml").out
    assert "object.spec.csi.driver == 'fsx.csi.aws.com'" in " ".join(allowed.split())
    assert "'mountname': 'abcdef01'" in allowed


@pytest.mark.parametrize(
    "tutorial", sorted((PROJECT / "examples/tutorials").glob("*.yaml")), ids=lambda file: file.stem
)
def test_the_tutorials_fit_the_shipped_cluster(run: Run, folder: Path, tutorial: Path) -> None:
    shutil.copy(PROJECT / "cluster.yaml", folder)
    for outputs in (FILES["outputs.json"] | {"c": {"JobsNamespace": "paddle"}}, None):
        if outputs:
            (folder / "outputs.json").write_text(json.dumps(outputs))
        else:
            (folder / "outputs.json").unlink()
        done = run("manifests", str(tutorial))
        assert done.code == 0, done.err

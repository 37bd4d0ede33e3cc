"""Where a job's data comes from: what is uploaded, and what the data job reads by itself."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from k8s_charts.deployed import ClusterOutputs
from k8s_charts.documents import documents
from k8s_charts.kinds.data_job import source
from k8s_charts.spec import TrainingJob
from settings.errors import SettingError

Job = Callable[..., TrainingJob]


@pytest.mark.parametrize(
    ("given", "local"),
    [
        ("sample.tsv", Path("sample.tsv")),
        ("../corpora/words.tsv.gz", Path("../corpora/words.tsv.gz")),
        ("/home/me/corpus.tsv.gz", Path("/home/me/corpus.tsv.gz")),
        ("/home/jobpath-of-mine/words.tsv", Path("/home/jobpath-of-mine/words.tsv")),
        ("~/corpus.tsv", Path.home() / "corpus.tsv"),
    ],
)
def test_a_local_file_is_uploaded_under_the_jobs_name(given: str, local: Path, job: Job, outputs: ClusterOutputs) -> None:
    made = job(data={"source": given})
    assert made.data is not None
    assert made.data.local_file == local
    assert source(made, outputs) == f"s3://paddle-storage-bucket/sources/words/{local.name}"


@pytest.mark.parametrize(
    "given", ["s3://corpus/words/", "https://example.org/a.gz", "http://10.0.0.1/a", "/home/jobpath/raw/words.tsv"]
)
def test_the_data_job_reads_everything_else_itself(given: str, job: Job, outputs: ClusterOutputs) -> None:
    made = job(data={"source": given})
    assert made.data is not None
    assert made.data.local_file is None
    assert source(made, outputs) == given


@pytest.mark.parametrize(
    ("given", "ports"),
    [
        ("s3://corpus/words/", [443]),
        ("https://example.org/a", [443]),
        ("https://example.org:8443/a", [443, 8443]),
        ("http://10.0.0.1/a", [443, 80]),
        ("http://store:9000/a", [443, 80, 9000]),
        ("/home/jobpath/raw", [443]),
    ],
)
def test_the_data_jobs_network_policy_lets_it_reach_its_source(
    given: str, ports: list[int], made: Callable[..., list[dict[str, Any]]], only: Callable[..., dict[str, Any]]
) -> None:
    policy = only(made(data={"source": given}), "NetworkPolicy", component="data")
    anywhere = [rule for rule in policy["spec"]["egress"] if "to" not in rule]
    assert [[port["port"] for port in rule["ports"]] for rule in anywhere] == [ports]


def test_a_path_on_the_volume_is_one_where_the_volume_is_mounted(job: Job) -> None:
    made = job(data={"source": "/nas/raw/words.tsv"}, volume={"mount_path": "/nas"})
    assert made.data is not None
    assert made.data.local_file is None


@pytest.mark.parametrize(
    "given",
    [
        "ftp://a/b",
        "s3://",
        "https:///",
        "https:///f?token=secret",
        "https://h/a b?token=secret",
        "",
        "/",
        "..",
        "~",
        "~root/x",
        "a\0b",
        "https://h/a b",
        "https://h/é",
        "https://me:secret@h/a",
        "https://me:secret@h:99999/a",
        "http://me:secret@h/a b",
    ],
)
def test_what_cannot_be_read_is_refused(given: str, job: Job) -> None:
    with pytest.raises(SettingError, match=r"data\.source") as refusal:
        job(data={"source": given})
    assert "secret" not in str(refusal.value)


OWN = ("/home/jobpath/words", "words", None)


@pytest.mark.parametrize(
    ("volume", "given", "mounted", "made"),
    [
        ({}, "s3://corpus/words", [OWN], None),
        ({}, "/home/jobpath/words/raw.tsv", [OWN], None),
        ({}, "/home/jobpath/words/raw/*.tsv", [OWN], None),
        ({}, "/home/jobpath/raw.tsv", [OWN, ("/home/jobpath/raw.tsv", "raw.tsv", True)], ["words", "raw.tsv"]),
        ({}, "/home/jobpath//wordsworth/./", [OWN, ("/home/jobpath/wordsworth", "wordsworth", True)], ["words", "wordsworth"]),
        ({}, "/home/jobpath/raw/$x/p?rt-*.tsv", [OWN, ("/home/jobpath/raw/$x", "raw/$x", True)], ["words", "raw/$$x"]),
        ({}, "/home/jobpath/raw/a:b/c", [OWN, ("/home/jobpath/raw", "raw", True)], ["words", "raw"]),
        ({}, "/home/jobpath/*.tsv", [OWN, ("/home/jobpath", None, True)], ["words", "."]),
        ({}, "/home/jobpath", [OWN, ("/home/jobpath", None, True)], ["words", "."]),
        ({"kind": "nfs"}, "s3://corpus/words", [OWN], ["words"]),
        ({"kind": "host-path", "path": "/srv"}, "s3://corpus/words", [OWN], ["words"]),
        ({"kind": "claim", "claim": "mine"}, "s3://corpus/words", [OWN], ["words"]),
        (
            {"kind": "nfs", "folder": "team/jobs", "mount_path": "/mnt"},
            "/mnt/raw/*",
            [("/mnt/words", "team/jobs/words", None), ("/mnt/raw", "team/jobs/raw", True)],
            ["team/jobs/words", "team/jobs/raw"],
        ),
    ],
)
def test_a_job_mounts_its_own_folder_and_the_data_job_its_source_read_only(
    volume: dict[str, Any],
    given: str,
    mounted: list[tuple[str, str | None, bool | None]],
    made: list[str] | None,
    only: Callable[..., dict[str, Any]],
    job: Job,
    outputs: ClusterOutputs,
    image: str,
) -> None:
    found = documents(job(volume=volume, data={"source": given}), outputs, image)
    for component, wanted in (("data", mounted), ("trainer", mounted[:1])):
        pod = only(found, "Job", component=component)["spec"]["template"]["spec"]
        mounts = [m for m in pod["containers"][0]["volumeMounts"] if m["name"] == "job"]
        assert [(m["mountPath"], m.get("subPath"), m.get("readOnly")) for m in mounts] == wanted
        makers = pod.get("initContainers", [])
        if component == "data" or volume:
            assert [maker["args"] for maker in makers] == ([made[: len(wanted)]] if made else [])
        else:
            assert makers == []
        for maker in makers:
            # All of the volume is seen where no program of a user runs, and by nobody else.
            assert [m for m in maker["volumeMounts"]] == [{"name": "job", "mountPath": volume.get("mount_path", "/home/jobpath")}]
            assert maker["resources"]["requests"] == maker["resources"]["limits"], "else the pod is not Guaranteed"


@pytest.mark.parametrize(("kind", "made"), [("efs", False), ("nfs", True)])
def test_jobs_of_a_source_mount_its_one_copy_which_only_the_data_job_writes(
    kind: str, made: bool, only: Callable[..., dict[str, Any]], job: Job, outputs: ClusterOutputs, image: str
) -> None:
    settings = {"volume": {"kind": kind}, "command": ["python", "train.py"]}
    of_other_name = documents(job(name="other", data={"source": "s3://corpus/words", "shared": True}, **settings), outputs, image)
    found = documents(job(data={"source": "s3://corpus/words", "shared": True}, **settings), outputs, image)
    elsewhere = documents(job(data={"source": "s3://corpus/others", "shared": True}, **settings), outputs, image)

    def copies(of: list[dict[str, Any]], component: str) -> dict[str, Any]:
        pod = only(of, "Job", component=component)["spec"]["template"]["spec"]
        (mount,) = [m for m in pod["containers"][0]["volumeMounts"] if m.get("subPath", "").startswith("shared/")]
        assert mount["mountPath"] == f"/home/jobpath/{mount['subPath']}"
        name = "other" if of is of_other_name else "words"
        assert [maker["args"] for maker in pod.get("initContainers", [])] == ([[name, "", mount["subPath"]]] if made else [])
        return mount

    data, trainer = copies(found, "data"), copies(found, "trainer")
    assert (data.get("readOnly"), trainer.get("readOnly")) == (None, True)
    assert (
        data["subPath"] == trainer["subPath"] == copies(of_other_name, "data")["subPath"] != copies(elsewhere, "data")["subPath"]
    )
    (container,) = only(found, "Job", component="data")["spec"]["template"]["spec"]["containers"]
    variables = {each["name"]: each.get("value") for each in container["env"]}
    assert variables["PADDLE_NODE_SHARED"] == data["subPath"]
    assert (variables["DATA_FORMAT"], variables["SPLIT_COUNT"]) == ("files", "1") and "SHUFFLE_SEED" not in variables
    (settings_map,) = [each["data"] for each in found if each["kind"] == "ConfigMap" and "PADDLE_NODE_PASSES" in each["data"]]
    assert "PADDLE_NODE_STAGE_TO" not in settings_map


def test_a_source_on_the_volume_has_no_way_out_of_it(job: Job) -> None:
    with pytest.raises(
        SettingError, match=r"data\.source is /home/jobpath/\.\./etc: a path on the volume without \.\. is allowed"
    ):
        job(data={"source": "/home/jobpath/../etc"})


@pytest.mark.parametrize(
    ("mode", "there", "code", "said"),
    [
        (0o777, ["raw"], 0, ""),
        (0o555, ["raw"], 2, "may not make the job's folder on the volume (Permission denied): make team/words there and chown"),
        (0o777, ["raw", "team/words"], 2, "may not write to the job's folder on the volume: make team/words there and chown"),
        (0o700, [], 1, "cannot enter the volume: make team/words there and chown it to 1000:1000"),
        (0o777, [], 2, "data.source is not there: the volume has no raw"),
    ],
)
def test_who_makes_the_jobs_folder_says_why_it_cannot(
    mode: int, there: list[str], code: int, said: str, job: Job, outputs: ClusterOutputs, image: str
) -> None:
    """As user 1000, in a folder that belongs to another user, as on an NFS server; only root can play that."""
    if os.getuid() != 0:
        pytest.skip("only root can be another user")
    made = job(volume={"kind": "nfs", "folder": "team", "mount_path": "/v"})
    (maker,) = documents(made, outputs, image)[-1]["spec"]["template"]["spec"]["initContainers"]
    with tempfile.TemporaryDirectory() as name:
        root, volume = Path(name), Path(name, "v")
        for folder in there:
            (volume / folder).mkdir(parents=True)
        volume.mkdir(exist_ok=True)
        root.chmod(0o755)
        volume.chmod(mode)
        command = [word.replace("$$", "$") for word in (*maker["command"], "team/words", "raw")]
        done = subprocess.run(command, cwd=root, user=1000, group=1000, extra_groups=[], capture_output=True, text=True)
        assert (done.returncode, said in done.stderr) == (code, True), done.stderr
        assert (volume / "team" / "words").is_dir() == (code == 0 or "team/words" in there or "data.source" in said)


@pytest.mark.parametrize(("given", "told"), [(0.9999999, "0.9999999"), (0.12345678, "0.12345678"), (0.1, "0.1"), (0, "0")])
def test_hold_out_is_handed_on_exactly(given: float, told: str, made: Callable[..., list[dict[str, Any]]]) -> None:
    (data,) = [d for d in made(data={"source": "s3://corpus/words", "hold_out": given}) if "-data-" in d["metadata"]["name"]]
    environment = {v["name"]: v.get("value") for v in data["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert environment["HOLD_OUT"] == told and float(told) == given

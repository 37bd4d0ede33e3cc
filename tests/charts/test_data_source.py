"""Where a job's data comes from: what is uploaded, and what the data job reads by itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from k8s_charts.data_job import source
from k8s_charts.errors import JobError
from k8s_charts.outputs import ClusterOutputs
from k8s_charts.spec import TrainingJob

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
    with pytest.raises(JobError, match=r"data\.source") as refusal:
        job(data={"source": given})
    assert "secret" not in str(refusal.value)

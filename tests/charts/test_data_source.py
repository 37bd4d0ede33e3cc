"""Where a job's data comes from: what is uploaded, what the data job reads on its own, and what
each pod sees of the volume.
"""

import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from k8s_charts.deployed import ClusterOutputs
from k8s_charts.documents import documents
from k8s_charts.kinds.data_job import source
from k8s_charts.spec import TrainingJob

Job = Callable[..., TrainingJob]
MakeDocuments = Callable[..., list[dict[str, Any]]]

TABLES = yaml.safe_load(Path(__file__).with_name("data_sources.yaml").read_text())


def only(manifests: list[dict[str, Any]], kind: str, component: str) -> dict[str, Any]:
    """Returns the one document of a kind for a component."""
    (manifest,) = (
        d
        for d in manifests
        if d["kind"] == kind
        and d["metadata"]["labels"].get("app.kubernetes.io/component") == component
    )
    return manifest


@pytest.mark.parametrize(("given", "local"), TABLES["local"])
def test_a_local_file_is_uploaded_under_the_jobs_name(
    given: str, local: str | None, job: Job, outputs: ClusterOutputs
) -> None:
    training_job = job(data={"source": given})
    assert training_job.local_file == (None if local is None else Path(local).expanduser())
    address = (
        given if local is None else f"s3://paddle-storage-bucket/sources/words/{Path(local).name}"
    )
    assert source(training_job, outputs) == address


@pytest.mark.parametrize(("volume", "given", "place"), TABLES["own volumes"])
def test_a_local_file_goes_to_a_volume_that_is_not_the_deployed_one(
    volume: dict[str, Any], given: str, place: str, job: Job, outputs: ClusterOutputs
) -> None:
    assert source(job(data={"source": given}, volume=volume), outputs) == place


@pytest.mark.parametrize(("given", "ports"), TABLES["ports"])
def test_the_data_jobs_network_policy_lets_it_reach_its_source(
    given: str, ports: list[int], make_documents: MakeDocuments
) -> None:
    policy = only(make_documents(data={"source": given}), "NetworkPolicy", "data")
    anywhere = [rule for rule in policy["spec"]["egress"] if "to" not in rule]
    assert [[port["port"] for port in rule["ports"]] for rule in anywhere] == [ports]


@pytest.mark.parametrize(("volume", "given", "mounted", "folders"), TABLES["mounted"])
def test_a_job_mounts_its_own_folder_and_the_data_job_its_source_read_only(
    volume: dict[str, Any],
    given: str,
    mounted: list[Any],
    folders: list[str] | None,
    job: Job,
    outputs: ClusterOutputs,
) -> None:
    manifests = documents(job(data={"source": given}, volume=volume), outputs, "image")
    for component in ("data", "trainer"):
        pod = only(manifests, "Job", component)["spec"]["template"]["spec"]
        mounts = [mount for mount in pod["containers"][0]["volumeMounts"] if mount["name"] == "job"]
        seen = [
            [mount["mountPath"], mount.get("subPath"), mount.get("readOnly")] for mount in mounts
        ]
        # Before `--` the folders to make, behind it pairs: a setting, and what it names.
        makers = [
            [word for word in maker["args"] if word not in ("--", "data.source")]
            for maker in pod.get("initContainers", [])
        ]
        if component == "data":
            assert (seen, makers) == (mounted, [folders] if folders else [])
        else:
            makes = volume.get("kind", "efs") != "efs" and folders is not None
            assert (seen, makers) == (mounted[:1], [folders[:1]] if makes and folders else [])


@pytest.mark.parametrize("volume", [{}, {"kind": "nfs"}])
def test_jobs_of_one_source_share_its_copy_which_trainers_only_read(
    volume: dict[str, Any], make_documents: MakeDocuments
) -> None:
    def copies(
        component: str, source: str = "words", **settings: Any
    ) -> tuple[str, bool, dict[str, str]]:
        """Returns where the copy lies, whether the pod may only read it, and the container's
        variables.
        """
        data = {"source": f"s3://corpus/{source}", "shared": True}
        manifests = make_documents(data=data, command=["train"], volume=volume, **settings)
        pod = only(manifests, "Job", component)["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        (mount,) = [
            m for m in container["volumeMounts"] if m.get("subPath", "").startswith("shared/")
        ]
        assert [maker["args"][1] for maker in pod.get("initContainers", [])] == (
            [mount["subPath"]] if volume else []
        )
        return (
            mount["subPath"],
            mount.get("readOnly", False),
            {variable["name"]: variable.get("value") for variable in container["env"]},
        )

    place, read_only, variables = copies("data")
    assert not read_only and copies("trainer")[:2] == (place, True)
    assert copies("data", name="other")[0] == place != copies("data", "others")[0]
    assert (
        variables["PADDLE_NODE_SHARED"],
        variables["DATA_FORMAT"],
        variables["SPLIT_COUNT"],
    ) == (
        place,
        "files",
        "1",
    )
    assert "SHUFFLE_SEED" not in variables


@pytest.mark.parametrize(("mode", "there", "code", "sentence"), TABLES["made"])
def test_who_makes_the_jobs_folder_says_why_it_cannot(
    mode: int, there: list[str], code: int, sentence: str, make_documents: MakeDocuments
) -> None:
    """Runs as user 1000 in a folder that belongs to another user, as on an NFS server. Only root
    can set this up.
    """
    if os.getuid() != 0:
        pytest.skip("only root can be another user")
    job = make_documents(volume={"kind": "nfs", "folder": "team", "mount_path": "/v"})[-1]
    (maker,) = job["spec"]["template"]["spec"]["initContainers"]
    with tempfile.TemporaryDirectory() as name:
        root, volume = Path(name), Path(name, "v")
        for folder in there:
            (volume / folder).mkdir(parents=True)
        volume.mkdir(exist_ok=True)
        root.chmod(0o755)
        volume.chmod(mode)
        command = [word.replace("$$", "$") for word in (*maker["command"], "team/words")]
        command += ["--", "data.source", "raw"]
        done = subprocess.run(
            command,
            cwd=root,
            user=1000,
            group=1000,
            extra_groups=[],
            capture_output=True,
            text=True,
        )
        assert (done.returncode, sentence in done.stderr) == (code, True), done.stderr
        assert (volume / "team" / "words").is_dir() == (
            code == 0 or "team/words" in there or "data.source" in sentence
        )


@pytest.mark.parametrize(("image", "policy"), TABLES["pulled"])
def test_a_preloaded_version_is_used_and_latest_is_pulled(
    image: str, policy: str, job: Job, outputs: ClusterOutputs
) -> None:
    jobs = [document for document in documents(job(), outputs, image) if document["kind"] == "Job"]
    assert {
        container["imagePullPolicy"]
        for job in jobs
        for container in job["spec"]["template"]["spec"]["containers"]
    } == {policy}


def test_stage_auto_of_an_older_job_file_reads_on_the_volume() -> None:
    """0.1 measured both disks; the setting stays valid."""
    jobs = [
        TrainingJob.parse({"name": "a", "trainers": 1, "data": {"source": "s3://a/b", **stage}})
        for stage in ({}, {"stage": "auto"}, {"stage": False})
    ]
    assert [job.data and job.data.stage for job in jobs] == ["never"] * 3

"""`cancel`, `delete` and Ctrl-C: what ends, what stays, and what a user is told."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import Run
from job_controller import JobController, Script
from kubernetes_api import Fault

from operations.jobs import removal

pytestmark = pytest.mark.slow


def test_cancel_ends_the_pods_and_keeps_the_rest(run: Run, api: JobController, folder: Path) -> None:
    api.scripts["trainer"] = Script(code=None)
    run("submit")
    done = run("cancel")
    first, last = done.err.splitlines()
    assert done.code == 0 and first.startswith("ending words-") and last.startswith("job words is ended (words-")
    assert [job["metadata"]["labels"]["app.kubernetes.io/component"] for job in api.all("jobs")] == ["data"]
    assert not api.of("trainer", "pods")
    assert len(api.all("persistentvolumeclaims")) == 1
    assert run("cancel").err == "job words does not run: nothing to end\n"
    # And it can be submitted again.
    assert run("submit").code == 0


def test_a_job_that_does_not_end_is_waited_for_as_long_as_its_pods_may_save(
    run: Run, api: JobController, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removal, "GONE", 0.0)
    (folder / "job.yaml").write_text((folder / "job.yaml").read_text() + "limits: {grace_period_seconds: 15}\n")
    api.scripts["trainer"] = Script(code=None)
    run("submit")
    (job,) = api.of("trainer")
    assert removal.grace(job) == 15.0
    assert removal.grace({"spec": {"ps": {}, "worker": {"template": {"spec": {"terminationGracePeriodSeconds": 90}}}}}) == 90.0
    monkeypatch.setattr(removal, "grace", lambda document: 0.3)
    api.put("jobs", job | {"metadata": job["metadata"] | {"finalizers": ["foregroundDeletion"]}})
    done = run("cancel")
    assert done.code == 1 and "is not gone after 0 s: a pod of it does not end" in done.err
    # An operator that is gone takes its finalizer off nothing: that is said at once, and at the end.
    monkeypatch.setattr(removal, "LOOK", 0.1)
    api.put("jobs", job | {"metadata": job["metadata"] | {"finalizers": ["operator.example/hold"]}})
    done = run("cancel")
    assert done.code == 1 and done.err.count("operator.example/hold holds it: does its controller run?") == 2


def test_delete_is_refused_while_it_runs(run: Run, api: JobController, folder: Path) -> None:
    api.scripts["trainer"] = Script(code=None)
    run("submit")
    before = dict(api.objects)
    done = run("delete")
    assert done.code == 2 and done.err.endswith("cancel it first, or give --force\n")
    assert api.objects == before
    assert run("delete", "--force").code == 0


def test_delete_leaves_nothing_of_this_job_and_everything_of_others(run: Run, api: JobController, folder: Path) -> None:
    (folder / "other.yaml").write_text((folder / "job.yaml").read_text().replace("words", "other", 1))
    run("submit", "other.yaml", "--wait")
    others = dict(api.objects)
    run("submit", "--wait")
    # A volume of a job of the same name in another namespace.
    volume = next(v for v in api.all("persistentvolumes") if v["metadata"]["name"].startswith("paddle.words"))
    foreign = volume | {"metadata": {"name": "else.words", "labels": volume["metadata"]["labels"]}}
    foreign["spec"] = volume["spec"] | {"claimRef": volume["spec"]["claimRef"] | {"namespace": "else"}}
    api.put("persistentvolumes", foreign)
    done = run("delete", "words")
    assert done.code == 0 and "folder words/ stays on the volume" in done.err
    left = {key for key in api.objects if key[1] != "events"} - others.keys()
    assert left == {("v1", "persistentvolumes", "", "else.words")}
    done = run("delete", "words")
    assert (done.code, done.err) == (2, "there is no job words in namespace paddle: nothing to delete\n")


def test_delete_waits_until_the_claim_is_gone(run: Run, api: JobController, folder: Path) -> None:
    """A claim on its way out takes what a new submission applies, and lets none of its pods start."""
    run("submit", "--wait")
    claim, volume = held(api)

    def leave() -> None:
        api.release("persistentvolumeclaims", claim)
        api.release("persistentvolumes", volume)

    # At the second look at what is on its way out.
    api.faults = [Fault(r"/persistentvolumeclaims\?", "GET", skip=2, then=leave)]
    done = run("delete")
    assert done.code == 0 and "warning" not in done.err
    assert api.all("persistentvolumeclaims") == api.all("persistentvolumes") == []


def test_delete_names_what_holds_a_claim(run: Run, api: JobController, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removal, "LEAVES", 0.2)
    run("submit", "--wait")
    claim, volume = held(api)
    job = {"name": "job", "persistentVolumeClaim": {"claimName": claim}}
    spec = {"containers": [{"name": "shell", "image": "x"}], "volumes": [job]}
    metadata = {"name": "somebodys", "namespace": "paddle", "labels": {}}
    api.put("pods", {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    done = run("delete")
    assert done.code == 0
    assert f"warning: claim {claim} is still there after 0 s, used by pod somebodys: wait until it is gone" in done.err
    api.remove("pods", "somebodys")
    # Nobody takes the finalizer off: a server without controllers, or one whose controller is behind.
    assert "no controller has taken kubernetes.io/pvc-protection off it" in run("delete").err
    api.release("persistentvolumeclaims", claim)
    done = run("delete")
    assert f"warning: volume {volume} is still there after 0 s, no controller has taken kubernetes.io/pv-protection" in done.err


def held(api: JobController) -> tuple[str, str]:
    """The job's claim and volume, with the finalizers that a cluster gives them."""
    names = []
    for plural, finalizer in (("persistentvolumeclaims", "pvc"), ("persistentvolumes", "pv")):
        (document,) = api.all(plural)
        api.put(plural, document | {"metadata": document["metadata"] | {"finalizers": [f"kubernetes.io/{finalizer}-protection"]}})
        names.append(document["metadata"]["name"])
    return names[0], names[1]


def test_a_reader_that_has_had_enough_is_no_error(run: Run, api: JobController, folder: Path) -> None:
    api.scripts["trainer"] = Script(lines=("a line",) * 5000)
    run("submit", "--wait")
    done = subprocess.run(
        f"{sys.executable} -m operations.main logs | head -1",
        shell=True,
        text=True,
        capture_output=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert (done.stdout, done.stderr) == ("trainer 0 | a line\n", "")

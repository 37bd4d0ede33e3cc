"""`cancel`, `delete` and Ctrl-C: what ends, what stays, and what a user reads."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from commands import Run
from job_controller import JobController, Script
from kubernetes_api import Fault

from paddle_aws.operations.jobs import removal

pytestmark = pytest.mark.slow


def test_what_runs_is_cancelled_before_it_is_deleted_and_the_rest_is_kept(
    run: Run, api: JobController, folder: Path
) -> None:
    api.scripts["trainer"] = Script(code=None)
    run("submit")
    before = dict(api.objects)
    done = run("delete")
    assert done.code == 2 and done.err.endswith("cancel it first, or give --force\n")
    assert api.objects == before
    done = run("cancel")
    first, last = done.err.splitlines()
    assert (
        done.code == 0
        and first.startswith("ending words-")
        and last.startswith("job words is ended (words-")
    )
    assert api.all("jobs") == api.of("data") and not api.of("trainer", "pods")
    assert len(api.all("persistentvolumeclaims")) == 1
    assert run("cancel").err == "job words does not run: nothing to end\n"
    assert run("list").out.splitlines()[1].split()[:2] == ["words", "cancelled"]
    (listed,) = json.loads(run("list", "--json").out)
    assert listed["state"] == "cancelled" and run("list").out.count("1/1") == 0
    assert run("status").out.startswith("words is cancelled: `paddle-aws resume` continues it\n")
    done = run("wait")
    assert done.code == 1 and done.err.startswith("job words was cancelled")
    # The job can be submitted again.
    assert run("submit").code == 0 and run("list").out.splitlines()[1].split()[1] == "running"
    assert run("delete", "--force").code == 0


def test_a_job_that_does_not_end_is_waited_for_as_long_as_its_pods_may_save(
    run: Run, api: JobController, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removal, "DELETION_DEADLINE", -14.7)
    (folder / "job.yaml").write_text(
        (folder / "job.yaml").read_text() + "limits: {grace_period_seconds: 15}\n"
    )
    api.scripts["trainer"] = Script(code=None)
    run("submit")
    (job,) = api.of("trainer")
    assert (
        removal.grace({"spec": {"ps": {}, "worker": {"template": job["spec"]["template"]}}}) == 15.0
    )
    job["metadata"]["finalizers"] = ["foregroundDeletion"]
    done = run("cancel")
    assert (
        done.code == 1
        and "is not gone after 0 s: a pod that belongs to it or uses it has not ended" in done.err
    )
    # An operator that is gone never removes its finalizer: the command says so at once, and at the
    # end.
    monkeypatch.setattr(removal, "LOOK_INTERVAL", 0.1)
    job["metadata"]["finalizers"] = ["operator.example/hold"]
    done = run("cancel")
    assert (
        done.code == 1
        and done.err.count("operator.example/hold holds it: does its controller run?") == 2
    )


def test_delete_leaves_nothing_of_this_job_and_everything_of_others(
    run: Run, api: JobController, folder: Path
) -> None:
    (folder / "other.yaml").write_text(
        (folder / "job.yaml").read_text().replace("words", "other", 1)
    )
    run("submit", "other.yaml", "--wait")
    others = set(api.objects)
    run("submit", "--wait")
    # The volume of a job with the same name in another namespace.
    volume = next(
        v for v in api.all("persistentvolumes") if v["metadata"]["name"].startswith("paddle.words")
    )
    claimed = {"claimRef": volume["spec"]["claimRef"] | {"namespace": "else"}}
    labels = volume["metadata"]["labels"]
    api.put(
        volume
        | {"metadata": {"name": "else.words", "labels": labels}, "spec": volume["spec"] | claimed}
    )
    done = run("delete", "words")
    assert done.code == 0 and "folder words/ stays on the volume" in done.err
    assert {path for path in api.objects if "/events/" not in path} - others == {
        "/api/v1/persistentvolumes/else.words"
    }
    done = run("delete", "words")
    assert (done.code, done.err) == (
        2,
        "there is no job words in namespace paddle: nothing to delete\n",
    )


def test_delete_waits_until_claim_and_volume_are_gone(
    run: Run, api: JobController, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim that is being deleted accepts what a new submission applies, but lets none of its
    pods start.
    """
    monkeypatch.setattr(removal, "DELETION_DEADLINE", 0.2)
    run("submit", "--wait")
    (claim,) = api.all("persistentvolumeclaims")
    claim["metadata"]["finalizers"] = ["kubernetes.io/pvc-protection"]
    done = run("delete")
    held = (
        "is not gone after 0 s: a pod that belongs to it or uses it has not ended; run this "
        "command again once it is gone"
    )
    assert (
        done.code == 1 and f"persistentvolumeclaims/{claim['metadata']['name']} {held}" in done.err
    )
    assert api.all("persistentvolumes") == [], "it leaves with its claim"
    api.faults = [
        Fault(
            "/persistentvolumeclaims/",
            "GET",
            skip=1,
            then=lambda: api.remove(claim, finalizers=False),
        )
    ]
    assert run("delete").code == 0
    assert api.all("persistentvolumeclaims") == api.all("persistentvolumes") == []


def test_a_reader_that_has_had_enough_is_no_error(
    run: Run, api: JobController, folder: Path
) -> None:
    api.scripts["trainer"] = Script(lines=("a line",) * 5000)
    run("submit", "--wait")
    command = f"{sys.executable} -m paddle_aws.operations.main logs | head -1"
    done = subprocess.run(command, shell=True, text=True, capture_output=True)
    assert (done.stdout, done.stderr) == ("trainer 0 | a line\n", "")

"""Kubeconfigs that cannot be used: exit code 3 and one sentence for each, without any part of a
credential.
"""

from pathlib import Path

import pytest
import yaml
from commands import Run
from job_controller import JobController
from kubernetes_api import Fault, kubeconfig

from paddle_aws.operations.errors import cli_errors

pytestmark = pytest.mark.slow

SECRET = "nobody-may-see-this-token"
CASES = yaml.safe_load(Path(__file__).with_name("kubeconfigs.yaml").read_text())


@pytest.mark.parametrize("content", CASES)
def test_a_file_that_holds(run: Run, api: JobController, tmp_path: Path, content: str) -> None:
    case, file, version = (
        CASES[content],
        tmp_path / "kubeconfig",
        "client.authentication.k8s.io/v1beta1",
    )
    file.unlink()
    if "exec" in case:
        program = {
            "apiVersion": version,
            "env": [{"name": "SECRET", "value": SECRET}],
            **case["exec"],
        }
        file.write_text(kubeconfig(api.url, {"exec": program}, case.get("name", "double")))
    elif "cluster" in case:
        file.write_text(kubeconfig(user={"token": SECRET}, **case["cluster"]))
    elif case.get("text") is not None:
        file.write_text(case["text"])
    elif "text" not in case:
        file.mkdir()
    done = run("list")
    assert done.code == 3 and case["says"] in done.err
    assert case.get("not", "Traceback") not in done.err
    assert len(done.err.splitlines()) == 1 and SECRET not in done.out + done.err
    # Without a credential the command asks nothing: the answer would blame somebody other than the
    # user.
    assert api.requests == []


def test_a_right_that_lacks_is_told_apart_from_a_rule_for_all(
    run: Run, api: JobController, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.faults = [
        Fault(
            "/jobs",
            status=403,
            message='jobs.batch is forbidden: User "x" cannot list resource "jobs"',
        )
    ]
    assert run("list").err.endswith("; its administrator grants that right\n")
    name = "arn:aws:eks:us-west-2:000000000000:cluster/paddle"
    (folder / "eks").write_text(kubeconfig(api.url, {"token": "good"}, name))
    monkeypatch.setenv("KUBECONFIG", str(folder / "eks"))
    api.faults[0].times = 1
    assert "has to be among cluster.yaml's administrators or deployers" in run("list").err
    api.faults = [
        Fault(
            "/namespaces/paddle\\?",
            "PATCH",
            status=403,
            message="exceeded quota: small, requested: count/jobs.batch=1",
        )
    ]
    done = run("submit")
    assert (
        done.code == 3 and "exceeded quota: small" in done.err and "administrators" not in done.err
    )


def test_what_is_no_name_is_never_sent(run: Run, api: JobController, folder: Path) -> None:
    for name in ("a b", "../words", "", "WORDS", "words/x", "-x" * 40):
        for command in (("status", "--", name), ("list", f"--namespace={name}")):
            done = run(*command)
            assert done.code == 2 and "lower-case" in done.err
    done = run("list", "--context", "other")
    assert done.code == 3 and "has no context other" in done.err
    assert api.requests == []


def test_a_place_that_cannot_be_written(run: Run, folder: Path) -> None:
    """A file is where the folder should be."""
    (folder / "note").write_text("x")
    done = run("manifests", "--out", "note/dist")
    assert (done.code, done.err) == (2, "note/dist cannot be used: Not a directory\n")


def test_a_disk_that_is_full_while_a_file_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, cli_errors(), Path("/dev/full").open("w") as file:
        file.write("x")
    assert ended.value.code == 1
    assert (
        capsys.readouterr().err
        == "the disk, or what the output goes to, cannot be used: No space left on device\n"
    )

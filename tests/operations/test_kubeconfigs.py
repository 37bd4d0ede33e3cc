"""Kubeconfigs that cannot be used: one sentence and exit code 3 for each, in which nothing of a credential is."""

from pathlib import Path
from typing import Any

import pytest
from commands import Run
from job_controller import JobController
from kubernetes_api import Fault, kubeconfig

from operations.errors import cli_errors

pytestmark = pytest.mark.slow

SECRET = "nobody-may-see-this-token"
TOKEN, NOBODY = {"token": SECRET}, "https://127.0.0.1:9"


def program(**settings: Any) -> str:
    """A kubeconfig whose user's credential a program gives."""
    version = "client.authentication.k8s.io/v1beta1"
    user = {"exec": {"apiVersion": version, "env": [{"name": "SECRET", "value": SECRET}], **settings}}
    return kubeconfig("{api}", user)


def shell(command: str) -> str:
    return program(command="sh", args=["-c", command])


NO_CREDENTIAL = "the program that the kubeconfig names for your credential gave none: log in to AWS again"
FILES = {
    "a program that fails": (shell('echo "$SECRET"; echo "$SECRET" >&2; exit 3'), NO_CREDENTIAL),
    "a program that is not there": (program(command="/nowhere/aws"), NO_CREDENTIAL),
    "a program that gives no document": (shell('echo "$SECRET"'), NO_CREDENTIAL),
    "a program that gives nothing": (shell("echo '{}'"), NO_CREDENTIAL),
    "a program without a name": (program(), NO_CREDENTIAL),
    "half a document": (f"users: [{{token: {SECRET}", "is no kubeconfig"),
    "a text": (SECRET, "is no kubeconfig"),
    "nothing": ("", "`paddle-aws kubeconfig` writes one"),
    "a user of a wrong name": (
        kubeconfig(NOBODY, TOKEN).replace("user:\n", "usr:\n"),
        "cannot be used (Invalid kube-config file. Expected key user",
    ),
    "no certificate": (kubeconfig(NOBODY, TOKEN, **{"certificate-authority": "/nowhere/ca"}), "does not exist: /nowhere/ca"),
    "half an address": (kubeconfig("127.0.0.1:9", TOKEN), "server is 127.0.0.1:9: it has to begin with https://"),
    "no server": (kubeconfig("http://127.0.0.1:9", TOKEN, "c"), "cluster c (http://127.0.0.1:9) cannot be reached"),
    "a folder": (None, "is no kubeconfig"),
}


@pytest.mark.parametrize("content", FILES)
def test_a_file_that_holds(run: Run, api: JobController, tmp_path: Path, content: str) -> None:
    text, words = FILES[content]
    (tmp_path / "kubeconfig").unlink()
    if text is None:
        (tmp_path / "kubeconfig").mkdir()
    else:
        (tmp_path / "kubeconfig").write_text(text.replace("{api}", api.url))
    done = run("list")
    assert done.code == 3 and words in done.err
    assert len(done.err.splitlines()) == 1 and SECRET not in done.out + done.err
    # Without a credential nothing is asked: the answer would blame somebody who is not the user.
    assert api.requests == []


def test_a_context_that_is_not_there(run: Run, api: JobController) -> None:
    done = run("list", "--context", "other")
    assert done.code == 3 and "has no context other" in done.err


def test_a_right_that_lacks_is_told_apart_from_a_rule_for_all(run: Run, api: JobController, folder: Path) -> None:
    api.faults = [Fault("/jobs", status=403, message='jobs.batch is forbidden: User "x" cannot list resource "jobs"')]
    assert "has to be among cluster.yaml's administrators or deployers" in run("list").err
    api.faults = [
        Fault("/namespaces/paddle\\?", "PATCH", status=403, message="exceeded quota: small, requested: count/jobs.batch=1")
    ]
    done = run("submit")
    assert done.code == 3 and "exceeded quota: small" in done.err and "administrators" not in done.err


@pytest.mark.parametrize("name", ["a b", "../words", "", "WORDS", "words/x", "-x" * 40])
def test_what_is_no_name_is_never_sent(run: Run, api: JobController, folder: Path, name: str) -> None:
    for command in (("status", "--", name), ("list", f"--namespace={name}")):
        done = run(*command)
        assert done.code == 2 and "lower-case" in done.err
    assert api.requests == []


def test_a_place_that_cannot_be_written(run: Run, folder: Path) -> None:
    """A file is in the way of the folder."""
    (folder / "note").write_text("x")
    done = run("manifests", "--out", "note/dist")
    assert (done.code, done.err) == (2, "note/dist cannot be used: Not a directory\n")


def test_a_disk_that_is_full_while_a_file_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, cli_errors(), Path("/dev/full").open("w") as file:
        file.write("x")
    assert ended.value.code == 1
    assert capsys.readouterr().err == "the disk, or what the output goes to, cannot be used: No space left on device\n"

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
NO_CREDENTIAL = "the program that the kubeconfig names for your credential gave none: log in to AWS again"


def program(*command: str) -> dict[str, Any]:
    """A user whose credential a shell command gives."""
    environment = [{"name": "SECRET", "value": SECRET}]
    version = "client.authentication.k8s.io/v1beta1"
    return {"exec": {"apiVersion": version, "command": command[0], "args": list(command[1:]), "env": environment}}


USERS = {
    "fails": (program("sh", "-c", 'echo "$SECRET"; echo "$SECRET" >&2; exit 3'), NO_CREDENTIAL),
    "is not there": (program("/nowhere/aws"), NO_CREDENTIAL),
    "gives no document": (program("sh", "-c", 'echo "$SECRET"'), NO_CREDENTIAL),
    "gives nothing": (program("sh", "-c", "echo '{}'"), NO_CREDENTIAL),
    "has no name": ({"exec": {"apiVersion": "v1", "env": [{"name": "SECRET", "value": SECRET}]}}, NO_CREDENTIAL),
}


@pytest.mark.parametrize("user", USERS)
def test_a_credential_program_that(run: Run, api: JobController, tmp_path: Path, user: str) -> None:
    settings, words = USERS[user]
    api.kubeconfig(tmp_path / "kubeconfig", settings)
    done = run("list")
    assert done.code == 3 and words in done.err
    assert len(done.err.splitlines()) == 1 and SECRET not in done.out + done.err
    # Without a credential nothing is asked: the answer would blame somebody who is not the user.
    assert api.requests == []


TOKEN, NOBODY = {"token": SECRET}, "https://127.0.0.1:9"
FILES = {
    "half a document": (f"users: [{{token: {SECRET}", "is no kubeconfig"),
    "a text": (SECRET, "is no kubeconfig"),
    "nothing": ("", "`paddle-aws kubeconfig` writes one"),
    "a user of a wrong name": (
        kubeconfig(NOBODY, TOKEN).replace("  user:\n", "  usr:\n"),
        "cannot be used (Invalid kube-config file. Expected key user",
    ),
    "a certificate that is not there": (
        kubeconfig(NOBODY, TOKEN, **{"certificate-authority": "/nowhere/ca"}),
        "does not exist: /nowhere/ca",
    ),
    "an address without its beginning": (
        kubeconfig("127.0.0.1:9", TOKEN),
        "server is 127.0.0.1:9: it has to begin with https://",
    ),
    "a server that is not there": (
        kubeconfig("http://127.0.0.1:9", TOKEN, "c"),
        "cluster c (http://127.0.0.1:9) cannot be reached",
    ),
    "a folder": (None, "is no kubeconfig"),
}


@pytest.mark.parametrize("content", FILES)
def test_a_file_that_holds(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str) -> None:
    text, words = FILES[content]
    (tmp_path / "kubeconfig").write_text(text) if text is not None else (tmp_path / "kubeconfig").mkdir()
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    done = run("list")
    assert done.code == 3 and words in done.err
    assert len(done.err.splitlines()) == 1 and SECRET not in done.out + done.err


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
    for command in (("status", name), ("list", "-n", name)) if not name.startswith("-") else (("status", "--", name),):
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

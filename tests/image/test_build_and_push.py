"""`make image` and `make push`: what they say when something is missing, and what they write when all is there.

Limits: the engine is a stand-in (a script that writes down how it was called, and "pushes" by putting a manifest into the
emulated ECR); the real engine builds in test_container.py, and no registry is near to push to.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from operations import image

PROJECT = Path(__file__).parents[2]

ENGINE = """#!{python}
import json, os, sys
arguments = sys.argv[1:]
with open(os.environ["CALLS"], "a") as calls:
    calls.write(json.dumps([os.path.basename(sys.argv[0]), *arguments]) + "\\n")
if arguments[0] == "info":
    sys.exit(0 if os.path.basename(sys.argv[0]) in os.environ["ALIVE"].split() else 1)
if arguments[:2] == ["image", "inspect"]:
    if os.environ.get("NO_IMAGE"):
        sys.exit(1)
    known = {{"{{{{.Id}}}}": "sha256:0123456789abcdef", "{{{{.Size}}}}": "839000000"}}
    print(known.get(arguments[3] if len(arguments) > 3 else "", "[]"))
if arguments[0] == "login":
    assert sys.stdin.read()
    if os.environ.get("REFUSED"):
        print("Error: denied: token expired", file=sys.stderr)
        sys.exit(1)
if arguments[0] == "push":
    import boto3
    repository, tag = arguments[1].split("/", 1)[1].rsplit(":", 1)
    manifest = json.dumps({{"schemaVersion": 2, "tag": tag}})
    boto3.client("ecr").put_image(repositoryName=repository, imageTag=tag, imageManifest=manifest)
"""


class Machine:
    """A PATH of its own, with the engines that a test asks for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        (self.bin / "git").symlink_to("/usr/bin/git")
        self.environ = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")} | {
            "PATH": str(self.bin),
            "CALLS": str(folder / "calls"),
            "ALIVE": "docker podman",
            "HOME": str(folder),
            "PYTHONPATH": str(PROJECT),
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def install(self, *engines: str) -> None:
        for name in engines:
            (self.bin / name).write_text(ENGINE.format(python=sys.executable))
            (self.bin / name).chmod(0o755)

    def run(self, *arguments: str) -> Result:
        """In this process, for speed; in the machine's folder and with nothing but its environment."""
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.folder)
            for name in os.environ:
                if name not in self.environ:
                    patch.delenv(name)
            for name, value in self.environ.items():
                patch.setenv(name, value)
            return CliRunner().invoke(image.app, arguments)

    def calls(self) -> list[list[str]]:
        path = self.folder / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def outputs(self, repository: str = "000000000000.dkr.ecr.us-west-2.amazonaws.com/paddle-trainer") -> None:
        (self.folder / "outputs.json").write_text(
            json.dumps({"paddle-storage": {"RepositoryUri": repository}, "paddle-nodes": {}})
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def refused(done: Result, code: int, sentence: str) -> None:
    assert (done.exit_code, done.stderr) == (code, sentence + "\n")


def test_no_engine(machine: Machine) -> None:
    refused(machine.run("build"), 2, "no container engine was found: install docker or podman")


def test_a_docker_without_its_daemon(machine: Machine) -> None:
    machine.install("docker")
    machine.environ["ALIVE"] = ""
    refused(machine.run("build"), 2, "docker does not answer (`docker info` fails): start it, or install docker or podman")


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_build(machine: Machine, engine: str) -> None:
    machine.install("docker", "podman")
    machine.environ["ALIVE"] = engine
    done = machine.run("build", "--base", "my/base:1", "--requirements", "trainer_image/requirements-collective.lock")
    assert done.exit_code == 0, done.stderr
    assert done.stdout == "built paddle-aws-trainer:0.1.0: 839 MB unpacked\n"
    build = next(call for call in machine.calls() if call[1] == "build")
    assert build[0] == engine
    assert "BASE=my/base:1" in build
    assert "REQUIREMENTS=trainer_image/requirements-collective.lock" in build
    assert build[-1] == str(PROJECT)
    assert ("--ignorefile" in build) == (engine == "podman")


def test_requirements_that_do_not_exist(machine: Machine) -> None:
    refused(
        machine.run("build", "--requirements", "none.lock"),
        2,
        f"none.lock does not exist below {PROJECT}: name a file of locked requirements",
    )


def test_push_before_deploy(machine: Machine) -> None:
    refused(machine.run("push"), 2, "outputs.json does not exist: deploy with `cdk deploy --all --outputs-file outputs.json`")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "outputs.json is no outputs file of cdk deploy: "),
        ("{}", "outputs.json has 0 outputs named RepositoryUri, one is needed: deploy the storage stack of one cluster"),
    ],
)
def test_outputs_that_are_none(machine: Machine, content: str, sentence: str) -> None:
    (machine.folder / "outputs.json").write_text(content)
    done = machine.run("push")
    assert done.exit_code == 2
    assert done.stderr.startswith(sentence)
    assert len(done.stderr.splitlines()) == 1


def test_push_before_build(machine: Machine) -> None:
    machine.install("docker")
    machine.outputs()
    machine.environ["NO_IMAGE"] = "1"
    refused(machine.run("push"), 2, "there is no image paddle-aws-trainer:0.1.0 yet: run `make image` first")


def test_push_without_credentials(machine: Machine) -> None:
    machine.install("docker")
    machine.outputs()
    refused(machine.run("push"), 3, "no AWS credentials were found: log in (aws configure, aws sso login), or set AWS_PROFILE")


@pytest.mark.slow
class TestAgainstAnEmulatedRegistry:
    """ECR's API is the emulator's."""

    @pytest.fixture
    def deployed(self, machine: Machine, tmp_path: Path):
        from rehearsal.cloud import Cloud

        machine.install("docker")
        machine.outputs()
        with Cloud(PROJECT, tmp_path / "state") as cloud:
            machine.environ |= {name: value for name, value in cloud.environment.items() if name.startswith("AWS_")}
            self.ecr = cloud.client("ecr")
            self.ecr.create_repository(repositoryName="paddle-trainer", imageTagMutability="IMMUTABLE")
            yield machine

    def test_push_writes_the_digest_and_pushing_again_changes_nothing(self, deployed: Machine) -> None:
        done = deployed.run("push")
        assert done.exit_code == 0, done.stderr
        digest = self.ecr.describe_images(repositoryName="paddle-trainer")["imageDetails"][0]["imageDigest"]
        image = f"000000000000.dkr.ecr.us-west-2.amazonaws.com/paddle-trainer@{digest}"
        assert json.loads((deployed.folder / "image.json").read_text()) == {"image": image}
        tags = [call[-1] for call in deployed.calls() if call[1] == "push"]
        assert tags == ["000000000000.dkr.ecr.us-west-2.amazonaws.com/paddle-trainer:0.1.0-0123456789ab"]

        again = deployed.run("push")
        assert again.exit_code == 0, again.stderr
        assert len([call for call in deployed.calls() if call[1] == "push"]) == 1, "its tag is immutable, and it is there"

    def test_a_login_that_is_refused(self, deployed: Machine) -> None:
        deployed.environ["REFUSED"] = "1"
        refused(
            deployed.run("push"),
            1,
            "docker could not log in to 000000000000.dkr.ecr.us-west-2.amazonaws.com: Error: denied: token expired",
        )
        assert not (deployed.folder / "image.json").exists()

    def test_a_repository_that_is_gone(self, deployed: Machine) -> None:
        self.ecr.delete_repository(repositoryName="paddle-trainer", force=True)
        refused(
            deployed.run("push"),
            2,
            "there is no repository paddle-trainer in account 000000000000: are the outputs those of a cluster that is gone?",
        )

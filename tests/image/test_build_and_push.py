# ruff: noqa: E501 (tables, one row a line)
"""`make image` and `make push`: what they say when something is missing, and what they write when
nothing is.

Limits: the engine is a stand-in (a script that records how it was called, and "pushes" by putting a
manifest into the emulated ECR); the real engine builds in test_container.py, and there is no real
registry to push to.
"""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from k8s_charts import deployed as chosen
from k8s_charts.deployed import ClusterOutputs
from k8s_charts.spec import TrainingJob
from paddle_aws.operations.images import image
from paddle_settings.errors import SettingError

PROJECT = Path(__file__).parents[2]
JOB = Path(__file__).with_name("job.yaml").read_text()
WRITTEN = yaml.safe_load(Path(__file__).with_name("build_and_push.yaml").read_text())

ENGINE = """#!{python}
import json, os, stat, sys
arguments = sys.argv[1:]
with open(os.environ["CALLS"], "a") as calls:
    calls.write(json.dumps([os.path.basename(sys.argv[0]), *arguments]) + "\\n")
if arguments[0] == "info":
    # A real engine may leave a process behind, which would hold a pipe open.
    assert not stat.S_ISFIFO(os.fstat(1).st_mode)
    sys.exit(0 if os.path.basename(sys.argv[0]) in os.environ["ALIVE"].split() else 1)
if arguments[:2] == ["image", "inspect"]:
    if os.environ.get("NO_IMAGE"):
        sys.exit(1)
    known = {{'{{{{join .RepoDigests "\\\\n"}}}}': f"corp.example/other@sha256:{{'1' * 64}}\\n{{arguments[-1].rpartition(':')[0]}}@sha256:{{'2' * 64}}",
        "{{{{.Id}}}}": "sha256:fedcba9876543210" if "-3.3-" in arguments[-1] else "sha256:0123456789abcdef", "{{{{.Size}}}}": "839000000"}}
    print(known.get(arguments[3] if len(arguments) > 3 else "", "[]"))
if arguments[0] == "build" and os.environ.get("PIP_SAYS") and "REQUIREMENTS=six>=1.16" in arguments:
    sys.exit(os.environ["PIP_SAYS"])
if arguments[0] == "login":
    assert sys.stdin.read()
    if os.environ.get("REFUSED"):
        print("Error: denied: token expired", file=sys.stderr)
        sys.exit(1)
if arguments[:2] == ["push", "--digestfile"]:
    sys.exit(not open(arguments[2], "w").write(f"sha256:{{'2' * 64}}"))
if arguments[0] == "push" and "amazonaws" in arguments[-1]:
    import boto3
    repository, tag = arguments[1].split("/", 1)[1].rsplit(":", 1)
    manifest = json.dumps({{"schemaVersion": 2, "tag": tag}})
    boto3.client("ecr").put_image(repositoryName=repository, imageTag=tag, imageManifest=manifest)
"""


class Machine:
    """The test's folder, with only git and the engines that a test asks for on the PATH; AWS is not
    configured.
    """

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.set = folder, patch.setenv
        (folder / "bin").mkdir()
        (folder / "bin" / "git").symlink_to("/usr/bin/git")
        patch.chdir(folder)
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        paths = {
            "PATH": folder / "bin",
            "HOME": folder,
            "CALLS": folder / "calls",
            "PYTHONPATH": PROJECT,
        }
        for name, value in {
            **paths,
            "ALIVE": "docker podman",
            "AWS_EC2_METADATA_DISABLED": "true",
        }.items():
            patch.setenv(name, str(value))

    def install(self, *engines: str) -> None:
        for name in engines:
            (self.folder / "bin" / name).write_text(ENGINE.format(python=sys.executable))
            (self.folder / "bin" / name).chmod(0o755)

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(image.app, arguments)

    def calls(self, of: str) -> list[list[str]]:
        """Returns the engines' calls of one command."""
        calls = map(json.loads, (self.folder / "calls").read_text().splitlines())
        return [call for call in calls if call[1] == of]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


@pytest.mark.parametrize("row", WRITTEN["missing"], ids=lambda row: row["says"])
def test_what_is_missing_is_one_sentence(machine: Machine, row: dict[str, Any]) -> None:
    machine.install(*row.get("engines", ()))
    for name, value in row.get("environment", {}).items():
        machine.set(name, value)
    if "outputs" in row:
        (machine.folder / "outputs.json").write_text(row["outputs"])
    done = machine.run(*row["command"].split())
    assert done.exit_code == row.get("code", 2) and done.stderr.startswith(
        row["says"].format(project=PROJECT)
    )
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_build(machine: Machine, engine: str) -> None:
    machine.install("docker", "podman")
    machine.set("ALIVE", engine)
    done = machine.run(
        "build",
        "--base",
        "my/base:1",
        "--requirements",
        "trainer_image/requirements-collective.lock",
    )
    assert done.exit_code == 0, done.stderr
    assert done.stdout == "built paddle-aws-trainer:0.1.0: 839 MB unpacked\n"
    (build,) = machine.calls("build")
    assert build[0] == engine
    assert "BASE=my/base:1" in build
    assert "REQUIREMENTS=trainer_image/requirements-collective.lock" in build
    assert build[-1] == str(PROJECT)
    assert ("--ignorefile" in build) == (engine == "podman")


def test_a_jobs_own_packages_are_one_layer_on_the_image_with_its_paddle(machine: Machine) -> None:
    machine.install("docker")
    (machine.folder / "job.yaml").write_text(JOB)
    done = machine.run("build", "--job", "job.yaml")
    assert done.exit_code == 0, done.stderr
    (layer,) = machine.calls("build")
    assert {
        "BASE=paddle-aws-trainer:0.1.0-paddle3.3",
        "REQUIREMENTS=six>=1.16",
        "PACKAGES=libgl1",
    } <= set(layer)
    assert layer[layer.index("--file") + 1] == str(PROJECT / "trainer_image" / "Dockerfile.program")
    assert re.search(
        r"^built paddle-aws-trainer:0.1.0-3.3-[0-9a-f]{12}-0123456789ab: ", done.stdout, re.M
    )

    machine.set("NO_IMAGE", "1")
    assert machine.run("build", "--job", "job.yaml").exit_code == 0
    _, image, _ = machine.calls("build")
    assert "REQUIREMENTS=trainer_image/requirements-collective.lock" in image, (
        "the image with Paddle 3.3 comes first"
    )


def test_requirements_longer_than_an_argument_need_no_image(machine: Machine) -> None:
    machine.install("docker")
    (machine.folder / "job.yaml").write_text(JOB.replace("six>=1.16", f"six>=1.{16:0120000}"))
    done = machine.run("build", "--job", "job.yaml")
    assert done.exit_code == 2 and "or use `environment: built`" in done.stderr


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_push_to_a_repository_of_ones_own(machine: Machine, engine: str) -> None:
    machine.install(engine)
    machine.set("ALIVE", engine)
    done = machine.run("push", "--repository", "registry.corp.example:5000/team/paddle")
    assert done.exit_code == 0, done.stderr
    (pushed,) = machine.calls("push")
    assert pushed[-1] == "registry.corp.example:5000/team/paddle:0.1.0-0123456789ab"
    image = f"registry.corp.example:5000/team/paddle@sha256:{'2' * 64}"
    assert json.loads((machine.folder / "image.json").read_text()) == {"image": image}
    assert chosen.pushed_images(machine.folder / "image.json") == {"": image}


@pytest.mark.parametrize("row", WRITTEN["does not fit"], ids=lambda row: row["build"])
def test_packages_that_do_not_fit(machine: Machine, row: dict[str, Any]) -> None:
    machine.install("docker")
    (machine.folder / "job.yaml").write_text(JOB)
    machine.set("PIP_SAYS", row["build"])
    done = machine.run("build", "--job", "job.yaml")
    assert done.exit_code == row.get("code", 2) and re.fullmatch(row["says"] + "\n", done.stderr)


@pytest.mark.slow
class TestAgainstAnEmulatedRegistry:
    """The emulator serves ECR's API."""

    @pytest.fixture
    def deployed(self, machine: Machine, tmp_path: Path):
        from paddle_aws.rehearsal.cloud import Cloud

        machine.install("docker")
        (machine.folder / "outputs.json").write_text(WRITTEN["deployed"])
        with Cloud(PROJECT, tmp_path / "state") as cloud:
            for name in [name for name in cloud.environment if name.startswith("AWS_")]:
                machine.set(name, cloud.environment[name])
            self.ecr = cloud.client("ecr")
            self.ecr.create_repository(
                repositoryName="paddle-trainer", imageTagMutability="IMMUTABLE"
            )
            yield machine

    def test_push_writes_the_digests_of_the_image_and_of_a_jobs_own_beside_it(
        self, deployed: Machine
    ) -> None:
        file, outputs = (
            deployed.folder / "job.yaml",
            ClusterOutputs.placeholder().model_copy(update={"placeholders": False}),
        )
        file.write_text(JOB)

        def pushed_for_it() -> str:
            return chosen.choose_image(
                TrainingJob.load(file), outputs, deployed.folder / "image.json"
            )

        with pytest.raises(
            SettingError,
            match=r"in no image that was pushed .*: run `make image push JOB=<this job file>`",
        ):
            pushed_for_it()
        for _ in range(2):
            done = deployed.run("push")
            assert done.exit_code == 0, done.stderr
            digest = self.ecr.describe_images(repositoryName="paddle-trainer")["imageDetails"][0][
                "imageDigest"
            ]
            image = f"000000000000.dkr.ecr.us-west-2.amazonaws.com/paddle-trainer@{digest}"
            assert json.loads((deployed.folder / "image.json").read_text()) == {"image": image}
        (pushed,) = deployed.calls("push")  # The second time, the immutable tag exists already.
        assert (
            pushed[-1]
            == "000000000000.dkr.ecr.us-west-2.amazonaws.com/paddle-trainer:0.1.0-0123456789ab"
        )
        with pytest.raises(SettingError, match=r"in no image that was pushed"):
            pushed_for_it()

        done = deployed.run("push", "--job", "job.yaml")
        assert done.exit_code == 0, done.stderr
        written = json.loads((deployed.folder / "image.json").read_text())
        (variant,) = written["variants"].values()
        assert pushed_for_it() == variant != written["image"] == image
        file.write_text(JOB.replace("1.16", "1.17"))
        with pytest.raises(SettingError, match="in no image that was pushed"):
            pushed_for_it()

    def test_a_login_that_is_refused_and_a_repository_that_is_gone(self, deployed: Machine) -> None:
        deployed.set("REFUSED", "1")
        done = deployed.run("push")
        host = "000000000000.dkr.ecr.us-west-2.amazonaws.com"
        assert (done.exit_code, done.stderr) == (
            1,
            f"docker could not log in to {host}: Error: denied: token expired\n",
        )
        self.ecr.delete_repository(repositoryName="paddle-trainer", force=True)
        done, gone = (
            deployed.run("push"),
            "there is no repository paddle-trainer in account 000000000000",
        )
        assert (done.exit_code, done.stderr) == (
            2,
            f"{gone}: deploy the cluster of these outputs\n",
        )
        assert not (deployed.folder / "image.json").exists()

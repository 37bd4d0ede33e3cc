"""Builds the trainer image, pushes it to the deployed repository, and records its digest where
job.yaml's image comes from.

`make image` and `make push` run this module. It is here and not in trainer_image/ because it is not
part of the image: it reads the deployed stacks' outputs and talks to AWS.
"""

import base64
import json
import re
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from k8s_charts import deployed as chosen
from k8s_charts.deployed import read_outputs
from k8s_charts.spec import TrainingJob
from k8s_charts.spec.program_archive import LOCKS
from paddle_aws.operations.account.aws import client
from paddle_aws.operations.cluster import reasons
from paddle_aws.operations.errors import BadInput, Failed, cli_errors
from paddle_aws.operations.images.container_runtime import ContainerRuntime
from paddle_aws.operations.options import IMAGE_FILE, OUTPUTS, ImageFile, Outputs
from paddle_aws.operations.screen import echo

PROJECT = Path(__file__).parents[3]
DOCKERFILE = PROJECT / "trainer_image" / "Dockerfile"
NAME = "paddle-aws-trainer"
VERSION = version("paddle-aws")
ARGUMENT_LIMIT = 120_000
"""Most bytes of a build's argument: Linux allows 131,072."""
REPOSITORY = re.compile(r"[a-z0-9.-]+(:\d+)?(/[a-z0-9._-]+)+")
JOB = "For this job file: the image with its Paddle and its program's requirements."

app = typer.Typer(help="Build and push the trainer image.", no_args_is_help=True)


@app.command()
@cli_errors("interrupted: no image was made")
def build(
    base: Annotated[
        str, typer.Option(help="Base image: Debian or Ubuntu with Python 3.11 or 3.12.")
    ] = "",
    requirements: Annotated[
        str,
        typer.Option(
            help="Locked requirements, below the project; requirements-collective.lock has Paddle "
            "3.3.1 without pservers."
        ),
    ] = LOCKS["2.6"],
    tag: Annotated[str, typer.Option(help="Local name of the image.")] = "",
    job_file: Annotated[Path | None, typer.Option("--job", help=JOB)] = None,
) -> None:
    """Build the image with docker or podman; for a job with requirements, one layer on it."""
    job = None if job_file is None else TrainingJob.load(job_file, fetch=True)
    if job is not None and requirements == LOCKS["2.6"]:
        requirements = LOCKS[job.chosen_paddle]
    if not (PROJECT / requirements).is_file():
        raise BadInput(
            f"{requirements} does not exist below {PROJECT}: name a file of locked requirements"
        )
    runtime = ContainerRuntime.find()
    tag = tag or local_name(job)
    derived = job is not None and job.derived
    if not (job is not None and derived and (job.image is not None or runtime.image_id(tag))):
        arguments = {"REQUIREMENTS": requirements, "VERSION": VERSION, "REVISION": _revision()}
        runtime.build(PROJECT, DOCKERFILE, tag, arguments | ({"BASE": base} if base else {}))
        echo(f"built {tag}: {runtime.size(tag) / 1e6:,.0f} MB unpacked")
    if job is not None and derived:
        _derive(runtime, job, tag)


@app.command()
@cli_errors("interrupted: image.json is as it was")
def push(
    outputs: Outputs = OUTPUTS,
    image_file: ImageFile = IMAGE_FILE,
    tag: Annotated[str, typer.Option(help="Local name of the image.")] = "",
    job_file: Annotated[Path | None, typer.Option("--job", help=JOB)] = None,
    repository: Annotated[
        str,
        typer.Option(
            help="A repository of your own, <host>/<name>, where docker or podman is logged in; "
            "default: the deployed one."
        ),
    ] = "",
) -> None:
    """Push the image to the deployed repository and write its digest to image.json."""
    if repository and not REPOSITORY.fullmatch(repository):
        raise BadInput(f"--repository is {repository!r}: allowed is <host>/<name>, no tag")
    deployed = "" if repository else repository_uri(outputs)
    job = None if job_file is None else TrainingJob.load(job_file, fetch=True)
    variant = "" if job is None else job.image_variant
    runtime = ContainerRuntime.find()
    tag = tag or local_name(job)
    if job is not None and job.derived:
        tag = _derived_name(runtime, job, tag)
    if not runtime.image_id(tag):
        raise BadInput(
            f"there is no image {tag} yet: run `make "
            f"image{f' JOB={job_file}' if variant else ''}` first"
        )
    image = _push(runtime, tag, deployed) if deployed else _push_own(runtime, tag, repository)
    # A new base image outdates the variants that were built on the previous one.
    images = chosen.pushed_images(image_file) if variant and image_file.exists() else {}
    images[variant] = image
    document: dict[str, object] = {"image": images.pop("")} if "" in images else {}
    if cuda := runtime.cuda(tag):
        document["cuda"] = cuda
    temporary = image_file.with_name(f".{image_file.name}.tmp")
    temporary.write_text(json.dumps(document | ({"variants": images} if images else {})) + "\n")
    temporary.replace(image_file)
    echo(f"pushed {image}\n{image_file} names it: jobs without an image of their own use it")


def local_name(job: TrainingJob | None = None) -> str:
    """Returns the image's local name from `make image`; for a job, the image that it names, or else
    that of its Paddle.
    """
    if job is not None and job.image is not None:
        return job.image
    paddle = "" if job is None or job.chosen_paddle == "2.6" else f"-paddle{job.chosen_paddle}"
    return f"{NAME}:{VERSION}{paddle}"


def _derived_name(runtime: ContainerRuntime, job: TrainingJob, base: str) -> str:
    """Names the base by its id, because another base makes another image. A base of job.yaml may
    not be on this machine before the build.
    """
    of = "own" if job.image is not None else runtime.image_id(base)[:12]
    return f"{NAME}:{VERSION}-{job.image_variant}-{of}"


def _derive(runtime: ContainerRuntime, job: TrainingJob, base: str) -> None:
    tag, notes = _derived_name(runtime, job, base), list[str]()
    program = job.program
    if (size := len(program.requirements_text.encode())) > ARGUMENT_LIMIT:
        raise BadInput(
            f"program.requirements has {size:,} bytes: the build of an image takes "
            f"{ARGUMENT_LIMIT:,}, leave out the hashes or use `environment: built`"
        )
    arguments = {
        "BASE": base,
        "REQUIREMENTS": program.requirements_text.strip(),
        "PACKAGES": " ".join(program.packages),
    }
    try:
        runtime.build(PROJECT, DOCKERFILE.with_suffix(".program"), tag, arguments, notes.append)
    except Failed:
        output = "".join(notes)
        if refused := re.findall(r"environment: (program\.requirements .*)", output):
            raise BadInput(refused[-1]) from None
        if sentence := reasons.first_sentence("install", output, ""):
            raise BadInput(sentence) from None
        raise
    echo(f"built {tag}: {base} with the program's requirements")


def repository_uri(outputs: Path) -> str:
    """Returns RepositoryUri of the deployed stacks. Raises BadInput unless there is exactly one."""
    stacks = read_outputs(outputs).values()
    addresses = {stack["RepositoryUri"] for stack in stacks if "RepositoryUri" in stack}
    if len(addresses) != 1:
        needed = "one is needed: deploy the storage stack of one cluster"
        raise BadInput(f"{outputs} has {len(addresses)} outputs named RepositoryUri, {needed}")
    return addresses.pop()


def _push(runtime: ContainerRuntime, tag: str, repository: str) -> str:
    """Pushes the image unless the repository already has it; returns `<repository>@<digest>`."""
    host, _, name = repository.partition("/")
    # <account>.dkr.ecr.<region>.amazonaws.com: the repository's name gives its region, whatever the
    # shell's region is.
    account, region = host.split(".")[0], host.split(".")[3] if host.count(".") >= 5 else None
    ecr = client("ecr", region)
    # ECR's tags are immutable: the tag names the content, so that a second push is no error.
    remote_tag = f"{VERSION}-{runtime.image_id(tag)[:12]}"
    digest = _digest(ecr, account, name, remote_tag)
    if digest is None:
        token = ecr.get_authorization_token()["authorizationData"][0]["authorizationToken"]
        user, _, password = base64.b64decode(token).decode().partition(":")
        runtime.login(host, user, password)
        runtime.push(tag, f"{repository}:{remote_tag}")
        digest = _digest(ecr, account, name, remote_tag)
        if digest is None:
            raise Failed(
                f"{repository}:{remote_tag} was pushed, but the repository does not know it: "
                "push again"
            )
    return f"{repository}@{digest}"


def _push_own(runtime: ContainerRuntime, tag: str, repository: str) -> str:
    """Pushes the image to a repository that no stack made; returns `<repository>@<digest>`."""
    remote = f"{repository}:{VERSION}-{runtime.image_id(tag)[:12]}"
    if not (digest := runtime.push(tag, remote)):
        raise Failed(f"{remote} was pushed, but {runtime.name} has no digest of it: push again")
    return f"{repository}@{digest}"


def _digest(ecr: Any, account: str, name: str, tag: str) -> str | None:
    """Returns the digest of a tag in ECR; None if ECR does not have the tag."""
    try:
        which = {"registryId": account, "repositoryName": name, "imageIds": [{"imageTag": tag}]}
        answer = ecr.describe_images(**which)["imageDetails"]
    except ecr.exceptions.ImageNotFoundException:
        return None
    except ecr.exceptions.RepositoryNotFoundException:
        raise BadInput(
            f"there is no repository {name} in account {account}: deploy the cluster of these "
            "outputs"
        ) from None
    return str(answer[0]["imageDigest"]) if answer else None


def _revision() -> str:
    """Returns the commit, marked if files differ from it; "unknown" outside git."""
    try:
        command = ["git", "-C", str(PROJECT), "describe", "--always", "--abbrev=40", "--dirty"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "unknown"
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    app(prog_name="python -m paddle_aws.operations.images.image")

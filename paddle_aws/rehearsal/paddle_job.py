"""A PaddleJob's training in a rehearsal: its pods run with the settings that the operator would
give them.

Limits: this project's image stands in for every other image. If an image contains the program, as
in the operator guide's demos, a program of examples/paddlejob/programs for the same mode stands in
for it. There is no GPU, and pods get addresses in place of Service names. The rehearsal says which
of these limits apply.
"""

from collections.abc import Iterator
from pathlib import Path

from k8s_charts.spec import TrainingJob
from paddle_aws.operations.errors import BadInput
from paddle_aws.rehearsal.pods.job import JobResult
from paddle_aws.rehearsal.pods.manifests import Manifests, PaddleJob, Replicas
from paddle_aws.rehearsal.pods.paddle_job import run_paddle_job
from paddle_aws.rehearsal.pods.pod import Host
from paddle_aws.rehearsal.screen import PodScreen
from paddle_aws.rehearsal.training import Training


def check(job: TrainingJob) -> None:
    """Checks that what the job asks of the operator can be had here. Raises BadInput."""
    if job.operator.elastic is not None:
        raise BadInput(
            f"paddlejob.elastic is {job.operator.elastic}: elastic workers meet in an etcd, "
            "which is not here"
        )
    if job.operator.intranet == "Host":
        raise BadInput(
            "paddlejob.intranet is Host: here each pod has an address of its own, PodIP or "
            "Service is allowed"
        )


def training(job: TrainingJob, host: Host, *, image: str, project: Path) -> Training:
    """Returns the training of controller paddlejob; `image` is the manifests' name for this
    project's own image.
    """
    (written,) = host.manifests.paddle_jobs
    replicas = " and ".join(f"{role.count} {name}" for name, role in written.roles.items())

    def log(result: JobResult) -> Path:
        (end,) = (end for end in result.ended if end.name == f"{written.name}-worker-0")
        return end.logs[written.template.containers[0].name]

    return Training(
        ready(written, host.manifests, image, project),
        run_paddle_job,
        PodScreen,
        f"{replicas} pods ran to their ends",
        log,
        differences=tuple(differences(written, host.manifests, image, gpus=job.gpus.count)),
    )


def ready(job: PaddleJob, read: Manifests, image: str, project: Path) -> PaddleJob:
    """Returns the job as it can run here; `image` is the manifests' name for this project's own
    image.
    """
    if _brings_its_program(job, read, image):
        return job
    program = project / _stand_in(job)
    return job.model_copy(
        update={"ps": job.ps and _running(job.ps, program), "worker": _running(job.worker, program)}
    )


def _stand_in(job: PaddleJob) -> Path:
    """The program that stands in for an image that is not here, relative to the project."""
    return Path(
        "examples/paddlejob/programs", "wide_and_deep.py" if "ps" in job.roles else "collective.py"
    )


def _brings_its_program(job: PaddleJob, read: Manifests, image: str) -> bool:
    """Whether the pods use our image, or get their program from the manifests: a ConfigMap that
    they mount, or a data job.
    """
    templates = [replicas.template for replicas in job.roles.values()]
    ours = all(template.containers[0].image == image for template in templates)
    mounted = all(
        any(volume.config_map for volume in template.volumes.values()) for template in templates
    )
    return ours or mounted or bool(read.jobs)


def _running(replicas: Replicas, program: Path) -> Replicas:
    first, *others = replicas.template.containers
    container = first.model_copy(update={"command": ("python3", str(program)), "args": ()})
    return replicas.model_copy(
        update={
            "template": replicas.template.model_copy(update={"containers": (container, *others)})
        }
    )


def differences(job: PaddleJob, read: Manifests, image: str, *, gpus: int) -> Iterator[str]:
    """Yields a sentence for each difference from a cluster."""
    if not _brings_its_program(job, read, image):
        named = sorted({replicas.template.containers[0].image for replicas in job.roles.values()})
        yield (
            f"{', '.join(named)} is not here: this project's image and {_stand_in(job)} stand "
            "for it and its program"
        )
    elif any(replicas.template.containers[0].image != image for replicas in job.roles.values()):
        yield "this project's image stands for the one that the manifests name"
    if gpus:
        nccl = "" if "ps" in job.roles else ", and workers talk by gloo instead of NCCL"
        yield f"no GPU here: pods that would get {gpus} each compute on the CPU{nccl}"
    if job.intranet == "Service":
        yield "pods get addresses in place of Service names"

"""The training of a PaddleJob in a rehearsal: its pods get the settings that the operator would
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
from paddle_aws.rehearsal.pods.paddle_operator import run_paddle_job
from paddle_aws.rehearsal.pods.pod import Host
from paddle_aws.rehearsal.screen import PodScreen
from paddle_aws.rehearsal.training import Training


def check(job: TrainingJob) -> None:
    """Checks that a rehearsal can do what the job asks of the operator. Raises BadInput."""
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
        substitute_program(written, host.manifests, image, project),
        run_paddle_job,
        PodScreen,
        f"{replicas} pods ran to their ends",
        log,
        differences=tuple(differences(written, host.manifests, image, gpus=job.gpus.count)),
    )


def substitute_program(
    job: PaddleJob, manifests: Manifests, image: str, project: Path
) -> PaddleJob:
    """Returns the job with a program that can run here; `image` is the manifests' name for this
    project's image.
    """
    if _has_program(job, manifests, image):
        return job
    program = project / _stand_in_for(job)
    return job.model_copy(
        update={
            "ps": job.ps and _run_program(job.ps, program),
            "worker": _run_program(job.worker, program),
        }
    )


def _stand_in_for(job: PaddleJob) -> Path:
    """Returns the program that stands in for the job's image, relative to the project."""
    return Path(
        "examples/paddlejob/programs", "wide_and_deep.py" if "ps" in job.roles else "collective.py"
    )


def _has_program(job: PaddleJob, manifests: Manifests, image: str) -> bool:
    """Returns whether the pods use our image, or get their program from the manifests: from a
    ConfigMap that they mount, or through a data job.
    """
    templates = [replicas.template for replicas in job.roles.values()]
    ours = all(template.containers[0].image == image for template in templates)
    mounted = all(
        any(volume.config_map for volume in template.volumes.values()) for template in templates
    )
    return ours or mounted or bool(manifests.jobs)


def _run_program(replicas: Replicas, program: Path) -> Replicas:
    first, *others = replicas.template.containers
    container = first.model_copy(update={"command": ("python3", str(program)), "args": ()})
    return replicas.model_copy(
        update={
            "template": replicas.template.model_copy(update={"containers": (container, *others)})
        }
    )


def differences(job: PaddleJob, manifests: Manifests, image: str, *, gpus: int) -> Iterator[str]:
    """Yields a sentence for each difference from a cluster."""
    if not _has_program(job, manifests, image):
        images = sorted({replicas.template.containers[0].image for replicas in job.roles.values()})
        yield (
            f"{', '.join(images)} is not here: this project's image and {_stand_in_for(job)} stand "
            "for it and its program"
        )
    elif any(replicas.template.containers[0].image != image for replicas in job.roles.values()):
        yield "this project's image stands for the one that the manifests name"
    if gpus:
        nccl = "" if "ps" in job.roles else ", and workers talk by gloo instead of NCCL"
        yield f"no GPU here: pods that would get {gpus} each compute on the CPU{nccl}"
    if job.intranet == "Service":
        yield "pods get addresses in place of Service names"

"""The training of a PaddleJob in a rehearsal: its pods get the settings that the operator would
give them.

Limits: this project's image stands in for every other image. If an image contains the program, as
in the operator guide's demos, a program of examples/paddlejob/programs for the same mode stands in
for it. There is no GPU, and pods get addresses in place of Service names. The rehearsal says which
of these limits apply.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from k8s_charts.spec import TrainingJob
from paddle_aws.operations.errors import BadInput
from paddle_aws.rehearsal.pods.manifests import Manifests, PaddleJob, PodTemplate


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


@dataclass(frozen=True)
class StandIn:
    """A PaddleJob as it can run here; `image` is the manifests' name for this project's image."""

    job: PaddleJob
    manifests: Manifests
    image: str

    @property
    def _templates(self) -> list[PodTemplate]:
        return [replicas.template for replicas in self.job.roles.values()]

    @property
    def _has_program(self) -> bool:
        """Whether the pods use our image, or get their program from the manifests: from a ConfigMap
        that they mount, or through a data job.
        """
        mounted = all(
            any(volume.config_map for volume in template.volumes.values())
            for template in self._templates
        )
        return self._images == {self.image} or mounted or bool(self.manifests.jobs)

    @property
    def _images(self) -> set[str]:
        return {template.containers[0].image for template in self._templates}

    @property
    def _program(self) -> Path:
        """The program that stands in for the job's image, relative to the project."""
        name = "wide_and_deep.py" if "ps" in self.job.roles else "collective.py"
        return Path("examples/paddlejob/programs", name)

    def substitute(self, project: Path) -> PaddleJob:
        """Returns the job with a program that can run here."""
        if self._has_program:
            return self.job
        command = ("python3", str(project / self._program))
        roles = {
            name: role.model_copy(
                update={"template": role.template.change_first(command=command, args=())}
            )
            for name, role in self.job.roles.items()
        }
        return self.job.model_copy(update=roles)

    def differences(self, *, gpus: int) -> Iterator[str]:
        """Yields a sentence for each difference from a cluster."""
        if not self._has_program:
            yield (
                f"{', '.join(sorted(self._images))} is not here: this project's image and "
                f"{self._program} stand for it and its program"
            )
        elif self._images != {self.image}:
            yield "this project's image stands for the one that the manifests name"
        if gpus:
            nccl = "" if "ps" in self.job.roles else ", and workers talk by gloo instead of NCCL"
            yield f"no GPU here: pods that would get {gpus} each compute on the CPU{nccl}"
        if self.job.intranet == "Service":
            yield "pods get addresses in place of Service names"

"""Which image a job runs: job.yaml's own, else the one that was pushed last."""

from __future__ import annotations

from pathlib import Path

from k8s_charts.errors import JobError
from k8s_charts.outputs import ClusterOutputs
from k8s_charts.spec import TrainingJob
from k8s_charts.value_types import is_image
from settings import file as settings_file

PLACEHOLDER = "placeholder.invalid/paddle-trainer@sha256:" + "0" * 64


def choose(job: TrainingJob, outputs: ClusterOutputs, image_file: Path) -> str:
    """The pushed image that has the job's requirements, else job.yaml's `image`, else image.json's; a placeholder only where
    nothing is deployed.

    Raises JobError when a cluster is deployed and no image is known: a pod would wait for it for ever.
    """
    variant = job.image_variant
    if job.image is not None and not job.derived:
        return job.image
    if image_file.exists() and (image := pushed(image_file).get(variant)) is not None:
        return image
    if outputs.placeholders:
        return PLACEHOLDER
    if variant:
        what = "program.requirements and packages are" if job.derived else f"paddle is {job.paddle}, which is"
        raise JobError(f"{what} in no image that was pushed ({image_file}): run `make image push JOB=<this job file>`")
    raise JobError(f"image is missing: set it in the job file, or run `make push`, which writes {image_file}")


def pushed(image_file: Path) -> dict[str, str]:
    """The images that `make push` wrote down, by the variant of a job. Raises JobError for another file."""
    try:
        found = settings_file.document(image_file)
        images = dict(found.get("variants", {})) | ({"": found["image"]} if "image" in found else {})
        if images and all(isinstance(image, str) and is_image(image) for image in images.values()):
            return images
    except (settings_file.SettingError, AttributeError, TypeError, ValueError):
        pass
    raise JobError(
        f'{image_file} holds no image: it has to be {{"image": "<repository>@sha256:<digest>"}}, which `make push` writes'
    )

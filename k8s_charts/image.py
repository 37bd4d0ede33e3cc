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
    """job.yaml's `image`, else image.json's; a placeholder only where nothing is deployed.

    Raises JobError when a cluster is deployed and no image is known: a pod would wait for it for ever.
    """
    if job.image is not None:
        return job.image
    if image_file.exists():
        try:
            image = settings_file.document(image_file)["image"]
        except (settings_file.SettingError, LookupError, TypeError):
            image = None
        if not isinstance(image, str) or not is_image(image):
            raise JobError(
                f'{image_file} holds no image: it has to be {{"image": "<repository>@sha256:<digest>"}}, which `make push` writes'
            )
        return image
    if outputs.placeholders:
        return PLACEHOLDER
    raise JobError(f"image is missing: set it in the job file, or run `make push`, which writes {image_file}")

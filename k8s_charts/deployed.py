"""What a job takes from a deployed cluster: the stacks' outputs, and the image that was pushed.

A job that names its own image, volume and source takes nothing, and runs on any Kubernetes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from k8s_charts import image as images
from k8s_charts.outputs import ClusterOutputs
from k8s_charts.spec import TrainingJob


@dataclass(frozen=True)
class Deployed:
    """What the job's documents are made from, beside the job."""

    outputs: ClusterOutputs
    image: str
    missing: str = ""
    """What the documents hold placeholders for, in one sentence's first half; empty: they can be applied."""

    @classmethod
    def load(cls, job: TrainingJob, outputs_file: Path, image_file: Path) -> Deployed:
        """Raises JobError for files that are not what they should be, and for a deployed cluster without an image."""
        outputs = ClusterOutputs.load(outputs_file) if outputs_file.exists() else ClusterOutputs.placeholder()
        image = images.choose(job, outputs, image_file)
        if not outputs.placeholders:
            return cls(outputs, image)
        volume, source = job.volume, job.data.local_file if job.data is not None else None
        needed = {
            "image": image == images.PLACEHOLDER,
            "volume": (volume.kind == "efs" and not volume.file_system_id) or (volume.kind == "nfs" and not volume.server),
            "data.source (a local file goes to the deployed bucket)": source is not None,
        }
        if settings := [setting for setting, missing in needed.items() if missing]:
            return cls(outputs, image, f"{outputs_file} does not exist, and the job takes from it: {', '.join(settings)}")
        # Which Kubernetes it is, nobody has said: the documents hold nothing that an older one would refuse.
        return cls(replace(outputs, kubernetes_version="", placeholders=False), image)

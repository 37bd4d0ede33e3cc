"""Whether the shards on the volume are what this job's own data job split: `resume` goes on with them, new source or not.

Promises: a data job that nobody else's has followed is taken at its word; else the manifest on the volume decides, which
names the data job that wrote it. Trainers hold to the same name.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from paddle_node.contract import Variable

from operations.cluster import Cluster, Object
from operations.job_objects import condition, ended
from operations.submission import Submission
from operations.volume_access import Missing, VolumeAccess

MANIFEST = "data-manifest.json"


def there(cluster: Cluster, submission: Submission, say: Callable[[str], None]) -> bool:
    """False where they have to be split, or are being split right now."""
    ours = identity(submission.data_job) if submission.data_job is not None else ""
    known = submission.data_jobs(cluster)
    if any(identity(job) != ours or not ended(job) for job in known):
        # Another one may have left its shards there, or its program with a split that failed.
        return False
    if any(condition(job, "Complete") for job in known):
        return True
    job = submission.job
    with VolumeAccess(cluster, job.name, job.namespace, write=False, say=say, submission=submission) as volume:
        try:
            manifest = json.loads(volume.read(MANIFEST))
        except (Missing, ValueError):
            return False
    return isinstance(manifest, dict) and bool(ours) and manifest.get("job") == ours


def identity(data_job: Object) -> str:
    """What a data job is called in the manifest that it writes; empty where it has no name."""
    environment = data_job["spec"]["template"]["spec"]["containers"][0].get("env") or ()
    return next((str(variable.get("value", "")) for variable in environment if variable["name"] == Variable.DATA_JOB), "")

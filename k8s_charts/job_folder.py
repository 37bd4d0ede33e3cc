"""What a pod sees of the volume: its job's own folder, and who makes that folder before the pod's program starts.

Promises: a pod mounts its own job's folder and nothing else of the volume; the data job also mounts, read-only, a source that
lies elsewhere on it; with `data.shared` all mount that source's copies, which trainers only read. The kubelet makes a missing
`subPath` as root. Behind an EFS access point every client is user 1000, so that is right there. On an NFS server or a node's
folder user 1000 could then write nothing: an init container, which is user 1000, makes the folder first. Of a claim nobody
knows what is behind it: it gets the init container too.
"""

from __future__ import annotations

import hashlib
from itertools import takewhile
from pathlib import PurePosixPath

from cdk8s_plus_33 import k8s

from k8s_charts import variables
from k8s_charts.spec import TrainingJob

VOLUME = "job"
"""The volume's name in a pod."""
MAKER = "job-folder"
"""The init container's name."""
_MADE_BY_THE_KUBELET = ("efs",)
"""Kinds of volume on which the kubelet's own folder belongs to user 1000."""
_NOT_PLAIN = frozenset("*?[:")
"""Signs of a pattern, and the one that no mount path may hold."""

# $0: where the volume is mounted, from the root, where the container starts; on the volume $1: the job's folder, $2: what the
# data job reads elsewhere, or empty, $3: the shared copies. A fault of permission fails the job at once, others are tried again.
_SCRIPT = """\
fail() { echo "user $(id -u) $2: make $folder there and chown it to 1000:1000" >&2; exit $1; }
folder=$1
cd "./$0" || fail 1 "cannot enter the volume"
for folder in "$1" ${3+"$3"}; do
said=$(mkdir -p -- "$folder" 2>&1) || case $said in
  *denied*|*Read-only*) fail 2 "may not make the job's folder on the volume (${said##*: })" ;;
  *) fail 1 "cannot make the job's folder on the volume (${said##*: })" ;;
esac
test -w "$folder" || fail 2 "may not write to the job's folder on the volume"
done
test -z "${2-}" || test -e "$2" || { echo "data.source is not there: the volume has no $2" >&2; exit 2; }
"""


def mounts(job: TrainingJob, *, reads_source: bool = False) -> list[k8s.VolumeMount]:
    """The job's own folder, and for the data job (`reads_source`) its source on the volume."""
    if job.volume.kind == "none":
        return []
    found = [_mount(job, PurePosixPath(job.name))]
    if (copies := shared(job)) is not None:
        found.append(_mount(job, copies, read_only=not reads_source))
    elsewhere = _elsewhere(job) if reads_source else None
    return found if elsewhere is None else [*found, _mount(job, elsewhere, read_only=True)]


def maker(
    job: TrainingJob,
    container: k8s.Container,
    resources: k8s.ResourceRequirements,
    *,
    reads_source: bool = False,
) -> list[k8s.Container]:
    """The init container of a pod that holds `container`, where one is needed.

    Requests equal limits here too, else the pod would not be "Guaranteed".
    """
    elsewhere = _elsewhere(job) if reads_source else None
    if job.volume.kind == "none" or (job.volume.kind in _MADE_BY_THE_KUBELET and elsewhere is None):
        return []
    below = [each and PurePosixPath(job.volume.folder or "", each) for each in (PurePosixPath(job.name), elsewhere, shared(job))]
    while below[-1] is None:
        below.pop()
    return [
        k8s.Container(
            name=MAKER,
            image=container.image,
            image_pull_policy=container.image_pull_policy,
            command=["/bin/sh", "-c", _SCRIPT.replace("$(", "$$("), job.volume.mount_path.lstrip("/")],
            args=[variables.literal(str(path or "")) for path in below],
            working_dir="/",
            resources=resources,
            # The whole volume, as the folder may not be there yet: no program of a user runs in this container.
            volume_mounts=[k8s.VolumeMount(name=VOLUME, mount_path=job.volume.mount_path)],
            termination_message_policy="FallbackToLogsOnError",
            security_context=container.security_context,
        )
    ]


def shared(job: TrainingJob) -> PurePosixPath | None:
    """Where the copies of the job's source lie that jobs share, by a digest of its address; None: the data is split."""
    data = job.data
    if data is None or not data.shared:
        return None
    address = data.source if data.local_file is None else f"{job.name}/{data.local_file.name}"
    return PurePosixPath("shared", hashlib.sha256(str(address).encode()).hexdigest()[:16])


def _mount(job: TrainingJob, below: PurePosixPath, *, read_only: bool = False) -> k8s.VolumeMount:
    inside = str(PurePosixPath(job.volume.folder or "", below))
    return k8s.VolumeMount(
        name=VOLUME,
        mount_path=str(PurePosixPath(job.volume.mount_path, below)),
        sub_path=None if inside == "." else inside,
        read_only=read_only or None,
    )


def _elsewhere(job: TrainingJob) -> PurePosixPath | None:
    """What the data job reads of the volume outside the job's folder: a file, a folder, or a pattern's plain beginning."""
    data = job.data
    if data is None or data.source is None or not data.on_volume:
        return None
    below = PurePosixPath(data.source).relative_to(job.volume.mount_path)
    found = PurePosixPath(*takewhile(lambda part: not _NOT_PLAIN.intersection(part), below.parts))
    return None if found.is_relative_to(job.name) else found

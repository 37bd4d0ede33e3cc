"""What a pod sees of the volume: its job's own folder, and who makes that folder before the pod's
program starts.

The data job also mounts, read-only, a source elsewhere on the volume. With `data.shared` all pods
mount the copies of that source, which trainers only read. The kubelet makes a missing `subPath` as
root, which is fine behind an EFS access point, where every client is user 1000. Elsewhere user 1000
could not write there, so an init container makes the folder first.
"""

import hashlib
from itertools import takewhile
from pathlib import PurePosixPath
from typing import Any

from k8s_charts.spec import TrainingJob

Object = dict[str, Any]
VOLUME = "job"
"""The volume's name in a pod."""
MAKER = "job-folder"
"""The init container's name."""
_NOT_PLAIN = frozenset("*?[:")
"""Characters of a pattern, and the one that no mount path may contain."""

# $0: the volume's mount path, relative to the root, where the container starts. On the volume, $1:
# the job's folder, $2: what the data job reads elsewhere, or empty, $3: the shared copies. A
# permission error fails the job at once; others are retried.
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
test -z "${2-}" || test -e "$2" || { \
echo "data.source is not there: the volume has no $2" >&2; exit 2; }
"""


def mounts(job: TrainingJob, role: str) -> list[Object]:
    """Returns mounts of the job's own folder, of its source's shared copies and, in the data job,
    of a source on the volume.
    """
    found = [_mount(job, PurePosixPath(job.name))]
    if (copies := shared(job)) is not None:
        found.append(_mount(job, copies, read_only=role != "data"))
    elsewhere = _elsewhere(job, role)
    return found if elsewhere is None else [*found, _mount(job, elsewhere, read_only=True)]


def maker(job: TrainingJob, role: str, container: Object, resources: Object) -> list[Object]:
    """Returns the init container of a pod with `container`, if one is needed.

    Its requests equal its limits too, otherwise the pod would not be "Guaranteed".
    """
    elsewhere = _elsewhere(job, role)
    if job.volume.kind == "efs" and elsewhere is None:
        return []
    below = [
        each and PurePosixPath(job.volume.folder or "", each)
        for each in (PurePosixPath(job.name), elsewhere, shared(job))
    ]
    while below[-1] is None:
        below.pop()
    own = {
        field: container[field]
        for field in ("image", "imagePullPolicy", "terminationMessagePolicy", "securityContext")
    }
    return [
        {
            **own,
            "name": MAKER,
            "command": [
                "/bin/sh",
                "-c",
                _SCRIPT.replace("$(", "$$("),
                job.volume.mount_path.lstrip("/"),
            ],
            "args": [str(path or "").replace("$", "$$") for path in below],
            "workingDir": "/",
            "resources": resources,
            # The whole volume, because the folder may not exist yet. No user's program runs in this
            # container.
            "volumeMounts": [{"name": VOLUME, "mountPath": job.volume.mount_path}],
        }
    ]


def shared(job: TrainingJob) -> PurePosixPath | None:
    """Returns the folder of the source's copies that jobs share, by a digest of its address; None
    if the data is not shared.
    """
    data = job.data
    if data is None or not data.shared:
        return None
    address = data.source if job.local_file is None else f"{job.name}/{job.local_file.name}"
    return PurePosixPath("shared", hashlib.sha256(str(address).encode()).hexdigest()[:16])


def _mount(job: TrainingJob, below: PurePosixPath, *, read_only: bool = False) -> Object:
    inside = str(PurePosixPath(job.volume.folder or "", below))
    return {
        "name": VOLUME,
        "mountPath": str(PurePosixPath(job.volume.mount_path, below)),
        "subPath": None if inside == "." else inside,
        "readOnly": read_only or None,
    }


def _elsewhere(job: TrainingJob, role: str) -> PurePosixPath | None:
    """Returns what the data job reads on the volume outside the job's folder: a file, a folder, or
    a pattern's plain start.
    """
    if role != "data" or job.data is None or not job.source_on_volume:
        return None
    below = PurePosixPath(str(job.data.source)).relative_to(job.volume.mount_path)
    found = PurePosixPath(*takewhile(lambda part: not _NOT_PLAIN.intersection(part), below.parts))
    return None if found.is_relative_to(job.name) else found

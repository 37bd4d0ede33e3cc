"""What a pod sees of the volume, its job's folder, and which container creates that folder before
the pod's program starts.

The data job also mounts, read-only, what it reads elsewhere on the volume. With `data.shared` and
with inputs all pods mount the copies of those, which trainers only read. The kubelet makes a
missing `subPath` as root, which is fine behind an EFS access point, where every client is user
1000. Elsewhere user 1000 could not write there, so an init container makes the folder first.
"""

import hashlib
from itertools import takewhile
from pathlib import PurePosixPath
from typing import Any

from paddle_node import contract

from k8s_charts.spec import TrainingJob
from k8s_charts.spec.data import FromJob

Object = dict[str, Any]
VOLUME = "job"
"""The volume's name in a pod."""
MAKER = "job-folder"
"""The init container's name."""
_NOT_PLAIN = frozenset("*?[:")
"""Characters of a pattern, and the one that no mount path may contain."""

# $0: the volume's mount path, relative to the root, where the container starts. On the volume, the
# folders to make up to `--`, then, in pairs, a setting and what it names elsewhere. A permission
# error fails the job at once; others are retried.
_SCRIPT = """\
fail() { echo "user $(id -u) $2: make $folder there and chown it to 1000:1000" >&2; exit $1; }
folder=$1
cd "./$0" || fail 1 "cannot enter the volume"
while test "${1---}" != --; do
folder=$1; shift
said=$(mkdir -p -- "$folder" 2>&1) || case $said in
  *denied*|*Read-only*) fail 2 "may not make the job's folder on the volume (${said##*: })" ;;
  *) fail 1 "cannot make the job's folder on the volume (${said##*: })" ;;
esac
test -w "$folder" || fail 2 "may not write to the job's folder on the volume"
done
test $# = 0 || shift
while test $# -gt 0; do
test -e "$2" || { echo "$1 is not there: the volume has no $2" >&2; exit 2; }
shift 2
done
"""


def mounts(job: TrainingJob, role: str, environment: str | None) -> list[Object]:
    """Returns mounts of the job's own folder, of its source's shared copies, of its environment's
    folder and, in the data job, of a source on the volume. The environment Job sees nothing else of
    the volume.
    """
    folders = [] if role == "environment" else [_mount(job, PurePosixPath(job.name))]
    if role != "environment":
        folders += [_mount(job, copies, read_only=role != "data") for copies in _copies(job)]
    if environment is not None:
        place = PurePosixPath(contract.ENVIRONMENTS, environment)
        folders.append(_mount(job, place, read_only=role != "environment"))
    elsewhere = dict.fromkeys(paths_outside_folder(job, role).values())
    return [*folders, *(_mount(job, path, read_only=True) for path in elsewhere)]


def folder_maker(
    job: TrainingJob, role: str, environment: str | None, container: Object, resources: Object
) -> list[Object]:
    """Returns the init container of a pod with `container`, if one is needed.

    Its requests equal its limits too, otherwise the pod would not be "Guaranteed".
    """
    elsewhere = paths_outside_folder(job, role)
    if job.volume.kind == "efs" and not elsewhere:
        return []

    def below(path: PurePosixPath) -> str:
        return str(PurePosixPath(job.volume.folder or "", path)).replace("$", "$$")

    folders = [] if role == "environment" else [PurePosixPath(job.name), *_copies(job)]
    folders += [PurePosixPath(contract.ENVIRONMENTS, environment)] if environment else []
    arguments = [below(path) for path in folders]
    arguments += ["--"] if elsewhere else []
    for setting, path in elsewhere.items():
        arguments += [setting, below(path)]
    overrides = {
        field: container[field]
        for field in ("image", "imagePullPolicy", "terminationMessagePolicy", "securityContext")
    }
    return [
        {
            **overrides,
            "name": MAKER,
            "command": [
                "/bin/sh",
                "-c",
                _SCRIPT.replace("$(", "$$("),
                job.volume.mount_path.lstrip("/"),
            ],
            "args": arguments,
            "workingDir": "/",
            "resources": resources,
            # The whole volume, because the folder may not exist yet. No user's program runs in this
            # container.
            "volumeMounts": [{"name": VOLUME, "mountPath": job.volume.mount_path}],
        }
    ]


def shared_copy(job: TrainingJob) -> PurePosixPath | None:
    """Returns the folder of the source's copies that jobs share, by a digest of its address; None
    if the data is not shared.
    """
    data = job.data
    if data is None or not data.shared:
        return None
    address = data.source if job.local_file is None else f"{job.name}/{job.local_file.name}"
    return PurePosixPath("shared", hashlib.sha256(str(address).encode()).hexdigest()[:16])


def _copies(job: TrainingJob) -> list[PurePosixPath]:
    """Returns the folders with copies that jobs share."""
    inputs = PurePosixPath(contract.INPUTS) if job.inputs else None
    return [path for path in (shared_copy(job), inputs) if path is not None]


def _mount(job: TrainingJob, below: PurePosixPath, *, read_only: bool = False) -> Object:
    inside = str(PurePosixPath(job.volume.folder or "", below))
    return {
        "name": VOLUME,
        "mountPath": str(PurePosixPath(job.volume.mount_path, below)),
        "subPath": None if inside == "." else inside,
        "readOnly": read_only or None,
    }


def paths_outside_folder(job: TrainingJob, role: str) -> dict[str, PurePosixPath]:
    """Returns what a Job reads on the volume outside the job's folder, by the setting that names
    it. The data job reads files, folders, a pattern's folder and earlier jobs' folders; the
    environment Job reads the wheels.
    """
    named: dict[str, PurePosixPath] = {}
    if role == "environment" and job.program.wheels is not None:
        wheels = PurePosixPath(job.program.wheels)
        return {"program.wheels": wheels.relative_to(job.volume.mount_path)}
    if role != "data":
        return {}
    if job.data is not None and job.source_on_volume:
        named["data.source"] = PurePosixPath(str(job.data.source))
    for name, source in job.inputs.items():
        if isinstance(source, FromJob):
            named[f"inputs.{name}.from_job"] = PurePosixPath(job.volume.mount_path, source.from_job)
        elif PurePosixPath(source).is_relative_to(job.volume.mount_path):
            named[f"inputs.{name}"] = PurePosixPath(source)
    places = {}
    for setting, path in named.items():
        parts = path.relative_to(job.volume.mount_path).parts
        plain = PurePosixPath(*takewhile(lambda part: not _NOT_PLAIN.intersection(part), parts))
        if not plain.is_relative_to(job.name):
            places[setting] = plain
    return places

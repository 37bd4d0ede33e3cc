"""What this machine holds of a container's limits: its user, its /dev/shm and /tmp, its memory, its
disk.

Linux needs no privilege for the first three, unless the machine's owner has forbidden namespaces of
users. Memory needs a control group in which this user may make others.
"""

import contextlib
import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from paddle_node import contract

from k8s_charts.spec.value_types import amount
from paddle_aws.rehearsal.pods.fields import WithoutEffect
from paddle_aws.rehearsal.pods.manifests import Container, PodTemplate

INIT = Path(__file__).with_name("container_init.py")
_GROUPS = Path("/sys/fs/cgroup")
_SHARED_MEMORY = 64 << 20
"""Bytes of /dev/shm that a container runtime gives a container without such a volume."""
_PROBE_SECONDS = 30


@dataclass(frozen=True)
class Machine:
    """What this machine lets the user hold."""

    namespaces: bool
    """Whether a container may have a user, a /dev/shm and a /tmp of its own."""
    groups: Path | None
    """The control group below which those of containers can be made; None: there is none."""

    @property
    def without_effect(self) -> list[WithoutEffect]:
        """Returns what it does not hold."""
        notes = []
        if not self.namespaces:
            users = (
                "this machine forbids namespaces of users: processes run as you, and share the "
                "machine's /dev/shm and /tmp"
            )
            fields = ("runAsGroup", "runAsUser", "sizeLimit of /dev/shm")
            notes.append(WithoutEffect(users, fields))
        if self.groups is None:
            memory = "you may make no control group here: memory is this machine's"
            notes.append(WithoutEffect(memory, ("limits.memory",)))
        return notes


@functools.cache
def probe_machine() -> Machine:
    """Returns what this machine lets the user hold, by trying it."""
    words = [sys.executable, "-I", "-S", str(INIT), "--own", "1000", "1000", "4096", "/tmp", "true"]
    orders, nowhere, namespaces = subprocess.PIPE, subprocess.DEVNULL, False
    with (
        contextlib.suppress(OSError, subprocess.SubprocessError),
        subprocess.Popen(words, stdin=orders, stderr=nowhere, start_new_session=True) as tried,
    ):
        namespaces = tried.wait(_PROBE_SECONDS) == 0
    return Machine(namespaces, _find_groups())


def _find_groups() -> Path | None:
    for folder in _list_own_groups():
        place = folder / f"paddle-aws-{os.getpid()}"
        with contextlib.suppress(OSError):
            place.mkdir()
            try:
                if any((place / name).exists() for name in _MEMORY):
                    return folder
            finally:
                place.rmdir()
    return None


_MEMORY = {"memory.max": "memory.oom.group", "memory.limit_in_bytes": ""}
"""Files with a group's limit, by cgroup v2 and v1; and the file that ends all of it together."""


def _list_own_groups() -> Iterator[Path]:
    """Yields the control groups of this process that may have groups below."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            yield _GROUPS / controllers / path.lstrip("/")
        elif controllers == "":
            # Below one that has processes, v2 allows no group with a limit.
            yield from (_GROUPS / path.lstrip("/"), (_GROUPS / path.lstrip("/")).parent)


@contextlib.contextmanager
def hold_limits(
    machine: Machine, template: PodTemplate, container: Container, name: str, root: Path
) -> Iterator[list[str]]:
    """Yields options of container_init.py for one container's limits, as far as this machine holds
    them, and its control group until no process of the container is left. Its paths begin at
    `root`; `name` is one of a kind.
    """
    options: list[str] = []
    if machine.namespaces:
        user = container.user or template.user or contract.UID
        group = container.group or template.group or contract.GID
        size = _shared_memory(template, container)
        options += ["--own", str(user), str(group), str(size), str(root / "tmp")]
    if machine.groups is None or container.memory is None:
        yield options
        return
    place = machine.groups / f"paddle-aws-{name}"
    place.mkdir(exist_ok=True)
    limit, together = next(row for row in _MEMORY.items() if (place / row[0]).exists())
    (place / limit).write_text(str(round(amount(container.memory))))
    if together:
        (place / together).write_text("1")
    shown = root / _GROUPS.relative_to("/")
    shown.parent.mkdir(parents=True, exist_ok=True)
    if not shown.exists():
        shown.symlink_to(_GROUPS)
    try:
        yield [*options, "--group", str(place / "cgroup.procs")]
    finally:
        with contextlib.suppress(OSError):
            place.rmdir()


def _shared_memory(template: PodTemplate, container: Container) -> int:
    for mount in container.mounts:
        if mount.path == contract.SHARED_MEMORY:
            limit = template.volumes[mount.volume].size_limit
            if limit is not None:
                return round(amount(limit))
    return _SHARED_MEMORY


def find_full_volume(template: PodTemplate, volumes: Path) -> str:
    """Returns the sentence with which the kubelet evicts a pod whose emptyDir exceeds its limit;
    empty: none does. `volumes`: the folder with the pod's own volumes.
    """
    for name, volume in template.volumes.items():
        if volume.size_limit is None or volume.medium == "Memory":
            continue
        if _count_bytes(volumes / name) > amount(volume.size_limit):
            return f'Usage of EmptyDir volume "{name}" exceeds the limit "{volume.size_limit}".'
    return ""


def _count_bytes(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += (Path(place) / name).lstat().st_blocks * 512
    return total

"""The rehearsal's folder, `.rehearsal/`: one rehearsal at a time holds it, and empties it as it
begins, except the volume and other jobs' records.
"""

import fcntl
import json
import os
import shutil
import stat
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Self

from paddle_aws.operations.errors import BadInput
from paddle_aws.operations.jobs import rehearsal_backend
from paddle_aws.operations.jobs.rehearsal_backend import CANCEL, JOBS, LAST, LOCK, RECORD
from paddle_aws.operations.jobs.volume.server import resolve_inside
from paddle_aws.rehearsal.pods import image
from paddle_aws.rehearsal.pods.addresses import Names
from paddle_aws.rehearsal.pods.manifests import Manifests
from paddle_aws.rehearsal.pods.pod import Host, Identity

_LOCK_TIMEOUT = 1.0
"""Seconds: a command holds the lock for a moment to learn whether a rehearsal runs."""


class RehearsalFolder:
    """The paths of all files that one rehearsal writes, except the manifests in `dist/`."""

    def __init__(self, path: Path, user: str = "rehearsal") -> None:
        """`user`: the command that works in this folder, for messages."""
        self.path, self.begun, self._user = path, False, user
        self.run = str(uuid.uuid4())
        """Names this rehearsal in its record and, while it runs, in the lock."""
        self.volume = path / "volume"
        """The volume that the pods mount. It stays for inspection until the next rehearsal."""
        self.logs = path / "logs"
        self.pods = path / "pods"
        self.image = path / "image"
        self.cloud = path / "cloud"
        self.outputs = path / "outputs.json"
        self.image_record = path / "image.json"
        self.hosts = path / "hosts.json"
        self.manifests = path / "manifests"
        """The manifests that the pods were made from."""

    def __enter__(self) -> Self:
        self._refuse_foreign()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
            self._lock = os.open(self.path / LOCK, flags, 0o644)
        except OSError as error:
            raise BadInput(
                f"{self.path} is not a writable folder ({error.strerror}): a {self._user} needs it"
            ) from None
        if not stat.S_ISREG(os.fstat(self._lock).st_mode):
            os.close(self._lock)
            raise BadInput(f"{self.path / LOCK} is not a file: remove it")
        deadline = time.monotonic() + _LOCK_TIMEOUT
        while time.monotonic() < deadline:
            with suppress(OSError):
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.ftruncate(self._lock, 0)  # It may name a rehearsal that ended.
                return self
            time.sleep(0.05)
        os.close(self._lock)
        raise BadInput(
            f"another {self._user} runs in this folder ({self.path}): wait for it, or use another "
            "folder"
        )

    def _refuse_foreign(self) -> None:
        """Raises BadInput for a folder that no rehearsal made: this one would empty it."""
        remedy = f"a {self._user} empties this folder: move it away, or use another folder"
        if self.path.is_symlink():
            raise BadInput(f"{self.path} is a link: {remedy}")
        if not self.path.is_dir() or (self.path / LOCK).exists():
            return
        if strangers := sorted(entry.name for entry in self.path.iterdir()):
            raise BadInput(
                f"{self.path} holds {strangers[0]}, which is no {self._user}'s: {remedy}"
            )

    def begin(self, name: str = "", root: str = "", *, keep_volume: bool = False) -> None:
        """Removes what the last rehearsal of this job left, except the volume if that is to be
        kept; other jobs stay. `root`: the job's folder on the volume.
        """
        self.begun = True
        if name:
            self._set_aside(name)
            self._empty(self.volume.name, JOBS)
            if not keep_volume and self.volume.is_dir():
                shutil.rmtree(resolve_inside(self.volume, root), ignore_errors=True)
        else:
            self._empty()
        self.volume.mkdir(exist_ok=True)
        self.logs.mkdir()
        # While this folder's lock is held, no pod of an earlier rehearsal is alive.
        for lease in self.volume.glob("*/output/run/lease-*.json"):
            lease.unlink()

    def _set_aside(self, name: str) -> None:
        """Puts what the last rehearsal, of another job, left where it is found by its name."""
        jobs = self.path / JOBS
        shutil.rmtree(jobs / name, ignore_errors=True)
        with suppress(BadInput):
            last = rehearsal_backend.read_record(self.path)
            if last is not None and last.view.name not in (name, "..", ".", ""):
                place = jobs / Path(last.view.name).name  # The record may say anything.
                shutil.rmtree(place, ignore_errors=True)
                place.mkdir(parents=True)
                for kept in (self.path / RECORD, self.logs, self.manifests):
                    if kept.exists():
                        kept.rename(place / kept.name)

    def is_cancelled(self) -> bool:
        """Returns whether `paddle-aws cancel` asked for the end of the pods."""
        return (self.path / CANCEL).exists()

    def announce(self, name: str, namespace: str) -> None:
        """Writes to the lock which job this rehearsal runs, before its record replaces the last
        one's.
        """
        document = json.dumps({"run": self.run, "name": name, "namespace": namespace}).encode()
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, document, 0)

    def __exit__(self, *error: object) -> None:
        os.close(self._lock)

    def host(
        self,
        project: Path,
        objects: Manifests,
        interpreter: Path,
        identity: Identity = lambda namespace, account: {},
    ) -> Host:
        """Unpacks the image for the pods of `objects`. Returns what the pods share."""
        image_ = image.read(project / "trainer_image" / "Dockerfile")
        image_.lay_out(project, self.image)
        places = (self.image, self.pods, self.volume, self.logs)
        names = Names(self.hosts, objects.services)
        return Host(objects, image_, *places, names, interpreter, identity)

    def tidy(self) -> None:
        """Call at the end of a rehearsal. Removes everything that `paddle-aws` does not read."""
        self._empty(self.volume.name, self.logs.name, self.manifests.name, RECORD, LAST, JOBS)

    def _empty(self, *kept: str) -> None:
        """Removes everything except the lock and what is `kept`."""
        for entry in self.path.iterdir():
            if entry.name not in (LOCK, *kept):
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry)
                else:
                    entry.unlink()

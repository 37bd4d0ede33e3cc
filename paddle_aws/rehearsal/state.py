"""The rehearsal's folder, `.rehearsal/`: one rehearsal at a time holds it, and empties it when the
next one begins, but for a volume that is to be kept.
"""

import fcntl
import json
import os
import shutil
import stat
import time
import uuid
from pathlib import Path
from typing import Self

from paddle_aws.operations.errors import BadInput
from paddle_aws.operations.jobs.rehearsal_backend import CANCEL, LAST, LOCK, RECORD
from paddle_aws.rehearsal.pods import image
from paddle_aws.rehearsal.pods.addresses import Names
from paddle_aws.rehearsal.pods.manifests import Manifests
from paddle_aws.rehearsal.pods.pod import Host, Identity

_LOCKED = 1.0
"""Seconds for which the lock is tried: commands take it for a moment, to learn whether somebody
holds it.
"""


class State:
    """The places of everything that one rehearsal writes, except the manifests in `dist/`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.begun = folder, False
        self.run = str(uuid.uuid4())
        """Whose the record is: the lock has the same, for as long as it is held."""
        self.volume = folder / "volume"
        """What the pods mount. It stays for inspection until the next rehearsal."""
        self.logs = folder / "logs"
        self.pods = folder / "pods"
        self.image = folder / "image"
        self.cloud = folder / "cloud"
        self.outputs = folder / "outputs.json"
        self.image_record = folder / "image.json"
        self.hosts = folder / "hosts.json"
        self.manifests = folder / "manifests"
        """The manifests that the pods were made from."""

    def __enter__(self) -> Self:
        self._refuse_foreign()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
            self._lock = os.open(self.folder / LOCK, flags, 0o644)
        except OSError as error:
            raise BadInput(
                f"{self.folder} is not a writable folder ({error.strerror}): a rehearsal needs it"
            ) from None
        if not stat.S_ISREG(os.fstat(self._lock).st_mode):
            os.close(self._lock)
            raise BadInput(f"{self.folder / LOCK} is no file: remove it")
        deadline = time.monotonic() + _LOCKED
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.ftruncate(self._lock, 0)  # It may name a rehearsal that ended.
                return self
            except OSError:
                if time.monotonic() > deadline:
                    os.close(self._lock)
                    raise BadInput(
                        f"another rehearsal runs in this folder ({self.folder}): wait for it, or "
                        "rehearse in another folder"
                    ) from None
            time.sleep(0.05)

    def _refuse_foreign(self) -> None:
        """Raises BadInput for a folder that no rehearsal made: this one would empty it."""
        remedy = "a rehearsal empties this folder: move it away, or rehearse in another folder"
        if self.folder.is_symlink():
            raise BadInput(f"{self.folder} is a link: {remedy}")
        if not self.folder.is_dir() or (self.folder / LOCK).exists():
            return
        if strangers := sorted(entry.name for entry in self.folder.iterdir()):
            raise BadInput(f"{self.folder} holds {strangers[0]}, which is no rehearsal's: {remedy}")

    def begin(self, *, keep_volume: bool = False) -> None:
        """Removes what the last rehearsal left, except the volume if that is to be kept."""
        self.begun = True
        self.empty(but=frozenset({self.volume.name} if keep_volume else ()))
        self.volume.mkdir(exist_ok=True)
        self.logs.mkdir()
        # Whoever holds this folder's lock knows that no pod of an earlier rehearsal is alive.
        for lease in self.volume.glob("*/output/run/lease-*.json"):
            lease.unlink()

    def cancelled(self) -> bool:
        """Returns whether `paddle-aws cancel` asked for the end of the pods."""
        return (self.folder / CANCEL).exists()

    def announce(self, name: str, namespace: str) -> None:
        """Says in the lock which job this rehearsal is of, before its record replaces the last
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
        read: Manifests,
        interpreter: Path,
        identity: Identity = lambda namespace, account: {},
    ) -> Host:
        """Lays out the image for the pods of these manifests. Returns what the pods share."""
        laid_out = image.read(project / "trainer_image" / "Dockerfile")
        laid_out.lay_out(project, self.image)
        names = Names(self.hosts, read.services)
        return Host(
            read,
            laid_out,
            self.image,
            self.pods,
            self.volume,
            self.logs,
            names,
            interpreter,
            identity,
        )

    def tidy(self) -> None:
        """Call at the end of a rehearsal. Removes everything that `paddle-aws` does not read."""
        self.empty(
            but=frozenset({self.volume.name, self.logs.name, self.manifests.name, RECORD, LAST})
        )

    def empty(self, but: frozenset[str] = frozenset()) -> None:
        """Removes everything except the lock and the names in `but`."""
        for entry in self.folder.iterdir():
            if entry.name == LOCK or entry.name in but:
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()

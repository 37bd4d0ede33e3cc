"""The rehearsal's folder, `.rehearsal/`: one rehearsal at a time holds it, and empties it at the
beginning.
"""

import fcntl
import shutil
from pathlib import Path
from typing import Self

from operations.errors import BadInput
from operations.jobs.rehearsal_backend import LAST, RECORD
from rehearsal.pods import image
from rehearsal.pods.addresses import Names
from rehearsal.pods.manifests import Manifests
from rehearsal.pods.pod import Host, Identity


class State:
    """The places of everything that one rehearsal writes, except the manifests in `dist/`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.begun = folder, False
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
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = (self.folder / "lock").open("w")
        except OSError as error:
            raise BadInput(
                f"{self.folder} is not a writable folder ({error.strerror}): a rehearsal needs it"
            ) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise BadInput(
                f"another rehearsal runs in this clone ({self.folder}): wait for it, or use a "
                "second clone"
            ) from None
        return self

    def begin(self) -> None:
        """Removes what the last rehearsal left."""
        self.begun = True
        self.empty()
        self.volume.mkdir()
        self.logs.mkdir()

    def __exit__(self, *error: object) -> None:
        self._lock.close()

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
        """Call after a successful rehearsal. Removes everything that `paddle-aws` does not read."""
        self.empty(
            but=frozenset({self.volume.name, self.logs.name, self.manifests.name, RECORD, LAST})
        )

    def empty(self, but: frozenset[str] = frozenset()) -> None:
        """Removes everything except the lock and the names in `but`."""
        for entry in self.folder.iterdir():
            if entry.name == "lock" or entry.name in but:
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()

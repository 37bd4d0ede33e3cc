"""The rehearsal's folder, `.rehearsal/`: held by one rehearsal at a time, begun empty each time.

Promises: a second rehearsal in the same clone is told so at once; what a killed one left is gone before the next
begins; the lock goes with the process that holds it, however that ends.
"""

from __future__ import annotations

import fcntl
import shutil
from pathlib import Path
from types import TracebackType
from typing import Self

from rehearsal.errors import Refused


class State:
    """Where everything lies that one rehearsal writes, but the manifests and the plot."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.volume = folder / "volume"
        """What the pods mount: stays for a look until the next rehearsal."""
        self.logs = folder / "logs"
        self.pods = folder / "pods"
        self.image = folder / "image"
        self.cloud = folder / "cloud"
        self.outputs = folder / "outputs.json"
        self.image_record = folder / "image.json"
        self.hosts = folder / "hosts.json"

    def __enter__(self) -> Self:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = (self.folder / "lock").open("w")
        except OSError as error:
            raise Refused(f"{self.folder} is no folder that can be written ({error.strerror}): a rehearsal needs it") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise Refused(f"another rehearsal runs in this clone ({self.folder}): wait for it, or use a second clone") from None
        self.empty()
        self.volume.mkdir()
        self.logs.mkdir()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._lock.close()

    def tidy(self) -> None:
        """After a rehearsal that went well: the volume and the logs are worth a look, the rest is not."""
        self.empty(but=frozenset({self.volume.name, self.logs.name}))

    def empty(self, but: frozenset[str] = frozenset()) -> None:
        """Remove everything but the lock and `but`."""
        for entry in self.folder.iterdir():
            if entry.name == "lock" or entry.name in but:
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()

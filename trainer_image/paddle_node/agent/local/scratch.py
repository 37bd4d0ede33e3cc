"""The folder of an attempt on the pod's scratch: whose it is, and what its files and links are.

It counts only if a record in it says that this rank of this run has filled it.
"""

import errno
import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from paddle_node import contract
from paddle_node.environment import PodEnvironment
from paddle_node.rendezvous import messages as m
from paddle_node.runtimes.attempt_output import lead
from paddle_node.runtimes.checkpoint import members
from paddle_node.runtimes.file_progress import resume_glob
from paddle_node.volume import durable, publication
from paddle_node.volume.publication import LINK, OUTPUT

OWNER = "owner.json"
Content = tuple[int, str]
"""Bytes and checksum."""


class Scratch:
    """The folder of the newest attempt that this pod has begun."""

    def __init__(self, pod: PodEnvironment) -> None:
        self.pod = pod
        self.glob = resume_glob(pod)
        """The names of checkpoints."""
        self.attempt = 0
        """0: none is begun or found."""
        self.root: Path | None = None
        """None: the attempt writes to the volume."""
        self.bringing = ""
        """The checkpoint that is not whole here yet."""
        self.filled = 0
        """When it was last filled from the volume, in nanoseconds: what has not been changed since,
        and has its name of then, is not this pod's. 0: it is not filled yet.
        """
        self.brought: set[str] = set()
        """What it had then."""
        self.moved = time.monotonic()
        """When somebody last read or wrote a block, or asked whether to go on, by
        time.monotonic().
        """
        self._checksums: dict[tuple[int, int, int], str] = {}

    # Whose it is.

    def find(self) -> None:
        """Finds what an earlier container of this pod has left, if it is newer. Raises OSError."""
        for folder in durable.entries(self.pod.home / "attempts"):
            run, _, number = folder.name.rpartition("-")
            if run != self.pod.run_id or not number.isdigit():
                continue
            owner = self._read_owner(int(number))
            filled = owner is not None and (Path(folder.path) / OUTPUT).is_dir()
            if owner is not None and filled and int(number) > self.attempt:
                self.root, self.bringing = Path(folder.path), owner["bringing"]
                self.filled, self.brought = owner["filled"], set(owner["brought"])
                self.attempt = int(number)

    def take_over(self, start: m.Start) -> None:
        """Makes the output of `start.earlier` the new attempt's, if this rank filled it and the
        attempt writes here; removes all else. Raises OSError.
        """
        earlier, root = self.pod.scratch(start.earlier) / OUTPUT, self.pod.scratch(start.attempt)
        owner = self._read_owner(start.earlier)
        if not (owner and start.local and earlier.is_dir()):
            owner = None
        self.filled, self.brought = 0, set()
        if owner is not None:
            self.filled, self.brought = owner["filled"], set(owner["brought"])
            root.mkdir(parents=True, exist_ok=True)
            starts = {str(earlier), os.path.realpath(earlier)}
            # From here on, the files are found again wherever this is cut short.
            durable.write(root / OWNER, json.dumps(owner))
            lead(earlier, starts, self.own)
            earlier.replace(root / OUTPUT)
        for entry in durable.entries(self.pod.home / "attempts"):
            if owner is None or Path(entry.path) != root:
                shutil.rmtree(entry.path, ignore_errors=True)
        self.attempt, self.root = start.attempt, root if start.local else None

    def record_owner(self, bringing: str) -> None:
        """Records that the folder is this rank's; `bringing`: what is not whole yet. Raises
        OSError.
        """
        assert self.root is not None
        self.bringing = bringing
        owner = {
            "rank": self.pod.trainer_id,
            "trainers": self.pod.trainers,
            "bringing": bringing,
            "filled": self.filled,
            "brought": sorted(self.brought),
        }
        durable.write(self.root / OWNER, json.dumps(owner))

    def _read_owner(self, attempt: int) -> dict[str, Any] | None:
        """Returns the record of an attempt's folder; None: it is not this rank's, or not filled."""
        try:
            owner = json.loads((self.pod.scratch(attempt) / OWNER).read_text())
        except (FileNotFoundError, ValueError):
            return None
        mine = (self.pod.trainer_id, self.pod.trainers)
        return owner if (owner.get("rank"), owner.get("trainers")) == mine else None

    # What its files and links are.

    @property
    def own(self) -> Path:
        """The output by the path that is the same in every attempt and pod."""
        return contract.path(contract.ATTEMPT, self.pod.environ) / OUTPUT

    @property
    def volume(self) -> Path:
        """The attempt's folder on the volume."""
        return self.pod.folder.attempt(self.pod.run_id, self.attempt)

    @property
    def snapshot(self) -> Path:
        """Keeps the files of a checkpoint while they are copied."""
        return self.pod.home / "attempts" / "snapshot"

    def read_content(self, path: Path) -> Content:
        """Returns bytes and checksum of a file; for a link, of what it leads to, and where. Raises
        OSError.
        """
        size = path.stat().st_size if path.is_file() else 0
        return size, self.describe_link(path) if path.is_symlink() else self.checksum(path)

    def describe_link(self, path: Path) -> str:
        return LINK + self._read_link(path)

    def _read_link(self, path: Path) -> str:
        """Returns where a link leads; into the output: from the link's own folder, so that it leads
        there in every attempt and pod.
        """
        target = str(path.readlink())
        roots = [self.snapshot, *([self.root] if self.root else []), self.volume]
        outputs = [root / OUTPUT for root in roots]
        folder = next(path.parent.relative_to(at) for at in outputs if path.is_relative_to(at))
        in_pod = contract.path(contract.UNPACKED, self.pod.environ) / OUTPUT
        for output in (*outputs, self.own, in_pod):
            for start in (str(output), os.path.realpath(output)):
                if (inside := target.removeprefix(f"{start}/")) != target:
                    return os.path.relpath(inside, folder)
        return target

    def checksum(self, path: Path) -> str:
        """Returns a file's checksum. Raises OSError, for what is no file, too."""
        state = path.stat()
        key = (state.st_ino, state.st_size, state.st_mtime_ns)
        if (digest := self._checksums.get(key)) is None:
            checksum = publication.new_checksum()
            if (stream := durable.open_file(path)) is None:  # A pipe would wait for its writer.
                raise FileNotFoundError(errno.ENOENT, "it is no file any more", str(path))
            with stream:
                while block := stream.read(publication.BLOCK):
                    checksum.update(block)
                    self.moved = time.monotonic()
            if len(self._checksums) > 100_000:
                self._checksums.clear()
            digest = self._checksums[key] = checksum.hexdigest()
        return digest

    def copy_file(
        self,
        source: Path,
        target: Path,
        file: Sequence[Any] | None,
        check: Callable[[], object],
    ) -> Content:
        """Copies a file or a link from or to the volume, and returns its content; `file`: what that
        must be. Raises BadData, OSError, and what `check` raises, before each block.
        """
        if source.is_symlink():
            to = self._read_link(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            target.symlink_to(to)
            return 0, LINK + to
        size, checksum = publication.copy(source, target, file, check)
        return size, checksum

    def find_shortage(self, largest: int) -> str:
        """Says that there is no room for another checkpoint of `largest` bytes; empty: there is.
        Raises OSError.
        """
        home = self.pod.home
        disk = os.statvfs(home)
        left, limit = disk.f_bavail * disk.f_frsize, "its disk"
        if self.pod.room is not None:
            used = sum(map(_count_blocks, durable.walk(home))) * 512
            if self.pod.room - used < left:
                left, limit = self.pod.room - used, "resources.scratch"
        if largest < left:
            return ""
        return (
            f"the scratch has no room for another checkpoint of {largest / 1e6:,.1f} MB, "
            f"{max(left, 0) / 1e6:,.1f} MB of {limit} are left: from the next attempt on, "
            "checkpoints go to the volume"
        )


def below(path: Path, folder: Path) -> str:
    """Returns the path from the folder, as records name it."""
    return path.relative_to(folder).as_posix()


def list_members(path: Path) -> list[Path]:
    """Returns the files of a checkpoint, and the links in its folder."""
    if not path.is_dir() or path.is_symlink():
        return members(path)
    return [file for file in durable.walk(path) if file.is_symlink() or file.is_file()]


def _count_blocks(path: Path) -> int:
    try:
        return path.lstat().st_blocks
    except FileNotFoundError:  # Just removed.
        return 0

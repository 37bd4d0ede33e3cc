"""The shards' files while they are written: several of each shard are open at once, and each is hashed as its bytes pass."""

import os
import resource
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import xxhash

from paddle_node import durable
from paddle_node.data import data_manifest
from paddle_node.data.data_manifest import DataFile
from paddle_node.retry import naming

PART = 64 << 20
"""Bytes, about, of a full file."""
AIM = 4 << 20
"""Bytes of a file of a small shard: about what trainers shuffle in memory at a time."""
MOST = 32
"""Files of one shard that are open at once."""
MOST_OPEN = 2048
"""Files of all shards that are open at once, unless there are more shards."""
BUFFER = 2 << 20
"""Bytes in memory before they are written."""
BEHIND = 8 << 20
"""Bytes after which the kernel is asked to write, so that the fsync at the end waits for little."""


def open_at_once(bytes_each: int, shards: int) -> int:
    """How many files of a shard of about `bytes_each` are written side by side."""
    return max(1, min(MOST, bytes_each // AIM, MOST_OPEN // shards))


class PartFile:
    """One file; `done` closes it, and returns its entry of the manifest."""

    def __init__(self, path: Path, name: str) -> None:
        self.bytes = 0
        self._path, self._name = path, name
        self._records = 0
        self._handed_on = 0
        self._hash = xxhash.xxh3_128()
        self._file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)

    def write(self, content: bytes | memoryview, records: int) -> None:
        self._hash.update(content)
        self.bytes += len(content)
        self._records += records
        left = memoryview(content)
        with naming(self._path):
            while len(left) > 0:
                left = left[os.write(self._file, left) :]
        if self.bytes - self._handed_on >= BEHIND:
            # On Linux this starts the writing without waiting for it.
            os.posix_fadvise(self._file, self._handed_on, self.bytes - self._handed_on, os.POSIX_FADV_DONTNEED)
            self._handed_on = self.bytes

    def done(self) -> DataFile:
        try:
            with naming(self._path):
                os.fsync(self._file)
        finally:
            os.close(self._file)
        return DataFile(self._name, self._records, self.bytes, f"{data_manifest.CHECKSUM}:{self._hash.hexdigest()}")


class Streams:
    """The open files of a lane: `many` for each folder of `folders`."""

    def __init__(self, root: Path, below: str, folders: Sequence[str], many: int, lane: int) -> None:
        """`below` is what the manifest calls `root`."""
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        self.many = many
        self.written = 0
        self._root, self._below, self._lane = root, below, lane
        self._open: dict[tuple[str, int], PartFile] = {}
        self._waiting: dict[tuple[str, int], list[tuple[bytes, int]]] = {}
        self._size = 0
        self._numbers = dict.fromkeys(folders, 0)
        self._done: dict[str, list[Future[DataFile]]] = {folder: [] for folder in folders}
        self._pool = ThreadPoolExecutor(4, thread_name_prefix="sync")

    def add(self, folder: str, slot: int, records: Iterable[bytes], count: int) -> None:
        if not count:
            return
        content = b"".join(records)
        self._waiting.setdefault((folder, slot), []).append((content, count))
        self._size += len(content)
        if self._size >= BUFFER:
            self.flush()

    def flush(self) -> None:
        for (folder, slot), waiting in self._waiting.items():
            part = self._open.get((folder, slot))
            if part is None:
                part = self._open[folder, slot] = self._next(folder)
            part.write(b"".join(content for content, _ in waiting), sum(count for _, count in waiting))
            if part.bytes >= PART:
                self._done[folder].append(self._pool.submit(self._open.pop((folder, slot)).done))
        self._waiting.clear()
        self.written += self._size
        self._size = 0

    def close(self) -> dict[str, list[DataFile]]:
        """Every folder's files, which are on the disk."""
        self.flush()
        for (folder, _), part in self._open.items():
            self._done[folder].append(self._pool.submit(part.done))
        self._open.clear()
        with self._pool:
            return {
                name: sorted((each.result() for each in done), key=lambda file: file.name) for name, done in self._done.items()
            }

    def _next(self, folder: str) -> PartFile:
        # Without a seed the files of a shard, sorted by name, keep the source's order.
        name = f"{folder}/part-{self._lane:05d}-{self._numbers[folder]:05d}"
        self._numbers[folder] += 1
        path = self._root / name
        path.parent.mkdir(exist_ok=True)
        return PartFile(path, f"{self._below}/{name}")


def sync_folders(root: Path) -> None:
    """Writes the names of the files to the disk."""
    for path, _, _ in os.walk(root):
        durable.sync(Path(path))
    durable.sync(root.parent)

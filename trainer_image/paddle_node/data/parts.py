"""Writes the shards' files: several files of each shard are open at once, and each is hashed as it
is written.
"""

import os
import resource
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import xxhash

from paddle_node.retry import name_path
from paddle_node.volume import data_manifest, durable
from paddle_node.volume.data_manifest import DataFile

PART = 64 << 20
"""Approximate bytes of a full file."""
SMALL_PART = 4 << 20
"""Approximate bytes of a file in a small shard: about what trainers shuffle in memory at a time."""
MOST_OPEN_OF_SHARD = 32
"""Maximum files of one shard that are open at once."""
MOST_OPEN = 2048
"""Maximum files of all shards that are open at once, unless there are more shards than that."""
BUFFER = 2 << 20
"""Bytes collected in memory before a write."""
FLUSH_BYTES = 8 << 20
"""Bytes after which the kernel is asked to start writing, so that the final fsync has little to
wait for.
"""


def open_at_once(bytes_each: int, shards: int) -> int:
    """Returns how many files of a shard of about `bytes_each` bytes are open at once."""
    return max(1, min(MOST_OPEN_OF_SHARD, bytes_each // SMALL_PART, MOST_OPEN // shards))


class PartFile:
    """One file in the folder of an index. `done` closes it and returns its manifest entry."""

    def __init__(self, root: Path, name: str) -> None:
        self.bytes = 0
        self._path = path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        self._name = f"splits/{root.parent.name}/{root.name}/{name}"
        self._records = 0
        self._handed_on = 0
        self._hash = xxhash.xxh3_128()
        self._file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)

    def write(self, content: bytes | memoryview, records: int) -> None:
        self._hash.update(content)
        self.bytes += len(content)
        self._records += records
        left = memoryview(content)
        with name_path(self._path):
            while len(left) > 0:
                left = left[os.write(self._file, left) :]
        if self.bytes - self._handed_on >= FLUSH_BYTES:
            # On Linux this starts writing without waiting for it to finish.
            os.posix_fadvise(
                self._file, self._handed_on, self.bytes - self._handed_on, os.POSIX_FADV_DONTNEED
            )
            self._handed_on = self.bytes

    def done(self) -> DataFile:
        try:
            with name_path(self._path):
                os.fsync(self._file)
        finally:
            os.close(self._file)
        return DataFile(
            self._name,
            self._records,
            self.bytes,
            f"{data_manifest.CHECKSUM}:{self._hash.hexdigest()}",
        )


Files = dict[str, list[DataFile]]
"""The files of each folder."""


class Streams:
    """The open files of an index: up to `many` in each of `folders`."""

    def __init__(self, root: Path, folders: Sequence[str], many: int, index: int) -> None:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        self.many = many
        self.written = 0
        self._root, self._index = root, index
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
            part.write(
                b"".join(content for content, _ in waiting), sum(count for _, count in waiting)
            )
            if part.bytes >= PART:
                self._done[folder].append(self._pool.submit(self._open.pop((folder, slot)).done))
        self._waiting.clear()
        self.written += self._size
        self._size = 0

    def close(self) -> Files:
        """Closes all files. Returns each folder's files, which are on disk by then."""
        self.flush()
        for (folder, _), part in self._open.items():
            self._done[folder].append(self._pool.submit(part.done))
        self._open.clear()
        with self._pool:
            return {
                name: sorted((future.result() for future in done), key=lambda file: file.name)
                for name, done in self._done.items()
            }

    def _next(self, folder: str) -> PartFile:
        # Without a seed, the files of a shard keep the source's order when sorted by name.
        name = f"{folder}/part-{self._index:05d}-{self._numbers[folder]:05d}"
        self._numbers[folder] += 1
        # Not the root: if a pod that replaces this one has removed it, its parts are gone.
        (self._root / folder).mkdir(exist_ok=True)
        return PartFile(self._root, name)


def sync_folders(root: Path) -> None:
    """Flushes the names of the files to disk."""
    for path in (root, *filter(Path.is_dir, durable.walk(root))):
        durable.sync(path)
    durable.sync(root.parent)

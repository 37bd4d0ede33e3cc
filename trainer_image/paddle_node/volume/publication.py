"""Checkpoints that agents copy from their pods' scratch to an attempt's folder on the volume.

Each pod copies its files below `copies/<key>/<rank>/`, whole and flushed, with a list of them
written last. One atomic record, `published/<number>.json`, then makes them a checkpoint: from there
on, `install` moves them to `output`, now or, if it was cut short, in whoever continues from the
attempt. What no record names is never read.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from paddle_node.failure import BadData
from paddle_node.volume import durable

COPIES, PUBLISHED = "copies", "published"
"""Folders of an attempt: what agents have copied, and the records."""
OUTPUT = "output"
BLOCK, FLUSHED = 4 << 20, 256 << 20
"""Bytes that are read at once, and after which a copy is flushed: a flush shows no progress."""
LINK = "link:"
"""Begins the checksum of a link, which leads to the rest of it."""

Files = Mapping[str, Sequence[Any]]
"""Bytes and checksum of each file, by its name in the attempt's folder."""


def new_checksum() -> Any:
    """Returns an empty checksum."""
    import xxhash  # Its import must wait until the pod has said hello.

    return xxhash.xxh3_128()


def copy(
    source: Path, target: Path, file: Sequence[Any] | None, check: Callable[[], object]
) -> None:
    """Copies a file, whose bytes and checksum may be known. Under its name it is whole, flushed,
    and those very bytes. `check` is called between blocks. Raises BadData if it is another content,
    OSError.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{os.urandom(6).hex()}.tmp")
    checksum, size = new_checksum(), 0
    try:
        with source.open("rb") as stream, draft.open("xb", buffering=0) as copied:
            while block := stream.read(BLOCK):
                check()
                checksum.update(block)
                size += len(block)
                while block:
                    block = block[os.write(copied.fileno(), block) :]
                if not size % FLUSHED:
                    os.fsync(copied.fileno())
            os.fsync(copied.fileno())
        if file is not None and [size, checksum.hexdigest()] != list(file[:2]):
            raise BadData(f"{source} is damaged or was changed: its checksum is another one")
        state = source.stat()
        # The times say which checkpoint is the newest, and which file was written last.
        os.utime(draft, ns=(state.st_atime_ns, state.st_mtime_ns))
        draft.chmod(state.st_mode & 0o777 | 0o200)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def list_part(root: Path, key: str, rank: int, files: Files) -> None:
    """Records that the pod of `rank` has copied its part. Raises OSError."""
    for folder in {(_part(root, key, rank) / name).parent for name in files}:
        durable.sync(folder)
    durable.write(_part(root, key, rank).with_suffix(".json"), json.dumps(files))


def publish(
    root: Path,
    key: str,
    name: str,
    parts: Sequence[Files] | None,
    ranks: int,
    changed: int = 0,
    check: Callable[[], object] = lambda: None,
) -> dict[str, Any]:
    """Makes what the pods have copied under `key` the checkpoint `name`; of `parts`, what they were
    to copy, not a byte may be missing; None: any files. `check` raises if the lease is no longer
    held. Raises BadData, OSError.
    """
    files: dict[str, list[Any]] = {}
    folders: set[str] = set()
    for rank in range(ranks):
        path = _part(root, key, rank).with_suffix(".json")
        durable.refresh(path.parent)
        part = json.loads(path.read_text())
        if parts is not None and part != {of: list(file) for of, file in parts[rank].items()}:
            raise BadData(f"{path} lists other files than the pod had announced")
        if outside := [of for of in part if not is_inside(of)]:
            raise BadData(f"{path} lists {outside[0]}, which is not below {OUTPUT}")
        for of, (size, checksum) in part.items():
            file = _part(root, key, rank) / of
            if str(checksum).startswith(LINK):
                file.lstat()
            elif durable.stat(file).st_size != size:
                raise BadData(f"{file} has not {size} bytes")
            if changed and not file.is_symlink():  # The pods' clocks may differ.
                os.utime(file, ns=(changed, changed))
            place, there = of, root / of
            differs = files.get(of, [size, checksum])[:2] != [size, checksum]
            if differs and name:
                continue  # Of a checkpoint, all pods take the same file.
            above = list(map(str, PurePosixPath(of).parents))
            in_the_way = of in folders or files.keys() & above or _is_folder(there)
            if differs or (in_the_way and not name):
                place = str(
                    PurePosixPath(OUTPUT, f"pod-{rank}", PurePosixPath(of).relative_to(OUTPUT))
                )
            files.setdefault(place, [size, checksum, rank, of])
            folders.update(map(str, PurePosixPath(place).parents))
    records = read_records(root)
    number = 1 + max((record["number"] for record in records), default=0)
    record = {"number": number, "name": name, "key": key, "files": files}
    durable.write(_record(root, record), json.dumps(record), check)
    install(root)
    return record


def read_records(root: Path) -> list[dict[str, Any]]:
    """Returns the records of an attempt, the oldest first. Raises OSError."""
    records = []
    for entry in durable.entries(root / PUBLISHED):
        if entry.name.endswith(".json") and not entry.name.startswith("."):
            with contextlib.suppress(ValueError):
                records.append(json.loads((root / PUBLISHED / entry.name).read_text()))
    return records


def install(root: Path) -> None:
    """Moves what is recorded to its place, and removes what a newer record of the same name has
    replaced. The next call completes one that was cut short. Raises OSError.
    """
    records = read_records(root)
    for record in records:
        copied = root / COPIES / record["key"]
        if copied.is_dir():
            for place, (_, _, rank, of) in record["files"].items():
                target = root / place
                with contextlib.suppress(FileNotFoundError):
                    source = copied / str(rank) / of
                    source.lstat()
                    _make_room(root, place)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    source.replace(target)
            for folder in {(root / place).parent for place in record["files"]}:
                durable.sync(folder)
            shutil.rmtree(copied, ignore_errors=True)
    newest = {record["name"]: record for record in records}
    for record in records:
        if record.get("discarded"):
            _remove(root, record, ())
        elif record["name"] and newest[record["name"]] is not record:
            _remove(root, record, newest[record["name"]]["files"])


def discard(root: Path, names: Collection[str]) -> None:
    """Removes checkpoints that their program has deleted. Raises OSError."""
    for record in read_records(root):
        if record["name"] in names:
            # From here on, whoever continues from the attempt removes the rest of it.
            durable.write(_record(root, record), json.dumps(record | {"discarded": True}))
    install(root)


def is_inside(name: str) -> bool:
    """Whether a name is that of something below the output, wherever its folder lies."""
    parts = PurePosixPath(name).parts
    return len(parts) > 1 and parts[0] == OUTPUT and ".." not in parts


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _make_room(root: Path, place: str) -> None:
    """Removes what a newer file replaces: a folder of its name, a file or a link in place of one of
    its folders.
    """
    for above in reversed(PurePosixPath(place).parents[:-1]):
        if (root / above).is_symlink() or (root / above).is_file():
            (root / above).unlink()
    if _is_folder(root / place):
        shutil.rmtree(root / place)


def _remove(root: Path, record: Mapping[str, Any], but: Collection[str]) -> None:
    folders = set()
    for place in record["files"]:
        if place not in but:
            (root / place).unlink(missing_ok=True)
            folders.update((root / place).relative_to(root).parents)
    for folder in sorted(folders, key=lambda folder: len(folder.parts), reverse=True):
        if len(folder.parts) > 1:  # Never `output` itself.
            with contextlib.suppress(OSError):
                (root / folder).rmdir()
    _record(root, record).unlink(missing_ok=True)


def _record(root: Path, record: Mapping[str, Any]) -> Path:
    return root / PUBLISHED / f"{record['number']:08d}.json"


def _part(root: Path, key: str, rank: int) -> Path:
    return root / COPIES / key / str(rank)

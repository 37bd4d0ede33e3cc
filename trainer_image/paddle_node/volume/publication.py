"""Checkpoints that agents copy from their pods' scratch to an attempt's folder on the volume.

Each pod copies its files below `copies/<key>/<rank>/`, whole and flushed, with a list of them
written last. One atomic record, `published/<number>.json`, then makes them a checkpoint: from there
on, `install` moves them to `output`, now or, if it was cut short, in whoever continues from the
attempt. What no record names is never read. What belongs to no checkpoint goes along: one record of
all such files, `published/others`, comes just before that of the checkpoint.
"""

import contextlib
import itertools
import json
import os
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from paddle_node.failure import BadData
from paddle_node.retry import name_path
from paddle_node.volume import durable

COPIES, PUBLISHED = "copies", "published"
"""Folders of an attempt: what agents have copied, and the records."""
OTHERS = "others"
"""The record of what belongs to no checkpoint."""
OUTPUT = "output"
BLOCK, FLUSHED = 4 << 20, 256 << 20
"""Bytes that are read at once, and after which a copy is flushed: a flush shows no progress."""
LONGEST_NAME = 256
"""Characters that no file's name has."""
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
) -> list[Any]:
    """Copies a file with these bytes and checksum; None: as it is at one moment, even if it grows.
    Returns both. Under its name the copy is whole and flushed. `check` is called between blocks.
    Raises BadData if the content is another one, or changes, OSError.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{os.urandom(6).hex()}.tmp")
    checksum, size = new_checksum(), 0
    try:
        if (stream := durable.open_file(source)) is None:
            raise BadData(f"{source} is no file")
        with stream, draft.open("xb", buffering=0) as copied:
            state = os.fstat(stream.fileno())
            while block := _read(source, stream, state.st_size - size):
                check()
                checksum.update(block)
                size += len(block)
                while block:
                    block = block[os.write(copied.fileno(), block) :]
                if not size % FLUSHED:
                    os.fsync(copied.fileno())
            os.fsync(copied.fileno())
            content = [size, checksum.hexdigest()]
            if file is not None and content != list(file[:2]):
                raise BadData(f"{source} is damaged or was changed: its checksum is another one")
            if file is None and not _still_begins(source, stream, state, content, check):
                raise BadData(f"{source} changes while it is copied")
        # The times say which checkpoint is the newest, and which file was written last.
        os.utime(draft, ns=(state.st_atime_ns, state.st_mtime_ns))
        draft.chmod(state.st_mode & 0o777 | 0o200)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return content


def _read(source: Path, stream: Any, left: int) -> bytes:
    with name_path(source):  # Not the copy's.
        return bytes(stream.read(min(BLOCK, left)))


def _still_begins(
    source: Path,
    stream: Any,
    state: os.stat_result,
    content: Sequence[Any],
    check: Callable[[], object],
) -> bool:
    """Whether a file that may have changed since it was in this state begins with this content."""
    now = os.fstat(stream.fileno())
    if (now.st_size, now.st_mtime_ns) == (state.st_size, state.st_mtime_ns):
        return bool(content[0] == state.st_size)
    stream.seek(0)
    checksum, left = new_checksum(), content[0]
    while block := _read(source, stream, left):
        check()
        checksum.update(block)
        left -= len(block)
    return bool(not left and checksum.hexdigest() == content[1])


def list_part(root: Path, key: str, rank: int, files: Files, others: Files) -> None:
    """Records that the pod of `rank` has copied its part of a checkpoint. `others`: everything else
    of the pod, be it copied now or on the volume already. Raises OSError.
    """
    part = _part(root, key, rank)
    for folder in {(part / name).parent for name in (*files, *others)}:
        if folder.is_dir():
            durable.sync(folder)
    durable.write(part.with_suffix(".json"), json.dumps({"files": files, "others": others}))


def publish(
    root: Path,
    key: str,
    name: str,
    parts: Sequence[Files] | None,
    ranks: int,
    changed: int = 0,
    check: Callable[[], object] = lambda: None,
) -> None:
    """Records what the pods have copied under `key`: the checkpoint `name`, of whose `parts` not a
    byte may be missing, and what belongs to none; an empty name: only that. `check` raises if the
    lease is no longer held. Raises BadData, OSError.
    """
    lists = []
    for rank in range(ranks):
        path = _part(root, key, rank).with_suffix(".json")
        durable.refresh(path.parent)
        part = json.loads(path.read_text())
        if not _is_list(part):
            raise BadData(f"{path} is no list of files")
        if parts is not None and part["files"] != {of: list(at) for of, at in parts[rank].items()}:
            raise BadData(f"{path} lists other files than the pod had announced")
        if outside := [of for kind in part.values() for of in kind if not is_inside(of)]:
            raise BadData(f"{path} lists {outside[0]}, which is not below {OUTPUT}")
        lists.append(part)
    files: dict[str, list[Any]] = {}
    for rank, part in enumerate(lists):
        for of, content in part["files"].items():
            copied = _part(root, key, rank) / of
            _check_copy(copied, content)
            if changed and not copied.is_symlink():  # The pods' clocks may differ.
                os.utime(copied, ns=(changed, changed))
            files.setdefault(of, [*content, rank, of])  # All pods take the same file.
    records, before = read_records(root), read_others(root)
    saved = files | _list_saved(records)
    others = _place_others(root, key, [part["others"] for part in lists], saved)
    # Those of a record that was not installed are still there.
    gone = {*before["gone"], *before["files"]} - others.keys() - saved.keys()
    durable.write(
        root / PUBLISHED / OTHERS,
        json.dumps({"key": key, "files": others, "gone": sorted(gone)}),
        check,
    )
    if name:
        number = 1 + max((record["number"] for record in records), default=0)
        record = {"number": number, "name": name, "key": key, "files": files}
        durable.write(_record(root, record), json.dumps(record), check)


def _is_list(part: Any) -> bool:
    """Whether this is what `list_part` writes."""
    kinds = [part.get("files"), part.get("others")] if isinstance(part, dict) else [None]
    return all(
        isinstance(files, dict)
        and all(isinstance(of, list) and [*map(type, of)] == [int, str] for of in files.values())
        for files in kinds
    )


def _check_copy(file: Path, content: Sequence[Any]) -> None:
    if str(content[1]).startswith(LINK):
        file.lstat()
    elif durable.stat(file).st_size != content[0]:
        raise BadData(f"{file} has not {content[0]} bytes")


def _place_others(
    root: Path, key: str, parts: Sequence[Files], saved: Files
) -> dict[str, list[Any]]:
    """Returns the place of each file that belongs to no checkpoint, with what it is there: its name
    in the pod, unless another file has that place. What is on the volume stays where it is.
    """
    before = read_others(root)["files"]
    there = {(of, size, checksum): place for place, (size, checksum, _, of) in before.items()}
    waiting, kept = [], []
    for rank, part in enumerate(parts):
        for of, content in part.items():
            copied = _part(root, key, rank) / of
            if os.path.lexists(copied):
                _check_copy(copied, content)
                waiting.append((of, content, rank))
            elif (place := there.get((of, *content))) is None:
                raise BadData(f"{copied} is missing")
            else:
                kept.append((place, [*content, rank, of]))
    copied_names = {of for of, _, _ in waiting}
    places: dict[str, list[Any]] = {}
    for place, entry in kept:
        # Where it is the same in several pods and one changes it, the others copy theirs next time.
        if before[place][2] == entry[2] or place not in copied_names:
            places.setdefault(place, entry)
    taken = {**saved, **places}
    folders = {str(above) for place in taken for above in PurePosixPath(place).parents}
    for of, content, rank in waiting:
        place, above, numbers = of, "", itertools.count(2)
        while (
            (place in taken and list(taken[place][:2]) != list(content))
            or place in folders
            or taken.keys() & set(map(str, PurePosixPath(place).parents))
            or _is_folder(root / place)
            or (os.path.lexists(root / above) and not _is_folder(root / above))
        ):
            pod = f"{OUTPUT}/pod-{rank}"
            above = pod if place == of else f"{pod}-{next(numbers)}"
            place = str(above / PurePosixPath(of).relative_to(OUTPUT))
        taken[place] = places.setdefault(place, [*content, rank, of])
        folders.update(map(str, PurePosixPath(place).parents))
    return places


def read_records(root: Path) -> list[dict[str, Any]]:
    """Returns the records of an attempt, the oldest first. Raises OSError."""
    records = []
    for entry in durable.entries(root / PUBLISHED):
        if entry.name.endswith(".json") and not entry.name.startswith("."):
            with contextlib.suppress(ValueError):
                records.append(json.loads((root / PUBLISHED / entry.name).read_text()))
    return records


def read_others(root: Path) -> dict[str, Any]:
    """Returns the record of what belongs to no checkpoint: `files` has its bytes, checksum, rank,
    and name in that rank's pod, by its place. Raises OSError.
    """
    with contextlib.suppress(FileNotFoundError, ValueError):
        return dict(json.loads((root / PUBLISHED / OTHERS).read_text()))
    return {"key": "", "files": {}, "gone": []}


def _list_saved(records: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    return {
        place: content
        for record in records
        if not record.get("discarded")
        for place, content in record["files"].items()
    }


def install(root: Path) -> None:
    """Moves what is recorded to its place, and removes what a newer record of the same name has
    replaced. The next call completes one that was cut short. Raises OSError.
    """
    records, others = read_records(root), read_others(root)
    both = [record for record in (*records, others) if record["key"]]
    for record in both:
        copied = root / COPIES / record["key"]
        folders: set[Path] = set()
        for place, (_, _, rank, of) in record["files"].items() if copied.is_dir() else ():
            target = root / place
            with contextlib.suppress(FileNotFoundError):
                source = copied / str(rank) / of
                source.lstat()
                _make_room(root, place)
                target.parent.mkdir(parents=True, exist_ok=True)
                source.replace(target)
                folders.add(target.parent)
        for folder in folders:
            durable.sync(folder)
    for key in {record["key"] for record in both}:
        shutil.rmtree(root / COPIES / key, ignore_errors=True)
    newest = {record["name"]: record for record in records}
    for record in records:
        if record.get("discarded"):
            _remove(root, record["files"], others["files"])
            _record(root, record).unlink(missing_ok=True)
        elif newest[record["name"]] is not record:
            _remove(root, record["files"], newest[record["name"]]["files"].keys() | others["files"])
            _record(root, record).unlink(missing_ok=True)
    if others["key"]:
        _remove(root, others["gone"], _list_saved(records))
        # The next copies of this key are not recorded yet.
        done = json.dumps({"key": "", "files": others["files"], "gone": []})
        durable.write(root / PUBLISHED / OTHERS, done)


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
    fits = "\0" not in name and max(map(len, parts), default=0) < LONGEST_NAME
    return fits and len(parts) > 1 and parts[0] == OUTPUT and ".." not in parts


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


def _remove(root: Path, places: Collection[str], but: Collection[str]) -> None:
    folders: set[Path] = set()
    for place in places:
        if place not in but:
            with contextlib.suppress(NotADirectoryError, IsADirectoryError):
                (root / place).unlink(missing_ok=True)
            folders.update((root / place).relative_to(root).parents)
    for folder in sorted(folders, key=lambda folder: len(folder.parts), reverse=True):
        if len(folder.parts) > 1:  # Never `output` itself.
            with contextlib.suppress(OSError):
                (root / folder).rmdir()


def _record(root: Path, record: Mapping[str, Any]) -> Path:
    return root / PUBLISHED / f"{record['number']:08d}.json"


def _part(root: Path, key: str, rank: int) -> Path:
    return root / COPIES / key / str(rank)

"""A saved pass on the volume: one record makes it valid; without the record it counts as absent.

A pass lies in the folder of the attempt that saved it, where no other attempt writes. Its record
`done` is created exclusively, after every file was flushed, with the files' checksums. Nothing
valid is rewritten, so a process frozen for any time can only seal its own attempt's folder.
`interrupted-00001` (a checkpoint inside a pass) and `inference` follow the same rule.
"""

import contextlib
import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from paddle_node.failure import BadData, Failure
from paddle_node.volume import durable
from paddle_node.volume.job_folder import JobFolder

DONE = "done"
"""The record: {pass, attempt, run, data, program, agreed, trainers, files: [{name, bytes,
checksum}], checksum: its own}.
"""
PASS, INTERRUPTED, INFERENCE = r"pass-\d{5}", r"interrupted(-\d{5})?", "inference"
"""Name patterns of the kinds of folders that an attempt seals."""
PREDICT = "predict.py"
"""Plain Python in `inference` that loads the model and predicts; run it in that folder."""
ALGORITHM = "xxh3_128"


class DamagedPass(BadData):
    """A pass is damaged or has no record: names the file and what is wrong with it."""


@dataclass(frozen=True)
class Identity:
    """The data and the program that made a pass: a job resumes only from passes with its own
    identity, unless it asks for any.
    """

    data: str = ""
    program: str = ""

    def __str__(self) -> str:
        return (
            f"data {self.data[:12] or 'without a manifest'} and program "
            f"{self.program[:12] or 'without a digest'}"
        )


@dataclass(frozen=True)
class SealedFolder:
    """A sealed folder and its record."""

    folder: Path
    record: Mapping[str, Any]

    @property
    def number(self) -> int:
        return int(self.record["pass"])

    @property
    def identity(self) -> Identity:
        return Identity(self.record["data"], self.record["program"])

    @property
    def name(self) -> str:
        return "/".join(self.folder.parts[-3:])


@dataclass(frozen=True)
class ListedFolder:
    """A folder of a listing of output/ in which a pass was saved, or was to be."""

    folder: str
    """Its place below output/."""
    sizes: Mapping[str, int]
    """The bytes of each of its files, by name."""
    record: Mapping[str, Any] | None
    """None: there is none, or it was changed. That of Paddle 0.x is empty."""

    @property
    def name(self) -> str:
        return self.folder.rpartition("/")[2]

    @property
    def attempt(self) -> int:
        """The number of the attempt that saved it; 0: Paddle 0.x did."""
        return attempt_number(self.folder.split("/")[-2]) if "/" in self.folder else 0

    @property
    def complete(self) -> bool:
        """Whether all files are there, by name and size."""
        return self.record is not None and find_damage(self.record, self.sizes.get) is None


@dataclass(frozen=True)
class Position:
    """How far one trainer is in a pass."""

    read: int = 0
    trained: int = 0
    total: float = 0.0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    """CPU time of all threads of this process."""
    odd: int = 0


def order_digest(data: str, seed: int, trainers: int) -> str:
    """Returns a digest that is equal for runs that read the same records in the same order: only
    those resume inside a pass.
    """
    return hashlib.sha256(json.dumps([seed, trainers, data]).encode()).hexdigest()


def read_newest_first(
    folder: JobFolder, kind: str = PASS, report: Callable[[str], None] = lambda _: None
) -> Iterator[SealedFolder]:
    """Yields all folders that attempts have sealed, reading one record at a time; reports and
    leaves out unreadable ones.
    """
    for directory in reversed(_folders(folder, kind)):
        try:
            pass_ = _read(directory)
        except DamagedPass as damaged:
            report(f"{damaged.sentence}: it is skipped")
        else:
            if pass_:
                yield SealedFolder(directory, pass_)


def read_listing(
    sizes: Mapping[str, int], read: Callable[[str], bytes], kind: str = PASS
) -> list[ListedFolder]:
    """Returns the saved folders of a kind in a listing of output/, in the order of
    `read_newest_first`. Incomplete folders are included; folders that an attempt gave up are not.

    `sizes`: the bytes of each file, by its name below output/. `read` returns such a file's
    content.
    """
    folders: dict[str, dict[str, int]] = {}
    for name, size in sizes.items():
        if match := re.fullmatch(rf"((?:attempts/[^/]+/)?(?:{kind}))/(.+)", name):
            folders.setdefault(match[1], {})[match[len(match.groups())]] = size
    saved = []
    for folder, files in folders.items():
        try:
            record = parse_record(read(f"{folder}/{DONE}")) if DONE in files else None
        except ValueError:
            record = None
        if record != {} or "/" not in folder:
            saved.append(ListedFolder(folder, files, record))
    return sorted(saved, key=lambda listed: (listed.attempt, listed.name), reverse=True)


def last_attempt(folder: JobFolder) -> int:
    """Returns the highest number among the attempts' folders; 0: there are none."""
    attempts = durable.entries(folder.attempts)
    return max((attempt_number(entry.name) for entry in attempts), default=0)


def discard_incomplete(folder: JobFolder) -> list[Path]:
    """Removes what ended attempts left half saved; an empty record keeps a process frozen during a
    save from sealing it.
    """
    broken = []
    for directory in _folders(folder, f"{PASS}|{INTERRUPTED}|{INFERENCE}"):
        try:
            # An empty file needs no space: the volume may be full.
            (directory / DONE).touch(exist_ok=False)
        except FileExistsError:
            continue
        broken.append(directory)
        for entry in durable.entries(directory):
            if durable.is_folder(entry):
                shutil.rmtree(directory / entry.name, ignore_errors=True)
            elif entry.name != DONE:
                (directory / entry.name).unlink(missing_ok=True)
    return broken


def keep_newest(
    folder: JobFolder, identity: Identity, count: int, good: set[Path], kind: str = PASS
) -> None:
    """Removes all good folders of this identity except the `count` newest (0 keeps all).

    `good` holds folders whose bytes this process has read or written; this call adds those that it
    verifies.
    """
    if not count:
        return
    own = (pass_ for pass_ in read_newest_first(folder, kind) if pass_.identity == identity)
    for pass_ in [pass_ for pass_ in own if _is_good(pass_.folder, good)][count:]:
        remove(folder, pass_)


def remove(folder: JobFolder, saved: SealedFolder) -> None:
    """Removes the record first, so that a half-removed folder does not look complete, and broken
    links last.
    """
    (saved.folder / DONE).unlink(missing_ok=True)
    shutil.rmtree(saved.folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        saved.folder.parent.rmdir()
    remove_broken_links(folder)


def remove_broken_links(folder: JobFolder) -> None:
    """Removes broken links that led to an attempt's folder; a person's own links stay."""
    for entry in durable.entries(folder.output):
        link = folder.output / entry.name
        if entry.is_symlink() and not link.exists() and link.readlink().parts[0] == "attempts":
            link.unlink(missing_ok=True)


def describe_files(directory: Path, names: Sequence[str]) -> list[dict[str, Any]]:
    """Returns the files of a folder as its record lists them. Reads every byte."""
    files = [(name, directory / name) for name in names]
    return [
        {"name": name, "bytes": file.stat().st_size, "checksum": checksum(file)}
        for name, file in files
    ]


def seal(
    directory: Path,
    facts: Mapping[str, Any],
    describe: Callable[[Path, list[str]], list[dict[str, Any]]] = describe_files,
) -> None:
    """Flushes the files and creates the record with their checksums. Raises `Failure` if a later
    attempt gave up the folder.
    """
    given_up = Failure(1, f"{directory} was given up by a later attempt while it was saved")
    if (directory / DONE).exists():
        raise given_up
    inside = sorted(durable.walk(directory), reverse=True)
    for entry in [*inside, directory, *directory.parents[:3]]:
        durable.sync(entry)
    names = [file.relative_to(directory).as_posix() for file in reversed(inside) if file.is_file()]
    if not names:
        raise Failure(1, f"{directory} was not saved: it holds no files")
    record = {**facts, "files": describe(directory, names)}
    if not durable.create(
        directory / DONE, json.dumps(record | {"checksum": _checksum(record)}) + "\n"
    ):
        raise given_up


def link_newest(folder: JobFolder, name: str) -> None:
    """Links output/`name`, or output/interrupted, to the newest sealed folder of that name; leaves
    existing folders alone.
    """
    checkpoint = re.fullmatch(INTERRUPTED, name)
    link = folder.output / ("interrupted" if checkpoint else name)
    for newest in islice(
        read_newest_first(folder, INTERRUPTED if checkpoint else re.escape(name)), 1
    ):
        if link.is_symlink() or not link.exists():
            durable.link(link, newest.name)


def verify(directory: Path) -> None:
    """Checks every byte of a sealed folder against its record. Raises `DamagedPass` with a
    sentence.
    """
    # Names and sizes first: checking them reads no contents.
    if damage := find_fault(directory) or find_fault(directory, every_byte=True):
        raise DamagedPass(
            f"{directory} cannot be loaded: {damage}; restore the file, or remove the whole pass"
        )


def find_fault(directory: Path, *, every_byte: bool = False) -> str | None:
    """Returns why a folder is incomplete by its record, names and sizes (`every_byte`: contents,
    too); None: it is complete.
    """
    try:
        record = _read(directory)
    except DamagedPass as damaged:
        return damaged.sentence
    if record is None:
        return f"it has no {DONE}: it was not saved to the end"

    def size(name: str) -> int | None:
        try:
            return durable.stat(directory / name).st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    return find_damage(
        record, size, (lambda name: checksum(directory / name)) if every_byte else None
    )


def find_damage(
    record: Mapping[str, Any],
    size: Callable[[str], int | None],
    checksum: Callable[[str], str] | None = None,
) -> str | None:
    """Returns how a folder differs from its record, by names and sizes, and by contents if
    `checksum` is given; None: it does not. `size` returns a file's bytes, None if it is missing.
    """
    for entry in record.get("files", ()):
        name, saved = entry["name"], entry["bytes"]
        if (there := size(name)) is None:
            return f"{name} is missing"
        if there != saved:
            return f"{name} has {there} bytes, and {saved} were saved"
        if checksum is not None and checksum(name) != entry["checksum"]:
            return f"{name} was changed after it was saved"
    return None


def checksum(file: Path) -> str:
    """Returns `<algorithm>:<hex>` of a file's bytes."""
    import xxhash

    with file.open("rb", buffering=0) as stream:
        return f"{ALGORITHM}:{hashlib.file_digest(stream, xxhash.xxh3_128).hexdigest()}"  # type: ignore[arg-type]


def read_record(directory: Path) -> Mapping[str, Any]:
    """Returns the record of a sealed folder. Raises `DamagedPass`."""
    pass_ = _read(directory)
    if not pass_:
        raise DamagedPass(f"{directory} has no record {DONE}: it was not saved to the end")
    return pass_


def _read(directory: Path) -> dict[str, Any] | None:
    """Returns the record; None: there is none. An empty one is Paddle 0.x's, written last of all,
    or marks a folder given up.
    """
    durable.refresh(directory)
    try:
        return parse_record((directory / DONE).read_bytes())
    except FileNotFoundError:
        return None
    except (IsADirectoryError, ValueError):
        raise DamagedPass(
            f"{directory / DONE} is not a record of this version, or was changed after it was "
            "written"
        ) from None


def parse_record(text: bytes) -> dict[str, Any]:
    """Parses a record; an empty text gives an empty one. Raises ValueError if the text is no record
    or was changed.
    """
    try:
        document = json.loads(text) if text else {}
        if text and document["checksum"] != _checksum(document):
            raise ValueError
        return dict(document)
    except (LookupError, TypeError, RecursionError):
        raise ValueError from None


def _checksum(record: Mapping[str, Any]) -> str:
    import xxhash

    rest = {name: value for name, value in record.items() if name != "checksum"}
    return f"{ALGORITHM}:{xxhash.xxh3_128(json.dumps(rest, sort_keys=True).encode()).hexdigest()}"


def _is_good(directory: Path, good: set[Path]) -> bool:
    if directory in good:
        return find_fault(directory) is None
    try:
        verify(directory)
    except DamagedPass:
        return False
    good.add(directory)
    return True


def list_attempts(folder: JobFolder) -> list[Path]:
    """Returns the attempts' folders by number, which is never reused. Links are a person's and are
    not followed.
    """
    entries = durable.entries(folder.attempts)
    names = (entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    return [folder.attempts / name for name in sorted(names, key=attempt_number)]


def _folders(folder: JobFolder, kind: str) -> list[Path]:
    """Returns what attempts have sealed, or were to seal: by attempt, then by pass."""
    return [
        attempt / entry.name
        for attempt in list_attempts(folder)
        for entry in durable.entries(attempt)
        if re.fullmatch(kind, entry.name) and entry.is_dir(follow_symlinks=False)
    ]


def attempt_number(name: str) -> int:
    """Returns the number of the attempt whose folder has this name; 0: it is no attempt's."""
    number = name.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0

"""The records of one trainer's shard, each once per pass, in an order that depends only on seed,
pass and trainer.

Short stretches of the files come in random order. Records are shuffled `WINDOW` at a time, and no
more are held in memory.
"""

import codecs
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from paddle_node import own_code
from paddle_node.failure import BadData
from paddle_node.volume import data_manifest, durable
from paddle_node.volume.job_folder import JobFolder

WINDOW = 65_536
"""Number of records shuffled together; a smaller shard is shuffled as a whole."""
STRETCH = 1 << 12
"""Minimum bytes read in sequence from a file of lines: a window has records from very many
places.
"""
ODD_SHARE = 0.01
"""Share of records that may be unreadable: a large corpus has some odd lines, the wrong file has
nothing else.
"""
FEW_ANSWERS = 10
"""Up to this many classes are never too many, whatever the number of records."""

Reader = Callable[[Path], Iterable[str]]
"""Reads a file of the shard into records."""


class Record(NamedTuple):
    """One record and its location."""

    text: str
    file: Path
    number: int
    """Counts from 1 within the file, or within the file's stretch that begins after byte
    `begin`.
    """
    begin: int = 0

    def describe(self, why: str = "") -> str:
        """Returns the record's location and the beginning of its text."""
        behind = f" behind byte {self.begin}" if self.begin else ""
        shown = self.text if len(self.text) <= 80 else f"{self.text[:80]}..."
        return f"record {self.number}{behind} of {self.file.name}{why}: {shown!r}"


class NotUtf8(str):
    """A record with U+FFFD in place of bytes that are not text: `Parser` counts it as
    unreadable.
    """


def lines(file: Path, begin: int = 0, end: int | None = None) -> Iterator[str]:
    r"""Yields lines without their ends as records; in a stretch, those that begin there. A line not
    in UTF-8 is a `NotUtf8`.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = Path(file.name).write_bytes(b"1\tgood\r\n0\tbad\n")
    ...     list(lines(Path(file.name)))
    ['1\tgood', '0\tbad']
    """
    with file.open("rb") as stream:
        if begin:
            stream.seek(begin - 1)
            stream.readline()
        # Only a newline ends a line: the splitter does not end a line at a lone carriage return
        # inside a record either.
        while (end is None or stream.tell() < end) and (line := stream.readline()):
            if stream.tell() == len(line):
                line = line.removeprefix(codecs.BOM_UTF8)
            try:
                yield line.decode().rstrip("\r\n")
            except UnicodeDecodeError:
                yield NotUtf8(line.decode(errors="replace").rstrip("\r\n"))


class Shard:
    """The files of one shard and the number of records they must have (None: there is no
    manifest).
    """

    def __init__(
        self, name: str, files: list[Path], expected: int | None, reader: Reader = lines
    ) -> None:
        self.name = name
        self.files = files
        self.expected = expected
        self._reader = reader
        self._kept: list[Record] | None = None

    def __iter__(self) -> Iterator[Record]:
        for file in self.files:
            for number, text in enumerate(self._reader(file), start=1):
                yield Record(text, file, number)

    def count(self) -> int:
        return sum(1 for _ in self) if self.expected is None else self.expected

    def shuffle(self, *order: int) -> Iterator[Record]:
        """Yields the records in the order that the numbers `order` (seed, pass, trainer)
        determine.
        """
        randomness = random.Random("/".join(map(str, order)))
        for window in self._windows(randomness):
            shuffled = list(window)
            randomness.shuffle(shuffled)
            yield from shuffled

    def _windows(self, randomness: random.Random) -> Iterator[list[Record]]:
        """Yields the records by window. A shard that fits into one window is read once and kept."""
        if self._kept is not None:
            yield self._kept
            return
        records = (
            iter(self)
            if self.expected is not None and self.expected < WINDOW
            else self._scatter(randomness)
        )
        window = list(islice(records, WINDOW))
        if len(window) < WINDOW:
            self._kept = window
        while window:
            yield window
            window = list(islice(records, WINDOW))

    def _scatter(self, randomness: random.Random) -> Iterator[Record]:
        """Yields the records stretch by stretch, in random order; a program's own reader reads
        whole files.
        """
        sizes = [file.stat().st_size for file in self.files]
        # A few dozen records of any length; a file that a person put there may have long ones.
        length = max(STRETCH, 64 * sum(sizes) // self.expected) if self.expected else 256 * STRETCH
        stretches = [
            (file, begin)
            for file, size in zip(self.files, sizes, strict=True)
            for begin in (range(0, max(size, 1), length) if self._reader is lines else (0,))
        ]
        randomness.shuffle(stretches)
        for file, begin in stretches:
            texts = (
                lines(file, begin, begin + length) if self._reader is lines else self._reader(file)
            )
            for number, text in enumerate(texts, start=1):
                yield Record(text, file, number, begin)

    def check(self, parser: "Parser") -> None:
        """Raises `BadData` if a pass did not read the records that the shard must have, or could
        not use them.
        """
        parser.check(self.name)
        if parser.read == 0:
            raise BadData(
                f"{self.name} has no records, and a trainer needs one: split at least one record "
                "for each trainer"
            )
        if self.expected is not None and parser.read != self.expected:
            raise BadData(
                f"{self.name} has {parser.read} records, the data manifest says {self.expected}: "
                "split the data again"
            )
        if parser.used == 0:
            raise BadData(
                f"{self.name}: the program left out all {parser.read} records: nothing is left "
                "to train on"
            )

    def check_answers(self, answers: Sequence[str], trainers: int) -> None:
        """Raises `BadData` if no model can learn the program's classes from the trainers'
        shards.
        """
        records = (self.expected or 0) * trainers
        if len(answers) == 1:
            what = f"every record has the answer {answers[0]!r}, so there is nothing to learn"
        elif records and len(answers) > max(FEW_ANSWERS, records / 2):
            what = (
                f"about {records} records have {len(answers)} different answers: is the answer "
                "in another column?"
            )
        else:
            return
        raise BadData(f"{self.name}: {what} {next(iter(self)).describe()}")


class Parser:
    """Applies the program's `parse` to records and counts them."""

    def __init__(
        self, parse: Callable[[str], Any], read: int = 0, used: int = 0, odd: int = 0
    ) -> None:
        """Continues the counts of an earlier attempt."""
        self._parse = parse
        self._first: str | None = "in an earlier attempt's log" if odd else None
        self.read, self.used, self.odd = read, used, odd

    def values(self, records: Iterable[Record]) -> Iterator[Any]:
        """Yields the parsed records, without odd ones and those for which `parse` returns None."""
        for record in records:
            self.read += 1
            value = self._value(record)
            if value is not None:
                self.used += 1
                yield value

    def check(self, name: str) -> None:
        """Raises `BadData` if more of the records were odd than a good file has."""
        sentence = f"{name}: {self.odd} of {self.read} records cannot be read"
        if self.odd > self.read * ODD_SHARE:
            raise BadData(
                f"{sentence}, at most {ODD_SHARE:.0%} may be so; the first is {self._first}"
            )
        if self.odd:
            print(f"{sentence} and are left out; the first is {self._first}", flush=True)

    def _value(self, record: Record) -> Any:
        try:
            if isinstance(record.text, NotUtf8):
                raise ValueError("it is not UTF-8")
            return self._parse(record.text)
        except (ValueError, KeyError, IndexError) as error:
            if self._first is None:
                self._first = record.describe(f" ({own_code.summary(error)})")
            self.odd += 1
            return None


def open_shard(
    folder: JobFolder, trainer: int, reader: Reader = lines, staged: JobFolder | None = None
) -> Shard:
    """Returns the shard as the manifest lists it, or as a person put it there; the copy below
    `staged` if there is one.
    """
    place = folder.shard(trainer)
    if not place.is_dir():
        place = folder.older_shard(trainer)
    stated = data_manifest.read(folder.data_manifest)
    listed = (
        stated.shards[trainer].files if stated is not None and trainer < len(stated.shards) else ()
    )
    expected = sum(file.records for file in listed) if stated is not None else None
    if staged is not None and (copy := staged.shard(trainer)).is_dir():
        return _read_folder(copy, expected, reader)
    if stated is None:
        return _read_folder(place, None, reader)
    return Shard(str(place), [folder.root / file.name for file in listed], expected, reader)


def open_held_out(folder: JobFolder, reader: Reader = lines) -> Shard:
    """Returns what the split held out from training."""
    stated = data_manifest.read(folder.data_manifest)
    if stated is None:
        return _read_folder(folder.held_out, None, reader)
    return Shard(
        str(folder.held_out), [folder.root / file.name for file in stated.held_out], None, reader
    )


def _read_folder(place: Path, expected: int | None, reader: Reader) -> Shard:
    if not place.is_dir():
        raise BadData(f"{place} is missing: run the data-split job of this job first")
    # Files whose names begin with a dot are half-written or the file system's own.
    files = sorted(
        file for file in durable.walk(place) if file.is_file() and not file.name.startswith(".")
    )
    return Shard(str(place), files, expected, reader)

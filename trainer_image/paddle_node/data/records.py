"""Turns pieces of the source into lists of records: lines, or what the user's own record reader
yields.

A record's bytes pass through unchanged, except that the last line gets its missing newline, and the
first loses the byte order mark that Notepad and Excel write. Memory holds a block and the longest
record. `DATA_FORMAT=module:function` names a reader in the training
program's folder:

    def function(stream: BinaryIO, name: str) -> Iterable[bytes]

The reader gets each file of the source, unpacked. It yields the records as the shard is to hold
them, the same ones each time.
"""

import codecs
import importlib
import io
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from paddle_node import own_code
from paddle_node.contract import Variable
from paddle_node.data.sources import unpack
from paddle_node.data.sources.source import Piece, Source
from paddle_node.failure import BadData, BadSetting, Failure

BLOCK = 1 << 17
"""Bytes of lines in memory at a time: about the size of a processor's cache."""
RECORD_BYTES = 16 << 20
"""Maximum bytes of one record: a few such records must fit into 100 MB."""
ZEROED = bytes(512)
"""What a disk returns for a block that was never written: no text has that many zeros in a row."""

RecordReader = Callable[[BinaryIO, str], Iterable[bytes]]


def batches(
    source: Source,
    pieces: Iterable[Piece],
    format: str,
    reader: RecordReader | None,
    header: bool = False,
) -> Iterator[list[bytes]]:
    """Yields lists of records; `header`: without the first line of each file. Raises `Failure` for
    damage, and for anything that is not a record.
    """
    for piece in pieces:
        if piece.end is not None:
            with source.open(piece.thing, max(piece.begin - 1, 0)) as stream:
                lines = _records_between(stream, piece.begin, piece.end, piece.thing.name)
                lines = lines if piece.begin else _without_mark(lines)
                yield from _behind_first(lines) if header and not piece.begin else lines
            continue
        for name, content in unpack.members(source, piece.thing, format):
            lines = _read(reader, content, name) if reader else _without_mark(_lines(content, name))
            yield from _behind_first(lines) if header else lines


def load_reader(name: str, program: Path) -> RecordReader:
    """Imports a record reader. Raises `BadSetting` if there is no such module or function, or the
    import fails.
    """
    module_name, _, function_name = name.partition(":")
    setting = f"{Variable.DATA_FORMAT} is {name!r}"
    sys.path.insert(0, str(program))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise BadSetting(f"{setting}, but {program} has no module {error.name}") from None
    except BaseException as error:  # Even sys.exit(): the data job must not end as a success.
        raise BadSetting(
            f"{setting}, and importing {module_name} fails: {own_code.summary(error)}"
        ) from None
    finally:
        sys.path.remove(str(program))
    function: RecordReader | None = getattr(module, function_name, None)
    if not callable(function):
        raise BadSetting(f"{setting}, but {module_name} has no function {function_name}")
    return function


def _behind_first(batches: Iterator[list[bytes]]) -> Iterator[list[bytes]]:
    if rest := next(batches, [])[1:]:
        yield rest
    yield from batches


def _without_mark(batches: Iterator[list[bytes]]) -> Iterator[list[bytes]]:
    for first, *others in batches:
        yield [first.removeprefix(codecs.BOM_UTF8), *others]
        break
    yield from batches


def _lines(
    stream: BinaryIO, name: str, left: Callable[[int], int] = lambda size: BLOCK
) -> Iterator[list[bytes]]:
    size = 0
    while block := stream.read(left(size)):
        if not block.endswith(b"\n"):
            rest = stream.readline(RECORD_BYTES)
            if len(rest) == RECORD_BYTES and not rest.endswith(b"\n"):
                raise BadData(
                    f"{name} has a line longer than {RECORD_BYTES >> 20} MiB: is this a text of "
                    "one record a line?"
                )
            block += rest
        if ZEROED in block:
            raise BadData(f"{name} has a line of zeros: a part of it was zeroed, or is not text")
        size += len(block)
        yield io.BytesIO(block if block.endswith(b"\n") else block + b"\n").readlines()


def _records_between(stream: BinaryIO, begin: int, end: int, name: str) -> Iterator[list[bytes]]:
    at = max(begin - 1, 0)
    while begin and (passed := stream.readline(BLOCK)):
        # The line that holds the byte before this piece belongs to the previous piece.
        at += len(passed)
        if passed.endswith(b"\n"):
            break
    yield from _lines(stream, name, lambda size: max(0, min(BLOCK, end - at - size)))


def _read(reader: RecordReader, stream: BinaryIO, name: str) -> Iterator[list[bytes]]:
    """Yields lists of records. Raises `BadData` for anything that the reader raises, including
    sys.exit().
    """
    records = _check(reader, stream, name)
    batch: list[bytes] = []
    size = 0
    while True:
        try:
            record = next(records, None)
        except (Failure, KeyboardInterrupt):
            raise  # A failure of the source, or Ctrl-C.
        except BaseException as error:
            raise BadData(
                f"the record reader failed on {name}: {own_code.summary(error)}"
            ) from None
        if record is None:
            break
        batch.append(record)
        size += len(record)
        if size >= BLOCK or len(batch) >= 4096:
            yield batch
            batch, size = [], 0
    yield batch


def _check(reader: RecordReader, stream: BinaryIO, name: str) -> Iterator[bytes]:
    for record in reader(stream, name):
        if not isinstance(record, bytes):
            raise TypeError(f"it yielded a {type(record).__name__}, records are bytes")
        if len(record) > RECORD_BYTES:
            raise ValueError(
                f"it yielded a record of {len(record)} bytes, {RECORD_BYTES} are the most"
            )
        yield record

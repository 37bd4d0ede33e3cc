"""What the first lines of a source are like: warnings about a byte order mark, a header, a line
that is not UTF-8. They refuse nothing.

    python -m paddle_node.data.first_lines FILE HEADER

reads the beginning of a file as the data job will, on the user's machine, before it is uploaded,
and prints JSON: {"refusal": why it cannot be read, "bytes": how many of them were read, "text":
whether they are text, "mark": a sentence about a byte order mark, "doubts": sentences about the
first lines}. HEADER is the number of lines to skip.
"""

import codecs
import io
import itertools
import json
import math
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from paddle_node.data.sources import unpack
from paddle_node.data.sources.local_source import LocalSource
from paddle_node.failure import Failure

HEAD = 1 << 20
"""Bytes of the data to check."""
FIRST = 1000
"""Number of lines that are checked."""
FEWEST = 20
"""With fewer lines, a header cannot be distinguished from a record."""
_DELIMITERS = ("\t", "::", ",", ";", "|")
_MARKED = "begins with a byte order mark, as Notepad and Excel write it: it is dropped"


def read(file: Path, header: int) -> dict[str, Any]:
    """Returns what is printed."""
    try:
        source = LocalSource(str(file), {})
        members = unpack.members(source, source.objects()[0], "lines")
        head = next((content.read(HEAD) for _, content in members), b"")
    except Failure as failure:
        return {"refusal": failure.sentence}
    # The last line may be cut off.
    lines = io.BytesIO(head[: head.rfind(b"\n") + 1]).readlines()[header:]
    return {
        "refusal": "",
        "bytes": len(head),
        "text": b"\0" not in head,
        "mark": f"{file.name} {_MARKED}" if head.startswith(codecs.BOM_UTF8) else "",
        "doubts": list(find_doubts(lines, file.name)),
    }


def find_doubts(lines: Sequence[bytes], name: str) -> Iterator[str]:
    """Yields one sentence for each doubt, with file and line."""
    texts = [
        line.decode(errors="replace").rstrip("\r\n") for line in itertools.islice(lines, FIRST)
    ]
    texts[:1] = [text.removeprefix("\ufeff") for text in texts[:1]]
    for number, line in enumerate(lines[:FIRST]):
        try:
            line.decode()
        except UnicodeDecodeError as error:
            yield (
                f"line {number + 1} of {name} is not UTF-8 (byte {line[error.start]:#04x}): "
                f"{shorten(texts[number])}"
            )
            break
    if any(
        _begins_with_names([text.split(delimiter) for text in texts]) for delimiter in _DELIMITERS
    ):
        yield (
            f"line 1 of {name} looks like a header, which a program reads as a record: "
            f"{shorten(texts[0])}; set data.header: true"
        )


def is_odd(name: str) -> bool:
    """Returns whether the bytes of a file's name are not UTF-8."""
    return name.encode(errors="ignore").decode() != name


def shorten(text: str) -> str:
    """Returns a record, quoted and cut short."""
    return repr(text if len(text) <= 80 else f"{text[:80]}...")


def _begins_with_names(rows: Sequence[Sequence[str]]) -> bool:
    """Returns whether a column's first value is a word above numbers, or above a few labels that
    all recur.
    """
    alike = [row for row in rows if len(row) == len(rows[0]) > 1]
    if len(alike) < max(FEWEST, 0.9 * len(rows)):
        return False
    for first, *others in zip(*alike, strict=True):
        values = Counter(others)
        labels = len(values) * 10 <= len(others) and min(values.values()) > 1
        if first not in values and not _number(first) and (labels or all(map(_number, values))):
            return True
    return False


def _number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


if __name__ == "__main__":
    print(json.dumps(read(Path(sys.argv[1]), int(sys.argv[2]))))

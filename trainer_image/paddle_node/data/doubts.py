"""Warnings about the first lines of a source: a byte order mark, a header, a line that is not
UTF-8. They refuse nothing.
"""

import codecs
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence

FIRST = 1000
"""Number of lines that are checked."""
FEWEST = 20
"""With fewer lines, a header cannot be distinguished from a record."""
_DELIMITERS = ("\t", "::", ",", ";", "|")


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


def find_mark(head: bytes, name: str) -> str:
    """Returns a sentence if a file begins with a byte order mark, which the data job drops."""
    marked = head.startswith(codecs.BOM_UTF8)
    says = "begins with a byte order mark, as Notepad and Excel write it: it is dropped"
    return f"{name} {says}" if marked else ""


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

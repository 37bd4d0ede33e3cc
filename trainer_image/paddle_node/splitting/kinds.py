"""What a file of the source is: records as they stand, or something that holds them.

Promises: told by content, not by name (addresses on the web often have none).
"""

from __future__ import annotations

import re
from pathlib import Path

from paddle_node.contract import ExitCode
from paddle_node.failure import Failure

GZIP, ZIP = b"\x1f\x8b", b"PK\x03\x04"
_TAR_MARK, _TAR_MARK_AT = b"ustar", 257
_NO_TEXT = re.compile(rb"BZh[1-9]1AY&SY|\xfd7zXZ\0|\x28\xb5\x2f\xfd|\x1f\x8b|PK\x03\x04")
"""What bzip2, xz, zstd, gzip and zip begin with."""


def is_plain(path: Path) -> bool:
    """Whether the file is its own content."""
    return kind(path) == "plain"


def is_archive(path: Path) -> bool:
    """Whether the file holds others. A .gz of one file is none."""
    return kind(path) in ("zip", "tar", "tar.gz")


def kind(path: Path) -> str:
    """plain, gz, zip, tar or tar.gz."""
    head = beginning(path)
    if head.startswith(ZIP):
        return "zip"
    if head[_TAR_MARK_AT:] == _TAR_MARK:
        return "tar"
    if not head.startswith(GZIP):
        return "plain"
    import gzip  # Late, as it costs a start that most sources need not wait for.
    import zlib

    try:
        with gzip.open(path, "rb") as inflated:
            return "tar.gz" if inflated.read(_TAR_MARK_AT + len(_TAR_MARK))[_TAR_MARK_AT:] == _TAR_MARK else "gz"
    except (OSError, EOFError, zlib.error):
        return "gz"  # Damaged: reading it will say so.


def beginning(path: Path) -> bytes:
    """Enough of the file to tell what it is."""
    with path.open("rb") as stream:
        return stream.read(_TAR_MARK_AT + len(_TAR_MARK))


def refuse_packed(head: bytes, name: str) -> None:
    """Raises `Failure` (BAD_DATA) where lines are wanted and the content, as far as it was unpacked, is packed still."""
    if _NO_TEXT.match(head):
        raise Failure(
            ExitCode.BAD_DATA, f"{name} is compressed: of .gz, .zip, .tar and .tar.gz one layer is unpacked, of others none"
        )

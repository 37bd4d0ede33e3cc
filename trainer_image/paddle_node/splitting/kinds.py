"""What a file of the source is: records as they stand, or something that holds them.

Promises: told by content, not by name (addresses on the web often have none).
"""

from __future__ import annotations

from pathlib import Path

GZIP, ZIP = b"\x1f\x8b", b"PK\x03\x04"
_TAR_MARK, _TAR_MARK_AT = b"ustar", 257


def is_plain(path: Path) -> bool:
    """Whether the file is its own content."""
    return kind(path) == "plain"


def is_archive(path: Path) -> bool:
    """Whether the file holds others. A .gz of one file is none."""
    return kind(path) in ("zip", "tar", "tar.gz")


def kind(path: Path) -> str:
    """plain, gz, zip, tar or tar.gz."""
    with path.open("rb") as stream:
        head = stream.read(_TAR_MARK_AT + len(_TAR_MARK))
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

"""Reads the beginning of a data file as the data job will, on the user's machine, before the file
is uploaded.

    python -m paddle_node.data.first_lines FILE HEADER

prints JSON: {"refusal": why it cannot be read, "bytes": how many of them were read, "text": whether
they are text, "mark": a sentence about a byte order mark, "doubts": sentences about the first
lines}. HEADER is the number of lines to skip.
"""

import io
import json
import sys
from pathlib import Path
from typing import Any

from paddle_node.data import doubts
from paddle_node.data.sources import unpack
from paddle_node.data.sources.local_source import LocalSource
from paddle_node.failure import Failure

HEAD = 1 << 20
"""Bytes of the data to check."""


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
        "mark": doubts.find_mark(head, file.name),
        "doubts": list(doubts.find_doubts(lines, file.name)),
    }


if __name__ == "__main__":
    print(json.dumps(read(Path(sys.argv[1]), int(sys.argv[2]))))

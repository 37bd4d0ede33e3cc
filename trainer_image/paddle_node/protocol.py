"""How supervisors talk to the one that serves: JSON objects, one a line, and who counts as gone.

Promises: the numbers here are the only clock of the job's coordination: a peer that says nothing for `SILENCE`
seconds is lost to both sides, so an attempt is over everywhere in less than ten seconds.
"""

from __future__ import annotations

import asyncio
import base64
import json
import zlib
from typing import Any

BEAT = 1.0
"""Seconds between two signs of life, in both directions."""
SILENCE = 6.0
"""Seconds without a sign of life after which the other side is lost. A closed connection is lost at once."""
LONGEST = 16 * 1024 * 1024
"""Bytes of a message."""

Message = dict[str, Any]


def encode(message: Message) -> bytes:
    """One line."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


async def receive(reader: asyncio.StreamReader) -> Message | None:
    """The next message; None when the connection is over, broken or talks something else."""
    try:
        line = await reader.readuntil(b"\n")
        message = json.loads(line)
    except (OSError, EOFError, ValueError, asyncio.LimitOverrunError):
        return None
    return message if isinstance(message, dict) else None


def pack(texts: list[str]) -> str:
    """Many alike texts as one short one: every supervisor gets all addresses, so their size counts N times."""
    return base64.b64encode(zlib.compress("\n".join(texts).encode(), 1)).decode()


def unpack(packed: str) -> list[str]:
    """What `pack` was given."""
    return zlib.decompress(base64.b64decode(packed)).decode().split("\n")

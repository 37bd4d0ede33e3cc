"""How supervisors talk to the one that serves: JSON objects, one a line, and who counts as gone.

Promises: the numbers here are the only clock of the job's coordination: a peer that says nothing for `SILENCE`
seconds is lost to both sides, so an attempt is over everywhere in less than ten seconds.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

BEAT = 1.0
"""Seconds between two signs of life, in both directions."""
SILENCE = 6.0
"""Seconds without a sign of life after which the other side is lost. A closed connection is lost at once."""
LONGEST = 16 * 1024 * 1024
"""Bytes of a message: the list of ten thousand peers is one."""

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

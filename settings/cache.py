"""Where this machine keeps what an interrupted command needs to resume: $XDG_CACHE_HOME, else ~/.cache."""

import hashlib
import os
from pathlib import Path


def place(kind: str, *of: object) -> Path:
    """A path of its own for each `of`; nothing is made there yet."""
    name = hashlib.sha256("\n".join(map(str, of)).encode()).hexdigest()[:32]
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "paddle-aws" / kind / name

"""Why an attempt ends."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class AttemptEnd:
    """Why an attempt ends."""

    cause: str
    kind: str
    """One of `KINDS`, of volume/attempts.py, by which it is counted."""
    code: int = 0
    """The exit code of the trainer that ended it; 0: no trainer did."""
    failed: bool = False
    """A process of the program ended it on its own: it was not killed, and the volume was not
    full.
    """
    exited: bool = True
    """That process chose its exit code: no signal ended it."""
    error: str = ""
    """The exception that ended it; empty: none was seen."""
    uncaught: bool = False
    """That process exited with nothing behind the exception on its log."""
    stepped: bool = False
    """The process that ended it had made a step, as far as trainers report steps."""
    gone: bool = False
    """Every pod has said that no process of the attempt is left."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Mean seconds per pod and category: waiting, starting, data, training (what was kept), saving,
    slowest, lost.
    """

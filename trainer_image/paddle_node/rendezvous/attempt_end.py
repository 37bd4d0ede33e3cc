"""Why an attempt ends."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class AttemptEnd:
    """Why an attempt ends, in the fields of its `RecordedAttempt`."""

    cause: str
    kind: str
    """One of `KINDS`, of volume/attempts.py, by which it is counted."""
    code: int = 0
    """The exit code of the process that ended it, 128 + the signal's number if a signal ended that;
    0: no process did.
    """
    killed: bool = False
    """A process was killed from outside, or found the volume full."""
    error: str = ""
    """The exception that ended that process; empty: none was seen."""
    uncaught: bool = False
    """That process exited with nothing behind the exception on its log."""
    stepped: bool | None = None
    """It was seen to make a step; False: it was seen to make none; None: nobody can know."""
    paused: bool = False
    """A pod had been silent just before."""
    gone: bool = False
    """Every pod has said that no process of the attempt is left."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Mean seconds per pod and category: waiting, starting, data, training (what was kept), saving,
    slowest, lost.
    """

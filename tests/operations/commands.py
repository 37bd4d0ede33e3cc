"""How a command ended, as the tests see it."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Done:
    """Exit code and output."""

    code: int
    out: str
    err: str


Run = Callable[..., Done]

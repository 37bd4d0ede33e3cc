"""What a check of an account found, and how a row of checks is run: every one of them, whatever becomes of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from operations.errors import OperationError, of_a_library

State = Literal["ok", "warning", "problem"]
Found = Iterator[tuple[State, str]]
"""What a check yields: how it is, and in words."""


@dataclass(frozen=True)
class Finding:
    """One line of a check."""

    check: str
    state: State
    text: str
    """What is, and what to do about it."""


Check = tuple[str, Callable[[], Iterable[tuple[State, str]]]]
"""A name, and what yields (state, text)."""


def run(checks: Sequence[Check]) -> list[Finding]:
    """Runs all of them; one that cannot be made is a warning with its reason."""
    found = []
    for name, check in checks:
        try:
            found += [Finding(name, state, text) for state, text in check()]
        except OperationError as error:
            found.append(Finding(name, "warning", f"not checked: {error}"))
        except Exception as error:
            # An answer that nobody foresaw is no reason to keep the others' from the user.
            _, text = of_a_library(error) or (None, f"{type(error).__name__}: {error}")
            found.append(Finding(name, "warning", f"not checked: {text}"))
    return found

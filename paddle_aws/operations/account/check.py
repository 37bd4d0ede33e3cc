"""A check: a name, and what it finds, each with a state and what to do about it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Literal, NamedTuple, get_args

from paddle_aws.operations.errors import OperationError, translate_errors

State = Literal["ok", "warning", "problem"]


class CheckResult(NamedTuple):
    """What a check yields."""

    state: State
    text: str
    """What was found, and what to do about it."""


ok, warning, problem = (partial(CheckResult, state) for state in get_args(State))
CheckResults = Iterator[CheckResult]


class Finding(NamedTuple):
    """One line of a check."""

    check: str
    state: State
    text: str


Check = tuple[str, Callable[[], Iterable[CheckResult]]]
"""A name, and what it finds."""


def run(checks: Sequence[Check]) -> list[Finding]:
    """Runs all checks; one that cannot be completed becomes a warning with its reason."""
    findings = []
    for name, check in checks:
        try:
            with translate_errors():
                findings += [Finding(name, state, text) for state, text in check()]
        except Exception as error:
            # An unforeseen answer must not keep the other findings from the user.
            is_ours = isinstance(error, OperationError)
            text = str(error) if is_ours else f"{type(error).__name__}: {error}"
            findings.append(Finding(name, "warning", f"not checked: {text}"))
    return findings

"""How many attempts a run gets, and after which failures no other attempt can help. Pure."""

from collections.abc import Sequence

from paddle_node.contract import ExitCode
from paddle_node.rendezvous.attempt_end import AttemptEnd
from paddle_node.volume.attempts import CLUSTER, PROGRAM, Outcome, RecordedAttempt

CLUSTER_FAULTS = 10
"""A job ends after so many faults of the cluster without progress in between. PADDLE_NODE_ATTEMPTS
counts only failures of the program.
"""
ALIKE_LIMIT = 10
"""If so many consecutive attempts, or PADDLE_NODE_ATTEMPTS if that is more, resume from the same
files and fail with the same exception, the progress that they report no longer counts. A program
may rewrite its checkpoint and then fail as before.
"""
CANNOT_START = (126, 127)
CANNOT_BEGIN = (
    "SyntaxError",
    "IndentationError",
    "TabError",
    "ModuleNotFoundError",
    "ImportError",
    "python: ",
)
"""Prefixes of exceptions that no other attempt can change, whether or not the program reports its
steps.
"""
OWN_ERRORS = (
    "ArithmeticError", "AssertionError", "AttributeError", "IndexError", "KeyError", "LookupError",
    "NameError", "NotImplementedError", "TypeError", "UnboundLocalError", "UnicodeDecodeError",
    "ValueError", "ZeroDivisionError",
)  # fmt: skip
"""Prefixes of exceptions that lie in the program or its data: no network or volume raises them."""


def check_limits(attempts: Sequence[RecordedAttempt], limit: int) -> Outcome | None:
    """Returns the failure after too many attempts without progress; None while another attempt is
    allowed.

    `attempts`: the run's, of which the last has ended. `limit`: failures of the program that end
    the job.
    """
    last = attempts[-1]
    if last.kind == PROGRAM and last.hopeless:
        return Outcome(
            ExitCode.ATTEMPTS_EXHAUSTED,
            f"attempt {last.number} failed before its first step and is not tried again: "
            f"{last.cause}",
        )
    alike = max(ALIKE_LIMIT, limit)
    # Of a command, the name: it may have written the file anew.
    endings = {
        (ended.error, str(ended.resume.get("newest", ended.resume))) for ended in attempts[-alike:]
    }
    if last.error and len(attempts) >= alike and len(endings) == 1:
        return Outcome(
            ExitCode.ATTEMPTS_EXHAUSTED,
            f"{alike} attempts resumed from the same files and failed alike: {last.cause}",
        )
    for kind, most in ((PROGRAM, limit), (CLUSTER, CLUSTER_FAULTS)):
        if len(counted := list_without_progress(attempts, kind)) >= most:
            causes = "; ".join(f"attempt {attempt.number}: {attempt.cause}" for attempt in counted)
            return Outcome(
                ExitCode.ATTEMPTS_EXHAUSTED,
                f"{len(counted)} attempts ended without progress: {causes}",
            )
    return None


def list_without_progress(attempts: Sequence[RecordedAttempt], kind: str) -> list[RecordedAttempt]:
    """Returns the ended attempts of that kind since the last one that made progress."""
    begin = max((place for place, attempt in enumerate(attempts, 1) if attempt.made), default=0)
    return [
        attempt
        for attempt in attempts[begin:]
        if attempt.cause is not None and attempt.kind == kind
    ]


def ended_before_start(ending: AttemptEnd, attempt: RecordedAttempt, no_metrics: bool) -> bool:
    """Returns whether a command ended before its first step: it cannot start, or its own code
    failed. `no_metrics`: it was to show its steps, and showed none.
    """
    return (
        ending.code in CANNOT_START
        or (ending.uncaught and ending.error.startswith(CANNOT_BEGIN))
        or (
            no_metrics
            and ending.error.startswith(OWN_ERRORS)
            and "newest" not in attempt.resume  # A checkpoint may be at fault.
        )
    )

"""The failure policy: whether another attempt follows one that ended, and against which limit it
counts.

`RULES` is one ordered list, of which the first rule that matches decides. docs/faults.md shows it:
`python -m paddle_node.rendezvous.policy` prints it anew. Pure.
"""

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from paddle_node.contract import FAIL_JOB, ExitCode
from paddle_node.volume.attempts import CLUSTER, POD, STOPPED, Outcome, RecordedAttempt

CLUSTER_FAULTS = 10
"""Faults of the cluster without progress in between that end the job."""
ALIKE_LIMIT = 10
"""Attempts in a row, or `limits.attempts` if that is more, that may resume from the same files and
fail with the same exception. A program may rewrite its checkpoint, and then fail as before.
"""
NOT_ITS_FAULT = (0, 128 + signal.SIGKILL, ExitCode.TERMINATED, ExitCode.VOLUME_FULL)
"""Codes of a process that was killed, out of memory or by hand, found the volume full, or ended
well: they say nothing about the program, or what it had loaded.
"""
UNLOADABLE_AFTER = 2
"""After this many attempts that fail before their first step, what they resumed from is skipped."""
CANNOT_START = (126, 127)
CANNOT_BEGIN = (
    "SyntaxError",
    "IndentationError",
    "TabError",
    "ModuleNotFoundError",
    "ImportError",
    "python: ",
)
"""Prefixes of exceptions that no other attempt can change."""
OWN_ERRORS = (
    "ArithmeticError", "AssertionError", "AttributeError", "IndexError", "KeyError", "LookupError",
    "NameError", "NotImplementedError", "TypeError", "UnboundLocalError", "UnicodeDecodeError",
    "ValueError", "ZeroDivisionError",
)  # fmt: skip
"""Prefixes of exceptions that lie in the program or its data: no network or volume raises them."""


@dataclass(frozen=True)
class Facts:
    """What is known once an attempt has ended in every pod."""

    ended: RecordedAttempt
    alike: int = 0
    """Attempts in a row, this one included, with the same exception from the same files; 0: it
    ended without one.
    """
    in_vain: tuple[RecordedAttempt, ...] = ()
    """The attempts of its kind, this one included, since the last one that made progress."""
    limit: int = 3
    """`limits.attempts`."""
    nothing_older: str = ""
    """What the next attempt would resume from, in words, if two could not load it and there is
    nothing older; else empty.
    """

    @property
    def cannot_start(self) -> bool:
        """Whether its program cannot even be loaded."""
        ended = self.ended
        told = ended.uncaught and ended.error.startswith(CANNOT_BEGIN)
        return ended.early and (ended.code in CANNOT_START or (ended.code < 128 and told))

    @property
    def fails_again(self) -> bool:
        """Whether its program failed by itself before its first step: a checkpoint, a signal or the
        network may not be at fault.
        """
        ended = self.ended
        own = ended.counted or ended.error.startswith(OWN_ERRORS)
        return ended.early and ended.before_step and own and ended.code < 128 and not ended.resume


def gather(attempts: Sequence[RecordedAttempt], limit: int) -> Facts:
    """Returns the facts about the last of a run's attempts, which has ended. `limit`: failures of
    the program without progress that end the job.
    """
    last, most = attempts[-1], max(ALIKE_LIMIT, limit)

    def ending(attempt: RecordedAttempt) -> tuple[str, str]:
        # Of a command, the name: it may have written the file anew.
        return attempt.error, str(attempt.resume.get("newest", attempt.resume))

    alike = 0
    while alike < min(most, len(attempts)) and ending(attempts[-1 - alike]) == ending(last):
        alike += 1
    begin = max((place for place, attempt in enumerate(attempts, 1) if attempt.made), default=0)
    in_vain = tuple(
        attempt
        for attempt in attempts[begin:]
        if attempt.cause is not None and attempt.kind == last.kind
    )
    return Facts(last, alike if last.error else 0, in_vain, limit)


@dataclass(frozen=True)
class Rule:
    """One row: when it matches, what follows, and against what the attempt counts."""

    when: str
    matches: Callable[[Facts], bool]
    then: str
    counts: str
    end: Callable[[Facts], Outcome | None] = lambda facts: None
    """Returns how the run ends; None: another attempt follows."""


def _fail(facts: Facts, why: str) -> Outcome:
    return Outcome(ExitCode.ATTEMPTS_EXHAUSTED, f"{why}: {facts.ended.cause}")


def _fail_now(facts: Facts) -> Outcome:
    what = "failed before a step was seen" if facts.ended.before_step else "cannot start"
    return _fail(facts, f"attempt {facts.ended.number} {what} and is not tried again")


def _fail_beyond(facts: Facts, most: int) -> Outcome | None:
    if len(facts.in_vain) < most:
        return None
    causes = "; ".join(f"attempt {attempt.number}: {attempt.cause}" for attempt in facts.in_vain)
    sentence = f"{len(facts.in_vain)} attempts ended without progress: {causes}"
    return Outcome(ExitCode.ATTEMPTS_EXHAUSTED, sentence)


RULES = (
    Rule(
        "A pod was told to stop: drain, spot notice, deletion",
        lambda facts: facts.ended.kind == STOPPED,
        "next attempt", "nothing",
    ),
    Rule(
        "A pod was lost, whatever the programs of the others did then",
        lambda facts: facts.ended.kind == POD,
        "next attempt", "nothing: the Job's own limits count pods",
    ),
    Rule(
        f"The first process ended with {', '.join(str(code.value) for code in FAIL_JOB)}, and no "
        "pod had been silent just before; or an agent ended the job: another world, a metric that "
        "is NaN or infinite with `limits.nan: fail`",
        lambda facts: facts.ended.code in FAIL_JOB and not facts.ended.paused,
        "the job fails with that code", "",
        lambda facts: Outcome(
            facts.ended.code, f"{facts.ended.cause}, which another attempt cannot change"
        ),
    ),
    Rule(
        "The program cannot start: 126, 127, or its last words are a `SyntaxError`, an "
        "`ImportError` or Python's own",
        lambda facts: facts.cannot_start,
        "the job fails with 70", "",
        _fail_now,
    ),
    Rule(
        "An exception before the first step of an attempt that resumed from nothing; of a "
        "`command`: one of its own code (`ValueError`, `KeyError`, ...)",
        lambda facts: facts.fails_again,
        "the job fails with 70", "",
        _fail_now,
    ),
    Rule(
        "Two attempts from one checkpoint failed before their first step, and nothing is older",
        lambda facts: bool(facts.nothing_older) and facts.ended.before_step,
        "the job fails with 70", "",
        lambda facts: _fail(
            facts,
            f"two attempts that began {facts.nothing_older} failed before their first step, and "
            "there is nothing older to resume from",
        ),
    ),
    Rule(
        f"{ALIKE_LIMIT} attempts in a row, or `limits.attempts` if that is more, resumed from the "
        "same files and failed with the same exception",
        lambda facts: facts.alike >= max(ALIKE_LIMIT, facts.limit),
        "the job fails with 70", "",
        lambda facts: _fail(
            facts, f"{facts.alike} attempts resumed from the same files and failed alike"
        ),
    ),
    Rule(
        "A pserver that answers nothing",
        lambda facts: facts.ended.kind == CLUSTER,
        "next attempt", f"{CLUSTER_FAULTS} without progress, then 70",
        lambda facts: _fail_beyond(facts, CLUSTER_FAULTS),
    ),
    Rule(
        "Anything else: an exit code, a stall, a wait that can never end, something missing",
        lambda facts: True,
        "next attempt; the third from one checkpoint that made no step that anybody saw resumes "
        "from the one before", "`limits.attempts` without progress, then 70",
        lambda facts: _fail_beyond(facts, facts.limit),
    ),
)  # fmt: skip


def decide(facts: Facts) -> Outcome | None:
    """Returns how the run ends; None: another attempt follows."""
    return next(rule for rule in RULES if rule.matches(facts)).end(facts)


def is_lasting(outcome: Outcome) -> bool:
    """Whether `outcome` is the run's end also for pods that the Job starts later."""
    return outcome.code == ExitCode.DONE or outcome.code in FAIL_JOB


def list_unloadable(attempts: Sequence[RecordedAttempt]) -> list[Mapping[str, str]]:
    """Returns what a run's attempts resumed from and could not load."""
    early = [attempt.resume for attempt in attempts if attempt.early and attempt.resume]
    loaded = [attempt.resume for attempt in attempts if attempt.stepped or attempt.made]
    return [
        resume
        for resume in early
        if resume not in loaded and early.count(resume) >= UNLOADABLE_AFTER
    ]


def print_rules() -> Iterator[str]:
    """Yields the table of docs/faults.md."""
    yield "| | how the attempt ended | what follows | counts against |"
    yield "|---|---|---|---|"
    for place, rule in enumerate(RULES, 1):
        yield f"| {place} | {rule.when} | {rule.then} | {rule.counts} |"


if __name__ == "__main__":
    print("\n".join(print_rules()))

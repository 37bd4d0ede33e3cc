"""The attempt that runs: its trainers, its signs of life, and the processes that ended it. Pure."""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from paddle_node.rendezvous.attempt_end import AttemptEnd
from paddle_node.rendezvous.heartbeat import LOST_AFTER
from paddle_node.rendezvous.members import Member, Members
from paddle_node.rendezvous.messages import Lost
from paddle_node.rendezvous.policy import NOT_ITS_FAULT, OWN_ERRORS
from paddle_node.rendezvous.trainers import MOST_NAMED, Trainers
from paddle_node.volume.attempts import PROGRAM

SILENCE_SHARE = 0.8
"""Share of a program's own silence for which another must have been silent to be named."""


LONGEST_PLACE = 300
"""Characters of an agent's words about where its trainers are."""


class UnexpectedEnd(NamedTuple):
    """A process that ended unexpectedly."""

    at: float
    rank: int
    cause: str
    lost: Lost


class Pause(NamedTuple):
    """A time in which a pod said nothing, and after which it came back."""

    began: float
    ended: float
    pod: str

    def covers(self, moment: float) -> bool:
        """Whether the pod may have been frozen then, and its peers' programs may have failed
        because of it.
        """
        return self.began <= moment <= self.ended + LOST_AFTER


@dataclass
class CurrentAttempt:
    """One attempt, from its start until its end is recorded."""

    number: int
    trainers: Trainers
    moved: float
    """When it last showed output or progress, apart from the steps that its trainers report."""
    stop_cause: str = ""
    """The pod whose SIGTERM stops it; empty: none."""
    strays: bool = False
    """A pod of it was lost before it said that no process of it is left."""
    ends: list[UnexpectedEnd] = field(default_factory=list)
    """The processes that ended it, or ended on their own before they were killed."""
    places: dict[int, str] = field(default_factory=dict)
    """Where the trainers of silent pods were, by the pod's rank."""
    crashed: list[int] | None = None
    """The rank and exit code of the trainer that ended it."""

    def add_end(self, member: Member, members: Members, lost: Lost, now: float) -> None:
        """Adds a process that ended."""
        at = now - lost.ago
        self.ends.append(
            UnexpectedEnd(at, member.hello.rank, self._cause(at, member, members, lost), lost)
        )

    def _cause(self, at: float, member: Member, members: Members, lost: Lost) -> str:
        """Puts the end of a process into words: also who was silent before, if it had waited, and
        who had ended with 0, if it may have missed them.
        """
        exited = lost.code < 128
        error = f": {lost.error}" if lost.error and exited else ""
        cause = f"{lost.what}{error}, in {member}"
        if lost.error and not exited:
            cause += f"; its last exception: {lost.error}"
        # What was killed from outside would have spoken again.
        if lost.silent and lost.code not in NOT_ITS_FAULT:
            # Trainers that report where they are say more than their output.
            first = members.name_silent(at, lost.silent * SILENCE_SHARE, but=member.hello.rank)
            waited_for = list(self.trainers.describe_waits(members.serving)) or [first]
            cause += f", after {lost.silent:.0f} s without output"
            cause = "; ".join(filter(None, (cause, *waited_for)))
        done = members.name_ranks(members.trained - {member.hello.rank})
        if not done or not lost.code:
            return cause
        if lost.error.startswith(OWN_ERRORS):
            return f"{cause}; {done} had ended with 0 before"
        return f"{done} had ended with 0; then {cause}"

    def explain(self, ending: AttemptEnd, pause: Pause | None) -> AttemptEnd:
        """Returns the end. If processes ended the attempt, it includes what is known by now about
        those that ended first.
        """
        places = [
            f"trainer {rank}: {place}" for rank, place in sorted(self.places.items())[:MOST_NAMED]
        ]
        if ending.kind != PROGRAM or not self.ends:
            named = places if ending.kind == PROGRAM else []
            return replace(ending, cause="; ".join([ending.cause, *named]))
        first, *others = sorted(self.ends, key=lambda end: end.at)
        lost, causes = first.lost, [first.cause]
        # If one process was killed, the failure of the others says nothing about the program.
        killed = [end.cause for end in others if end.lost.code in NOT_ITS_FAULT]
        failed = lost.code not in NOT_ITS_FAULT
        if failed:
            causes += killed[:1]
        paused = pause is not None and pause.covers(first.at)
        if pause is not None and paused:
            causes.append(f"{pause.pod} had said nothing for {pause.ended - pause.began:.0f} s")
        self.crashed = [first.rank, lost.code] if lost.trainer and 0 < lost.code < 256 else None
        # Pservers make no steps.
        stepped = self.trainers.has_stepped(first.rank if lost.trainer else None)
        return replace(
            ending,
            cause="; ".join([*causes, *places]),
            code=lost.code,
            killed=not failed or bool(killed),
            error=lost.error,
            uncaught=lost.uncaught,
            stepped=lost.stepped if stepped is None else stepped,
            paused=paused,
        )

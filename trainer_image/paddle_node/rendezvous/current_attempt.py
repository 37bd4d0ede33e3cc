"""The attempt that runs: its trainers, its signs of life, and the processes that ended it. Pure."""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from paddle_node.rendezvous.attempt_end import AttemptEnd
from paddle_node.rendezvous.heartbeat import LOST_AFTER
from paddle_node.rendezvous.members import Member, Members
from paddle_node.rendezvous.messages import Lost
from paddle_node.rendezvous.trainers import Trainers
from paddle_node.volume.attempts import PROGRAM

SILENCE_SHARE = 0.8
"""Share of a program's own silence for which another must have been silent to be named."""


class End(NamedTuple):
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
    ends: list[End] = field(default_factory=list)
    """The processes that ended it, or ended on their own before they were killed."""
    crashed: list[int] | None = None
    """The rank and exit code of the trainer that ended it."""

    def add_end(self, member: Member, members: Members, lost: Lost, now: float) -> None:
        """Adds a process that ended."""
        at = now - lost.ago
        self.ends.append(End(at, member.hello.rank, self._cause(at, member, members, lost), lost))

    def _cause(self, at: float, member: Member, members: Members, lost: Lost) -> str:
        """Puts the end of a process into words: also who was silent before, if it had waited."""
        error = f": {lost.error}" if lost.error and lost.exited else ""
        cause = f"{lost.what}{error}, in {member}"
        if lost.error and not lost.exited:
            cause += f"; its last exception: {lost.error}"
        # What was killed from outside would have spoken again.
        if lost.silent and lost.failed:
            # Trainers that report where they are say more than their output.
            first = members.name_silent(at, lost.silent * SILENCE_SHARE, but=member.hello.rank)
            waited_for = list(self.trainers.describe_waits(members.serving)) or [first]
            cause += f", after {lost.silent:.0f} s without output"
            cause = "; ".join(filter(None, (cause, *waited_for)))
        return cause

    @property
    def ended(self) -> float:
        """When the first of the processes ended."""
        return min(end.at for end in self.ends)

    def explain(self, ending: AttemptEnd, pause: Pause) -> AttemptEnd:
        """Returns the end. If processes ended the attempt, it includes what is known by now about
        those that ended first.
        """
        if ending.kind != PROGRAM or not self.ends:
            return ending
        first, *others = sorted(self.ends, key=lambda end: end.at)
        lost, causes = first.lost, [first.cause]
        # If one process was killed, the failure of the others says nothing about the program.
        killed = [end.cause for end in others if not end.lost.failed]
        if lost.failed:
            causes += killed[:1]
        if pause.covers(first.at):
            causes.append(f"{pause.pod} had said nothing for {pause.ended - pause.began:.0f} s")
        # A pserver's code says nothing, and it makes no steps.
        stepped = self.trainers.stepped
        self.crashed = [first.rank, lost.code] if lost.code else None
        return replace(
            ending,
            cause="; ".join(causes),
            code=lost.code,
            failed=lost.failed and not killed,
            exited=lost.exited,
            error=lost.error,
            uncaught=lost.uncaught,
            stepped=first.rank in stepped if lost.code else bool(stepped),
        )

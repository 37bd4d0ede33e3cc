"""The deadlines of a rendezvous: every wait has one, and its sentence names who was missing. Pure;
called once per `BEAT`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from paddle_node.contract import ExitCode, Variable
from paddle_node.rendezvous.loss import Loss
from paddle_node.rendezvous.trainers import SHOWN, numbers
from paddle_node.retry import REMIND
from paddle_node.volume.attempts import CLUSTER, PROGRAM, STOPPED, Outcome

if TYPE_CHECKING:
    from paddle_node.rendezvous.state import Rendezvous

SILENT_SERVER = 240.0
"""Seconds after which a pserver that answers nothing counts as lost (`PADDLE_NODE_STALL` if that is
less). A pserver of 2.6.2 that saved and loaded a table of 1.5 million rows for two minutes answered
each health check within half a second.
"""

Verdict = Outcome | Loss | str | None
"""In this order: the job ends; the attempt ends; a line says whom all wait for; nothing is
overdue.
"""


def of_peers(run: Rendezvous, now: float) -> Verdict:
    """Judges the wait until all agents are here and ready."""
    node, waited = run.node, now - run.since
    if run.differ is not None and now - run.differ[1] > node.peer_deadline:
        sentence = (
            f"{run.differ[0]}, for {now - run.differ[1]:.0f} s: all pods of a run must read the "
            "same"
        )
        return Outcome(ExitCode.BAD_DATA, sentence)
    if not (missing := run.members.missing()):
        return None
    sentence = f"{missing} after {waited:.0f} s"
    # An agent that waits for its data has a deadline of its own, equally long, and its message says
    # more.
    if waited > node.peer_deadline + (REMIND if run.members.all(run.members) else 0):
        return Outcome(
            ExitCode.PEERS_MISSING,
            f"{sentence} ({Variable.PEER_DEADLINE} is {node.peer_deadline:g})",
        )
    return sentence


def of_attempt(run: Rendezvous, now: float, starting: bool) -> Verdict:
    """Judges the present attempt. `starting`: its pservers do not listen yet."""
    node, members, sessions = run.node, run.members, run.trainers.sessions.values()
    stepped = max([run.since, *(session.moved for session in sessions)])
    rank, since = min(members.silent.items(), key=lambda session: session[1], default=(0, now))
    allowed = min(SILENT_SERVER, node.stall)
    if now - since > allowed:
        sentence = f"did not answer for {now - since:.0f} s ({allowed:g} are allowed)"
        return Loss(f"pserver {rank} of {members[rank]} {sentence}", CLUSTER)
    if starting and now - stepped > node.peer_deadline:
        # Pservers may wait for what the trainers still count: a trainer that reports progress
        # extends the deadline.
        slow = numbers(members.keys() - members.serving)
        sentence = (
            f"the pservers of trainers {slow} did not listen, and no trainer moved for "
            f"{now - stepped:.0f} s"
        )
        return Loss(sentence, PROGRAM)
    parts = list(run.trainers.waited_for(members.serving))
    if (quiet := now - max(stepped, run.moved)) > node.stall and not members.silent:
        ended = (
            f"; trainers {numbers(members.trained)} ended with 0 before" if members.trained else ""
        )
        sentence = (
            f"no step, no output and no progress for {quiet:.0f} s ({Variable.STALL} is "
            f"{node.stall:g}){ended}"
        )
        first = members.silent_first(now, node.stall)
        return Loss("; ".join(filter(None, (sentence, *parts, first))), PROGRAM)
    if starting or not sessions or now - stepped <= REMIND:
        return None
    if members.silent:
        parts.append(
            f"the pservers of trainers {numbers(sorted(members.silent)[:SHOWN])} answer nothing"
        )
    return (
        f"no trainer has moved for {now - stepped:.0f} s: "
        f"{'; '.join(parts) or 'nobody waits for another one'}"
    )


def of_stop(run: Rendezvous, now: float) -> Verdict:
    """Judges how long the trainers take to save before they stop."""
    if (waited := now - run.since) <= run.node.grace:
        return None
    slow = numbers(run.members.keys() - run.members.stopped)
    return Loss(f"{run.stop_cause}; trainers {slow} did not leave within {waited:.0f} s", STOPPED)

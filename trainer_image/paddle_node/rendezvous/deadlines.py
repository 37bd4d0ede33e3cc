"""The deadlines of the rendezvous server: each of its waits has one, and its sentence names who was
missing. Pure; called once per `heartbeat.INTERVAL`. `heartbeat.LOST_AFTER` is the deadline of a
silent pod; the agent has the deadlines of its own waits.
"""

from paddle_node.contract import ExitCode
from paddle_node.environment import PodEnvironment
from paddle_node.rendezvous.attempt_end import AttemptEnd
from paddle_node.rendezvous.current_attempt import CurrentAttempt
from paddle_node.rendezvous.members import Members
from paddle_node.rendezvous.trainers import MOST_NAMED, list_ranks
from paddle_node.retry import REMIND_INTERVAL
from paddle_node.volume.attempts import CLUSTER, PROGRAM, STOPPED, Outcome

PSERVER_SILENCE = 240.0
"""Seconds after which a pserver that answers nothing counts as lost (`PADDLE_NODE_STALL` if that is
less). A pserver of 2.6.2 that saved and loaded a table of 1.5 million rows for two minutes answered
each health check within half a second.
"""

Verdict = Outcome | AttemptEnd | str | None
"""`Outcome` ends the job, `AttemptEnd` ends the attempt, a text is a line that says for which pods
all wait, and None means that nothing is overdue.
"""


def check_peers(
    pod: PodEnvironment,
    members: Members,
    waited: float,
    difference: tuple[str, float] | None,
) -> Verdict:
    """Judges the wait until all agents are here and ready. `difference`: which trainers read what,
    if they differ, and for how many seconds.
    """
    if difference is not None and difference[1] > pod.peer_deadline:
        sentence = (
            f"{difference[0]}, for {difference[1]:.0f} s: all pods of a run must read the same"
        )
        return Outcome(ExitCode.BAD_DATA, sentence)
    if not (missing := members.name_missing()):
        return None
    sentence = f"{missing} after {waited:.0f} s"
    # An agent that waits for its data has a deadline of its own, equally long, and its message says
    # more.
    if waited > pod.peer_deadline + (REMIND_INTERVAL if members.is_complete(members) else 0):
        return Outcome(
            ExitCode.PEERS_MISSING,
            f"{sentence} (limits.peer_deadline_seconds is {pod.peer_deadline:g})",
        )
    return sentence


def check_attempt(
    pod: PodEnvironment,
    members: Members,
    attempt: CurrentAttempt,
    since: float,
    now: float,
    *,
    starting: bool,
) -> Verdict:
    """Judges the present attempt. `since`: when its state began. `starting`: its pservers do not
    listen yet.
    """
    trainers = attempt.trainers
    sessions = trainers.sessions.values()
    stepped = max([since, *(session.moved for session in sessions)])
    rank, silent_since = min(
        members.silent.items(), key=lambda session: session[1], default=(0, now)
    )
    allowed = min(PSERVER_SILENCE, pod.stall)
    if now - silent_since > allowed:
        sentence = f"did not answer for {now - silent_since:.0f} s ({allowed:g} are allowed)"
        return AttemptEnd(f"pserver {rank} of {members[rank]} {sentence}", CLUSTER)
    if starting and now - stepped > pod.peer_deadline:
        # Pservers may wait for what the trainers still count: a trainer that reports progress
        # extends the deadline.
        slow = list_ranks(members.keys() - members.serving)
        sentence = (
            f"the pservers of trainers {slow} did not listen, and no trainer moved for "
            f"{now - stepped:.0f} s"
        )
        return AttemptEnd(sentence, PROGRAM)
    parts = list(trainers.describe_waits(members.serving))
    if (quiet := now - max(stepped, attempt.moved)) > pod.stall and not members.silent:
        done = members.name_ranks(members.trained)
        sentence = (
            f"{f'{done} had ended with 0; then ' * bool(done)}no step, no output and no progress "
            f"for {quiet:.0f} s (limits.stall_seconds is {pod.stall:g})"
        )
        first = members.name_silent(now, pod.stall)
        return AttemptEnd("; ".join(filter(None, (sentence, *parts, first))), PROGRAM)
    if starting or not sessions or now - stepped <= REMIND_INTERVAL:
        return None
    if members.silent:
        silent = list_ranks(sorted(members.silent)[:MOST_NAMED])
        parts.append(f"the pservers of trainers {silent} answer nothing")
    return (
        f"no trainer has moved for {now - stepped:.0f} s: "
        f"{'; '.join(parts) or 'nobody waits for another one'}"
    )


def check_stop(
    pod: PodEnvironment, members: Members, attempt: CurrentAttempt, waited: float
) -> Verdict:
    """Judges how long the trainers take to save before they stop."""
    if waited <= pod.grace:
        return None
    slow = list_ranks(members.keys() - members.stopped)
    return AttemptEnd(
        f"{attempt.stop_cause}; trainers {slow} did not leave within {waited:.0f} s", STOPPED
    )

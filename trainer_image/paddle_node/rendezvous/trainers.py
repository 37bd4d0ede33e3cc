"""The trainers of one attempt: who is where, who waits for whom, waits that can never end, and who
is slow. Pure.
"""

from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median_low
from typing import Any

from paddle_node.rendezvous.effects import Send
from paddle_node.rendezvous.messages import LEAVE, SERVERS, Answer, Gather, Meeting, Message, Step
from paddle_node.volume.goodput import KEPT, LOST, PARTS, STARTING, TRAINING

MOST_NAMED = 20
"""The most ranks that a message names."""
SLOW_FACTOR = 1.5
"""A trainer is slow above this many times the median seconds per step, over `WINDOW` looks."""
PACE_INTERVAL, WINDOW = 10.0, 7
"""Seconds between two looks at how fast the trainers are, and the number of looks that span a
minute.
"""


@dataclass(eq=False)
class Trainer:
    """One trainer's session."""

    connection: object
    moved: float
    """When it last reported a step or arrived somewhere."""
    waits_in: str | None = None
    at: tuple[int, int] | None = None
    steps: int = 0
    spent: Mapping[str, float] = field(default_factory=dict)
    """Its seconds in this attempt, by category."""
    observations: deque[tuple[float, int, float]] = field(
        default_factory=lambda: deque(maxlen=WINDOW)
    )
    """For each look: its time, and the trainer's steps and own seconds up to then."""


@dataclass
class Trainers:
    """The trainers of one attempt."""

    count: int
    join: bool = True
    """Each opens a session and reports its steps; otherwise nobody knows what they do."""
    sessions: dict[int, Trainer] = field(default_factory=dict)
    """The sessions by rank, including those whose connection is gone."""
    gathers: dict[str, dict[int, Any]] = field(default_factory=dict)
    stepped: set[int] = field(default_factory=set)
    """The ranks that made a step."""
    left: bool = False

    @property
    def absent(self) -> set[int]:
        """The ranks that have not joined the others."""
        return set(range(self.count)) - self.sessions.keys() if self.join else set()

    def has_stepped(self, rank: int | None = None) -> bool | None:
        """Whether a rank, or any of them, made a step; None: nobody can know."""
        if not self.join:
            return None
        return bool(self.stepped) if rank is None else rank in self.stepped

    def describe_end(self, progress: str) -> str:
        """Says what is done after all have ended with 0. `progress`: what they completed."""
        if not self.join:
            return "every process ended with 0"
        return f"{progress} is complete" if progress else "nothing was left to do"

    def measure(self, rest: float, done: bool) -> dict[str, float]:
        """Returns the attempt's seconds by part, `rest` in all. `done`: none can be lost. What
        nobody counts counts as lost until more is known.
        """
        if not self.join:
            return {TRAINING if done else LOST: rest}
        reported = {part: self._mean_seconds(part) for part in PARTS}
        kept = {} if done else {part: self._mean_seconds(name) for name, part in KEPT.items()}
        lost = sum(reported[part] - seconds for part, seconds in kept.items())
        starting = max(rest - sum(reported.values()), 0.0)
        return {STARTING: starting} | reported | kept | {LOST: lost}

    def hear(self, rank: int, message: Message, serving: bool, now: float) -> list[Send]:
        """Takes in a trainer's message, and returns the answers that it brings about. `serving`:
        the pservers of all pods listen.
        """
        answers: list[Send] = []
        session = self.sessions[rank]
        match message:
            case Meeting(name) if name:
                # The trainer waits for the others without the server: no step was made, and no
                # answer is needed.
                session.waits_in = f"meeting {name}"
                return answers
            case Meeting():
                session.waits_in = None
            case Step(number, step, steps, spent):
                session.at, session.steps, session.spent = (number, step), steps, spent
                self.stepped |= {rank} if step > 0 else set()
            case Gather("servers"):
                session.waits_in = SERVERS
            case Gather(name, value):
                answers += self._gather(session, rank, name, value, now)
        session.moved = now
        return answers + self.serve(now) if serving else answers

    def serve(self, now: float) -> list[Send]:
        """Releases the trainers that wait for the pservers, now that the pservers of all pods
        listen.
        """
        waiting = [session for session in self.sessions.values() if session.waits_in == SERVERS]
        return self._answer(waiting, Answer(), now)

    def _gather(self, session: Trainer, rank: int, name: str, value: Any, now: float) -> list[Send]:
        arrived = self.gathers.setdefault(name, {})
        arrived[rank] = value
        session.waits_in = name
        if len(arrived) < self.count:
            return []
        del self.gathers[name]
        self.left = self.left or name == LEAVE
        answer = Answer([arrived[rank_] for rank_ in range(self.count)])
        return self._answer([self.sessions[rank_] for rank_ in arrived], answer, now)

    def _answer(self, sessions: list[Trainer], answer: Answer, now: float) -> list[Send]:
        for session in sessions:
            session.waits_in, session.moved = None, now
        return [Send(answer, tuple(session.connection for session in sessions))] * bool(sessions)

    def deadlock(self, ended: Collection[int]) -> str | None:
        """Returns why some wait can never end; None: every wait may. `ended` are the ranks whose
        trainers have ended.
        """
        for name, arrived in self.gathers.items():
            if gone := sorted(set(ended) - arrived.keys()):
                return f"trainer {gone[0]} ended while others wait for it in {name}"
        if (
            len(self.gathers) > 1
            and len({rank for arrived in self.gathers.values() for rank in arrived}) == self.count
        ):
            where = "; ".join(
                f"trainers {list_ranks(arrived)} in {name}"
                for name, arrived in self.gathers.items()
            )
            return f"the trainers wait for each other: {where}"
        return None

    def map_waits(self, serving: Collection[int]) -> dict[str, list[int]]:
        """Maps each place where trainers wait to the first ranks they wait for. `serving`: the
        ranks whose pservers listen.
        """
        there = defaultdict[str, set[int]](set)
        for rank, session in self.sessions.items():
            if session.waits_in is not None:
                there[session.waits_in].add(rank)
        if SERVERS in there:
            there[SERVERS] = set(serving)
        return {
            place: [rank for rank in range(self.count) if rank not in ranks][:MOST_NAMED]
            for place, ranks in sorted(there.items())
        }

    def describe_waits(self, serving: Collection[int]) -> Iterator[str]:
        """Says of each place where trainers wait whom they wait for."""
        for place, who in self.map_waits(serving).items():
            if who:
                yield f"in {place} trainers {list_ranks(who)} are waited for"

    def find_slow(self, now: float) -> dict[int, float]:
        """Returns the trainers that were slow over the last minute, and how many times the median.
        Call every `PACE_INTERVAL` seconds.
        """
        paces = {}
        for rank, session in self.sessions.items():
            busy = session.spent.get("data", 0.0) + session.spent.get("training", 0.0)
            session.observations.append((now, session.steps, busy))
            (began, steps, busy), (ended, *last) = session.observations[0], session.observations[-1]
            if len(session.observations) == WINDOW and last[0] > steps:
                paces[rank] = (last[1] - busy) / (last[0] - steps)
            elif len(session.observations) == WINDOW and steps and session.waits_in is None:
                paces[rank] = ended - began
        usual = median_low(paces.values()) if len(paces) > 1 else 0.0
        return {
            rank: pace / usual
            for rank, pace in sorted(paces.items())
            if usual and pace > SLOW_FACTOR * usual
        }

    def _mean_seconds(self, part: str) -> float:
        """Returns the mean seconds of a category over all trainers."""
        return sum(session.spent.get(part, 0.0) for session in self.sessions.values()) / self.count

    def status(
        self, rank: int, waiting: dict[str, list[int]], silent: Mapping[int, float], now: float
    ) -> tuple[str, float]:
        """Returns where a trainer is and whom it waits for, and for how many seconds its own pod
        has held it up.

        `silent`: which pservers answer nothing, and since when; at least this pod's own and the one
        silent longest.
        """
        session = self.sessions.get(rank)
        if session is None:
            return "", 0.0
        where = (
            f"pass {session.at[0]}, step {session.at[1]}" if session.at else "before the first step"
        )
        idle = now - session.moved
        if rank in silent:
            held = now - silent[rank]
            return f"{where}; this pod's pserver has not answered for {held:.0f} s", held
        if others := [other for other in waiting.get(session.waits_in or "", ()) if other != rank]:
            return (
                f"{where}; waits for trainer {list_ranks(others)} in {session.waits_in} since "
                f"{idle:.0f} s",
                0.0,
            )
        if silent:
            server, since = min(silent.items(), key=lambda other: other[1])
            return (
                f"{where}; waits for pserver {server}, which has not answered for "
                f"{now - since:.0f} s",
                0.0,
            )
        return f"{where}, {idle:.0f} s ago; it waits for nobody", idle


def list_ranks(ranks: Collection[int]) -> str:
    """Lists ranks for a sentence."""
    return ", ".join(str(rank) for rank in sorted(ranks))

"""What happens to a job's pods, told in lines: one for each change, ranks that share a fate in one.

Promises: a hundred pods that wait for the same reason are one line; nothing is said twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from itertools import groupby

from operations.job_objects import moment
from operations.pod_words import PodState

WORTH_A_WORD = 5.0
"""Seconds after which it is worth a word that a pod still starts."""


class Narrator:
    """Tells what is new at each call of `tell`."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._told: dict[str, tuple[str, str]] = {}

    def tell(self, states: Iterable[PodState]) -> None:
        """Says what changed since the last call."""
        new = []
        for state in states:
            if state.phase == "starting" and _seconds_old(state) < WORTH_A_WORD:
                continue
            fate = (state.phase, state.reason)
            if self._told.get(state.name) != fate:
                self._told[state.name] = fate
                new.append(state)
        for line in lines(new):
            self._say(line)

    def tell_job(self, what: str, reason: str) -> None:
        """Says what keeps a whole Job, once for each reason."""
        if self._told.get(what) != ("waiting", reason):
            self._told[what] = ("waiting", reason)
            self._say(f"{what} waits: {reason}")


def _seconds_old(state: PodState) -> float:
    created = moment(state.created)
    return (datetime.now(UTC) - created).total_seconds() if created is not None else 0.0


def lines(states: Iterable[PodState]) -> list[str]:
    """One line for each fate: `trainer 0-2 waiting: no node can take it`."""

    def fate(state: PodState) -> tuple[str, str, str]:
        return (state.component, state.phase, state.reason)

    told = []
    for (component, phase, reason), group in groupby(sorted(states, key=lambda s: (*fate(s), s.rank or 0)), key=fate):
        ranks = [state.rank for state in group if state.rank is not None]
        told.append(f"{component}{' ' if ranks else ''}{spans(ranks)} {phase}" + (f": {reason}" if reason else ""))
    return told


def spans(ranks: Iterable[int]) -> str:
    """0, 1, 2, 5 as 0-2,5."""
    found: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if found and rank == found[-1][1] + 1:
            found[-1][1] = rank
        else:
            found.append([rank, rank])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in found)

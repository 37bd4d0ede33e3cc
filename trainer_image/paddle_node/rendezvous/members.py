"""The agents of a run: which are connected, and the last report of each about its workers. Pure."""

import ipaddress
from collections.abc import Callable, Collection
from dataclasses import dataclass

from paddle_node.contract import ExitCode, Variable
from paddle_node.rendezvous.messages import Hello, Refused, Report
from paddle_node.rendezvous.trainers import MOST_NAMED, list_ranks
from paddle_node.volume.passes import Identity

TIE_SECONDS = 1.0
"""Seconds between two trainers' last lines within which neither fell silent first."""


@dataclass(eq=False)
class Member:
    """One agent that is connected."""

    hello: Hello
    connection: object
    last_heard: float
    read: Identity | None = None
    silent_since: float | None = None
    """When the trainer of its pod that has been silent longest last wrote output; None: none
    runs.
    """

    def __str__(self) -> str:
        return f"{self.hello.name}{f' on {self.hello.node}' if self.hello.node else ''}"

    @property
    def pod(self) -> str:
        return f"the pod of trainer {self.hello.rank} ({self})"


class Members(dict[int, Member]):
    """The agents by rank. Their reports are kept as sets of ranks: ten thousand agents are too many
    to go through each time.
    """

    def __init__(
        self, count: int, address: str, membership: str, name_of: Callable[[int], str]
    ) -> None:
        """`address`: of the pod of trainer 0."""
        super().__init__()
        self.count = count
        self.address = address
        self.membership = membership
        self.name_of = name_of
        self.ready: set[int] = set()
        """Agents that have their data, and no process left of an earlier attempt."""
        self.runs: set[int] = set()
        """Agents that were in the attempt and have not yet reported that no process of it is
        left.
        """
        self.serving: set[int] = set()
        self.trained: set[int] = set()
        self.stopped: set[int] = set()
        self.doubts: dict[int, str] = {}
        """What went wrong beside the training of those that are done."""
        self.silent: dict[int, float] = {}
        """Agents whose pserver answers nothing, and since when."""
        self._came: dict[int, list[str]] = {}
        """The incarnations of each rank in order of arrival. The last one may come back; the others
        were replaced.
        """

    def refusal(self, hello: Hello) -> Refused | None:
        """Returns why an agent is not admitted (code 0: not yet); None: it is admitted."""
        if hello.membership != self.membership:
            return Refused(0, "this pod sees other pods than the pod of trainer 0")
        if hello.world_size != self.count:
            fault = (
                f"{Variable.TRAINERS} is {hello.world_size} here and {self.count} in the pod of "
                "trainer 0"
            )
            return Refused(ExitCode.BAD_SETTING, f"{fault}: all pods need the same")
        if not 0 <= hello.rank < self.count:
            return Refused(
                ExitCode.BAD_SETTING,
                f"the trainer id is {hello.rank}: 0 to {self.count - 1} are this job's",
            )
        if _family(hello.address) != _family(self.address):
            fault = (
                f"{Variable.POD_IP} is {hello.address!r} here and {self.address} in the pod of "
                "trainer 0"
            )
            return Refused(
                ExitCode.BAD_SETTING,
                f"{fault}: all pods need addresses of one family, IPv4 or IPv6",
            )
        if hello.incarnation in self._came.get(hello.rank, [])[:-1]:
            return Refused(
                ExitCode.REPLACED, f"a newer pod of trainer {hello.rank} has taken this one's place"
            )
        return None

    def register(self, hello: Hello) -> str | None:
        """Records a new agent. Returns what became of the one that still has this rank; None: there
        is none.
        """
        came = self._came.setdefault(hello.rank, [])
        if not (again := came[-1:] == [hello.incarnation]):
            came.append(hello.incarnation)
        earlier = self.get(hello.rank)
        return (
            f"{earlier.pod} {'reconnected' if again else 'restarted'}"
            if earlier is not None
            else None
        )

    def forget(self, rank: int) -> None:
        """Removes an agent that is gone, and everything that it reported."""
        del self[rank]
        for ranks in (self.ready, self.runs, self.serving, self.trained, self.stopped):
            ranks.discard(rank)
        self.silent.pop(rank, None)
        self.doubts.pop(rank, None)

    def begin(self) -> None:
        for ranks in (self.ready, self.serving, self.trained, self.stopped):
            ranks.clear()
        self.silent.clear()
        self.doubts.clear()
        for member in self.values():
            member.silent_since = None
        self.runs |= self.keys()

    def hear(self, rank: int, report: Report, current: bool, running: bool, now: float) -> None:
        """Takes in a report. `current`: it is about the present attempt; `running`: that attempt
        has begun and not ended.
        """
        if running and current:
            self.serving |= {rank} if report.serving else set()
            self.trained |= {rank} if report.ended == "trained" else set()
            self.stopped |= {rank} if report.ended else set()
            if report.doubt:
                self.doubts[rank] = report.doubt
            if report.silent:
                self.silent.setdefault(rank, now)
            else:
                self.silent.pop(rank, None)
        elif not running and (current or rank not in self.runs):
            if report.gone:
                self.runs.discard(rank)
            if report.ready:
                self[rank].read = Identity(report.data, report.program)
                self.ready.add(rank)
            else:
                self.ready.discard(rank)

    def name_silent(self, at: float, least: float, but: int | None = None) -> str:
        """Names the trainers that had been silent longest at a time, for at least that many
        seconds; empty: none, or all. `but` is not asked.
        """
        silent = {
            rank: at - member.silent_since
            for rank, member in self.items()
            if member.silent_since is not None and rank != but and rank not in self.trained
        }
        longest = max(silent.values(), default=0.0)
        first = [
            rank for rank, seconds in sorted(silent.items()) if seconds > longest - TIE_SECONDS
        ]
        if longest < least or (len(first) == self.count and self.count > 1):
            return ""
        return f"silent first: {self.name_ranks(first)}, for {longest:.0f} s"

    def name_ranks(self, ranks: Collection[int]) -> str:
        """Names trainers and their pods; empty: none."""
        shown = [
            f"{rank} in {self[rank]}" if rank in self else str(rank)
            for rank in sorted(ranks)[:MOST_NAMED]
        ]
        more = f" and {len(ranks) - MOST_NAMED} more" if len(ranks) > MOST_NAMED else ""
        return f"trainer{'s' * (len(ranks) > 1)} {', '.join(shown)}{more}" if ranks else ""

    def describe_doubts(self) -> str:
        """Says what went wrong beside the training; empty: nothing."""
        ranks_by_doubt: dict[str, list[int]] = {}
        for rank, doubt in sorted(self.doubts.items()):
            ranks_by_doubt.setdefault(doubt, []).append(rank)
        return "; ".join(
            f"trainer{'s' * (len(ranks) > 1)} {list_ranks(ranks[:MOST_NAMED])}: {doubt}"
            for doubt, ranks in list(ranks_by_doubt.items())[:MOST_NAMED]
        )

    def is_complete(self, ranks: Collection[int]) -> bool:
        return len(ranks) == self.count

    def readings(self) -> dict[Identity, list[int]]:
        ranks_by_reading: dict[Identity, list[int]] = {}
        for rank, member in self.items():
            if member.read is not None:
                ranks_by_reading.setdefault(member.read, []).append(rank)
        return ranks_by_reading

    def name_missing(self) -> str:
        """Names the agents that are not here or not ready, as one clause; empty: none."""
        absent = [rank for rank in range(self.count) if rank not in self]
        unready = sorted(self.keys() - self.ready)
        parts = []
        if absent:
            names = ", ".join(self.name_of(rank) for rank in absent[:MOST_NAMED])
            more = f" and {len(absent) - MOST_NAMED} more" if len(absent) > MOST_NAMED else ""
            parts.append(f"{len(absent)} of {self.count} pods are missing: {names}{more}")
        if unready:
            parts.append(f"not ready yet: trainers {list_ranks(unready[:MOST_NAMED])}")
        return "; ".join(parts)


def _family(address: str) -> int:
    """Returns 4 or 6; 0: it is no IP address."""
    try:
        return ipaddress.ip_address(address).version
    except ValueError:
        return 0

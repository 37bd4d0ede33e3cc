"""The rank of a process: the agent prints which process it has started for which rank."""

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from paddle_node.contract import Variable

from paddle_aws.storm.processes import ancestors, launched_rank, variables_of

_WORKER = re.compile(
    rb"^\[agent \d+\] attempt (\d+): (trainer|pserver) (\d+)(?:\.(\d+))? is process (\d+)$",
    re.MULTILINE,
)
"""A whole line of the agent, which quotes no program in it."""


@dataclass(frozen=True)
class Rank:
    """A process of the program."""

    pid: int
    attempt: int
    rank: int
    trains: bool
    """False: a parameter server."""


class Ranks:
    """The processes of a run's program."""

    def __init__(self, processes: int) -> None:
        """`processes`: how many ranks each pod has."""
        self.processes = processes
        self.servers = 0
        """Parameter servers that the first attempt has."""
        self._ranks: dict[int, Rank] = {}
        """Ranks of the newest attempt, and of the ones before that have not ended, by process."""
        self._nobodies: set[int] = set()
        """Processes that the agent has not claimed in time."""
        self._kin: dict[int, Rank | None] = {}
        """The rank above a process, as far as it was looked up."""
        self.reporting: dict[int, Rank] = {}
        """By rank: the process that reported its last step."""

    def learn(self, text: bytes, init: int) -> list[Rank]:
        """Reads what an agent prints. Returns the ranks that it has started below the container's
        process `init`.
        """
        started = []
        for match in _WORKER.finditer(text):
            attempt, role, pod, local, pid = match.groups()
            if init not in ancestors(int(pid)):
                continue
            trains = role == b"trainer"
            number = int(pod) * (self.processes if trains else 1) + int(local or 0)
            self.servers += not trains and int(attempt) == 1
            rank = self._ranks[int(pid)] = Rank(int(pid), int(attempt), number, trains)
            self._kin.clear()
            started.append(rank)
        return started

    def forget(self, pid: int) -> None:
        """Looks a process up anew the next time."""
        self._kin.pop(pid, None)

    def leave_out(self, pid: int) -> None:
        """Counts a process as none of the program's from now on."""
        self._nobodies.add(pid)

    def is_unannounced(self, pid: int) -> bool:
        """Whether a process belongs to an attempt although the agent has not printed it yet: the
        agent first starts a process, and then prints its number.
        """
        # Looked up each time: the same process has another environment once it is the program.
        return pid not in self._nobodies and Variable.ATTEMPT.value.encode() in variables_of(pid)

    @property
    def attempt(self) -> int:
        """The newest attempt."""
        return max((rank.attempt for rank in self._ranks.values()), default=0)

    def find(self, pid: int) -> Rank | None:
        """Returns the rank of a process, or of a process above it; None: it is no rank's."""
        if pid in self._kin:
            return self._kin[pid]
        started = (self._ranks.get(above) for above in (pid, *ancestors(pid)))
        rank = next(filter(None, started), None)
        if rank is not None and pid != rank.pid and (launched := launched_rank(pid)) is not None:
            rank = Rank(pid, rank.attempt, launched, rank.trains)
        self._kin[pid] = rank
        return rank

    def is_captured(self, pid: int, file: int) -> bool:
        """Whether a process above reads what a process writes to its open file `file`: it is no
        line that the program prints, but the output of a command that it asks.
        """
        with suppress(OSError):
            target = Path(f"/proc/{pid}/fd/{file}").readlink()
            while pid not in self._ranks and str(target).startswith("pipe:"):
                pid = ancestors(pid)[0]
                files = {
                    entry.name: entry.readlink() for entry in Path(f"/proc/{pid}/fd").iterdir()
                }
                if target not in (files.get("1"), files.get("2")):
                    return target in files.values()
        return False

    def find_newest(self, rank: int, trains: bool = True) -> Rank | None:
        """Returns the newest living process of a rank or parameter server: the process that reports
        steps, else the process that the agent started, else one that a launcher started.
        """
        groups = (
            [self.reporting[rank]] if trains and rank in self.reporting else [],
            self._ranks.values(),
            filter(None, self._kin.values()),
        )
        for group in groups:
            same = [
                process
                for process in group
                if (process.rank, process.trains, process.attempt) == (rank, trains, self.attempt)
            ]
            if alive := [process for process in same if Path(f"/proc/{process.pid}").exists()]:
                return min(alive, key=lambda process: process.pid)
        return None

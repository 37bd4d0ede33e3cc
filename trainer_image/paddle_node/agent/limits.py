"""The limits of the pod, and which of them was reached: open files, process ids, memory.

The kernel's counters are those of the container's own control group, by cgroup v2 or v1. A limit of
the whole pod lies above it and cannot be read there.
"""

import contextlib
import resource
from collections.abc import Iterator, Mapping
from pathlib import Path

from paddle_node import contract

CGROUPS = "/sys/fs/cgroup"
UNLIMITED = 1 << 50
"""Bytes from which v1 means no limit."""
OPEN_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)
"""The soft and the hard limit that this process began with."""


def raise_open_files() -> int:
    """Raises the limit of open files as far as the container allows, and returns it: each pod and
    each trainer of a job has a connection.
    """
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES[1], OPEN_FILES[1]))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def give_back_open_files() -> None:
    """Restores the limit in a child: programs that use select(), or close every file, count on
    it.
    """
    resource.setrlimit(resource.RLIMIT_NOFILE, OPEN_FILES)


class Memory:
    """Kills for lack of memory, counted from the last `mark` on."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._folders = list(_control_groups("memory", environ))
        self._marked = 0, 0
        self.mark()

    def mark(self) -> None:
        self._marked = self._kills, self._refusals

    def describe_shortage(self, killed: bool) -> str:
        """Says that memory ran out; empty: it did not, or there is no counter. `killed`: a process
        was killed from outside.
        """
        kills, refusals = self._marked
        # Before Linux 4.13, v1 counts refusals only, and not each ends in a kill.
        if self._kills <= kills and not (killed and not self._kills and self._refusals > refusals):
            return ""
        limit = self._number("memory.max", "memory.limit_in_bytes")
        allowed = f" at {limit / (1 << 20):,.0f} MiB" if 0 < limit < UNLIMITED else ""
        return f"out of memory{allowed} (raise resources.memory)"

    @property
    def _kills(self) -> int:
        return self._number("memory.events", "memory.oom_control", line="oom_kill")

    @property
    def _refusals(self) -> int:
        return self._number("memory.failcnt")

    def _number(self, *names: str, line: str = "") -> int:
        """Returns the first number that the kernel gives under one of these names; 0: none."""
        for folder in self._folders:
            for name in names:
                with contextlib.suppress(OSError, ValueError):
                    words = (folder / name).read_text().split()
                    return int(words[words.index(line) + 1 if line else 0])
        return 0


def _control_groups(controller: str, environ: Mapping[str, str]) -> Iterator[Path]:
    """Yields the folders where this process's control group may be. In a container its path is the
    machine's (v1), but the mounted folder begins at the group itself.
    """
    root = contract.path(CGROUPS, environ)
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "" or controller in controllers.split(","):
                below = root / controllers if controllers else root
                yield below / path.lstrip("/")
                yield below

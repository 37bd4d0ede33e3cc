"""The files of a run's program: who wrote what below output/, and what is lost with the pod."""

import os
import re
from pathlib import Path

from paddle_node.volume.job_folder import JobFolder
from paddle_node.volume.steps import one_line

from paddle_aws.storm.calls import Call
from paddle_aws.storm.ranks import Rank

_SCRATCH = ("/tmp/", "/var/tmp/", "/root/", "/home/")
_CACHES = re.compile(r"/\.cache/|/__pycache__/|/\.config/|\.pyc|/\.(?:paddle|nv|triton)/|\.lock$")
"""Files that programs write besides their results."""


class ProgramFiles:
    """The files of one run's program."""

    def __init__(self, volume: Path, folder: JobFolder, pods: Path) -> None:
        """`volume` and `pods`: the folders with all jobs' and all pods' files; `folder`: the
        job's.
        """
        self.volume, self.folder, self._pods = volume, folder, pods
        self.saves = 0
        self._opened: dict[int, Path] = {}
        """The file that each thread has opened last to write it."""
        self._saved: dict[Path, int] = {}
        """The attempt that wrote each file below output/."""
        self._writers: dict[str, int] = {}
        """The same by the file's path below the attempt's output: where a command resumes, its
        files are in the new attempt's folder.
        """
        self._appended: set[Path] = set()
        self._scratch: dict[str, int] = {}
        self.outside: list[str] = []
        """Files that were written outside the volume and read again in a later attempt."""

    @property
    def elsewhere(self) -> list[str]:
        """Files that were written outside the volume, which are lost with the pod."""
        return sorted(self._scratch)

    def is_output(self, path: Path) -> bool:
        """Whether the program keeps the file: logs and reports of its steps are the agents'."""
        return path.is_relative_to(self.folder.output) and not re.fullmatch(
            r"(train|server|rank-\d+)\.log|(metrics|steps)\S*\.jsonl|log", path.name
        )

    def below(self, path: Path) -> str:
        """Returns the path below the output or, of an attempt's folder, below that: the next
        attempt has the same files in its own.
        """
        if path.is_relative_to(self.folder.attempts):
            path = Path(*path.relative_to(self.folder.attempts).parts[1:])
        for folder in (self.folder.output, self.folder.root):
            if path.is_relative_to(folder):
                path = path.relative_to(folder)
        return one_line(str(path))

    def is_of_earlier_attempt(self, path: Path, attempt: int) -> bool:
        """Whether an attempt before `attempt` wrote the file."""
        return self._writers.get(self.below(path), attempt) < attempt

    def note_write(self, path: Path, thread: int, attempt: int) -> None:
        """Notes that this attempt writes the file, which `take_written` returns once it is
        written.
        """
        self._saved[path] = self._writers[self.below(path)] = attempt
        self._opened[thread] = path

    def note_append(self, path: Path) -> None:
        """Notes that lines are added to the file."""
        self._appended.add(path)

    def take_written(self, thread: int) -> Path | None:
        """Returns the file that a thread opened before and has written by now, once."""
        return self._opened.pop(thread, None)

    def note_outside(self, call: Call, path: Path, rank: Rank) -> None:
        """Notes a file that the program opens where it is lost with the pod."""
        name = str(path)
        if not name.startswith(_SCRATCH) and not path.is_relative_to(self._pods):
            return
        if _CACHES.search(name) or call.does != "open":
            return
        if path.is_relative_to(self._pods):
            # <pod>/<container>/<path in it>: the same place in each pod of a rank.
            name = "/" + "/".join(path.relative_to(self._pods).parts[2:])
        name = one_line(name)
        if (call.writes and not path.exists()) or call.flags & os.O_TRUNC:
            self._scratch.setdefault(name, rank.attempt)
        elif self._scratch.get(name, rank.attempt) < rank.attempt and name not in self.outside:
            self.outside.append(name)

    def damage(self) -> str:
        """Cuts the newest checkpoint in half. Returns what it did; empty: without an older one
        beside it no program could survive this.
        """
        written = [path for path in self._saved if path not in self._appended and path.is_file()]
        ages = {path: path.stat().st_mtime_ns for path in written if path.stat().st_size}
        newest = max(ages, key=ages.__getitem__, default=None)
        if newest is None:
            return ""
        names = {path: self.below(path) for path in ages}
        # Checkpoints of a series differ in the numbers in their paths.
        series = {path: re.sub(r"\d+", "#", name) for path, name in names.items()}
        same = [path for path in ages if series[path] == series[newest]]
        if not (older := [path for path in same if names[path] != names[newest]]):
            return ""
        size, beside = newest.stat().st_size, max(older, key=ages.__getitem__)
        os.truncate(newest, size // 2)
        return f"{names[newest]} has {size // 2} of {size} bytes; {names[beside]} lies beside it"


def create_file(path: Path, flags: int) -> None:
    """Changes a file as an open for writing does, before anything is written. Raises OSError."""
    # Without blocking: the program may have replaced it by a pipe.
    kept = flags & (os.O_CREAT | os.O_EXCL | os.O_TRUNC | os.O_NOFOLLOW)
    os.close(os.open(path, kept | os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC, 0o644))

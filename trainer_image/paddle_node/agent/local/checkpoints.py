"""Which checkpoints on the scratch are settled, so that their files may be copied."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from paddle_node.agent.local.other_files import SETTLE
from paddle_node.agent.local.scratch import Scratch, below, list_members
from paddle_node.rendezvous import messages as m
from paddle_node.runtimes.checkpoint import file_fault, shows_its_end
from paddle_node.runtimes.series import newest_first
from paddle_node.volume import durable

SETTLE_UNKNOWN = 5.0
"""Seconds for which a checkpoint must not change where no recipe says what it consists of; else
`SETTLE`.
"""
FACTS, ROOM = 80, m.LINE_BYTES // 4
"""Bytes of a message for one file, besides its name, and for all of them: an escape may need six
for one.
"""
Stamp = tuple[tuple[str, int, int, int], ...]


class _Seen(NamedTuple):
    """A checkpoint as it was last seen."""

    stamp: Stamp
    since: float
    part: m.Part | None


class Checkpoints:
    """Those of the scratch's attempt."""

    def __init__(self, scratch: Scratch, say: Callable[[str], None]) -> None:
        self._scratch = scratch
        self._say = say
        self._settle = SETTLE if scratch.pod.command.checkpoint_files else SETTLE_UNKNOWN
        self._seen: dict[str, _Seen] = {}
        self._ended = 0.0
        """When the attempt's processes were first known to be gone; 0: some are left."""
        self.left_out: set[str] = set()
        """Those that no message has room for."""

    def begin(self) -> None:
        """Forgets those of the attempt before."""
        self._seen, self._ended = {}, 0.0

    def look(self, final: bool, clean: bool) -> tuple[dict[str, m.Part | None], int]:
        """Returns the checkpoints, None for those that are being written, or torn, and the bytes of
        the largest. `final`: no process of the attempt is left; `clean`: none of them was killed.
        Raises OSError.
        """
        self._ended = (self._ended or time.monotonic()) if final else 0.0
        parts: dict[str, m.Part | None] = {}
        largest = 0
        if (root := self._scratch.root) is not None:
            names = durable.names(root, self._scratch.glob)
            real = [name for name in names if not (root / name).is_symlink()]
            stamps = {name: stamp for name in real if (stamp := _stamp(root, root / name))}
            newest = max(map(_changed, stamps.values()), default=0)
            for name, stamp in stamps.items():
                largest = max(largest, sum(size for _, size, _, _ in stamp))
                age = (newest - _changed(stamp)) / 1e9 if final else 0.0
                parts[name] = self._look_at(root, name, stamp, age, clean)
        self._leave_out(parts)
        self._seen = {name: seen for name, seen in self._seen.items() if name in parts}
        return parts, largest

    def _leave_out(self, parts: dict[str, m.Part | None]) -> None:
        """Counts the oldest checkpoints as not whole if one message cannot name all files."""
        room, before, self.left_out = ROOM, self.left_out, set()
        whole = {name: part for name, part in parts.items() if part is not None}
        changed = {name: part.changed for name, part in whole.items()}
        for name, _ in newest_first(changed, changed.get):
            room -= sum(FACTS + len(of) for of in whole[name].files)
            if room < 0:
                parts[name] = None
                self.left_out.add(name)
                if not before and len(self.left_out) == 1:
                    self._say(
                        f"{name} and older checkpoints have too many files: they are copied to "
                        "the volume only when the command has ended"
                    )

    def _look_at(
        self, root: Path, name: str, stamp: Stamp, age: float, clean: bool
    ) -> m.Part | None:
        """Returns the files of a checkpoint; None: it is being written, or torn. `age`: the seconds
        for which it had not changed when it is first seen.
        """
        seen, now = self._seen.get(name), self._ended or time.monotonic()
        if seen is None or seen.stamp != stamp:
            seen = self._seen[name] = _Seen(stamp, now - age, None)
        if seen.part is not None or name == self._scratch.bringing:
            return seen.part
        unsettled = not clean and now - seen.since < self._settle
        # Who was killed while it wrote may have left the half of a file.
        paths = [path for of, *_ in stamp if (path := root / of).is_file()]
        if unsettled and not (self._ended and all(map(shows_its_end, paths))):
            return None
        command = self._scratch.pod.command
        last = command.checkpoint_last.replace("{stem}", Path(name).stem)
        try:
            if any(map(file_fault, paths)):
                return None
            written = [changed for of, _, changed, _ in stamp if Path(of).name == last]
            files = [part for part in stamp if not (root / part[0]).is_symlink()]
            if written and any(changed > written[0] for _, _, changed, _ in files):
                return None
            contents = {of: self._scratch.read_content(root / of) for of, *_ in stamp}
        except FileNotFoundError:
            return None
        if _stamp(root, root / name) != stamp:
            return None
        part = m.Part(max(0, _changed(stamp)), contents)
        self._seen[name] = seen._replace(part=part)
        return part


def _stamp(root: Path, path: Path) -> Stamp:
    """Returns name, size, time and inode of each file and link of a checkpoint; empty: it has no
    byte.
    """
    files = []
    for file in list_members(path):
        with contextlib.suppress(FileNotFoundError):
            state = file.lstat()
            stamp = (state.st_size, state.st_mtime_ns, state.st_ino)
            files.append((below(file, root), *stamp))
    return tuple(sorted(files)) if any(size for _, size, _, _ in files) else ()


def _changed(stamp: Stamp) -> int:
    return max(changed for _, _, changed, _ in stamp)

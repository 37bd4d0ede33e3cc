"""Which of a pod's files that belong to no checkpoint go to the volume with the next one.

A program may be writing any of them. What has not changed for a while is taken at once; the rest is
looked at again: of a file that grows, such as a log, what it has by then is taken. Of one that
shrinks, or of a large one, the volume keeps what it has: the next checkpoint takes it.
"""

import contextlib
import os
import shutil
import stat
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path, PurePosixPath

from paddle_node.agent.local.scratch import Content, Scratch, below, list_members
from paddle_node.failure import BadData
from paddle_node.rendezvous import messages as m
from paddle_node.rendezvous.saves import REST
from paddle_node.retry import may_pass
from paddle_node.volume import durable, publication
from paddle_node.volume.publication import OUTPUT

SETTLE = 1.5
"""Seconds for which a file must not change, to be taken at the first look."""
LARGE = 64 << 20
"""Bytes from which a file is taken only once it does not change, and no other large one beside it:
together they may be a checkpoint under its temporary name.
"""

States = Mapping[str, os.stat_result]


class _Unreadable(Exception):
    """The scratch cannot be listed."""


class OtherFiles:
    """Those of this pod. What was said of them once is not said again."""

    def __init__(self, scratch: Scratch, say: Callable[[str], None]) -> None:
        self._scratch = scratch
        self._say = say
        self._unreadable = ""
        """Why none were copied when that last failed."""
        self._refused: set[str] = set()
        """Of which was said that they cannot be copied."""
        self._growing: dict[str, int] = {}
        """The inodes of large files that were still written when others were copied; 0: said."""

    def copy(
        self, asked: m.Copy, root: Path, volume: Path, place: Path, check: Callable[[], object]
    ) -> tuple[dict[str, Content], bool]:
        """Copies to `place` what the volume lacks of them, as `asked`. Returns all that it has
        then, and whether that is all of the rest. Raises OSError, BadData, and what `check` raises.
        """
        copy = _Copy(self._scratch, asked, root, volume, place, check)
        # No program ran that could have deleted what has not come yet, or is not found.
        if not self._scratch.filled or not (root / OUTPUT).is_dir():
            return copy.kept, True
        if asked.key == REST:  # No process is left that may write.
            contents = {of: copy.try_to_take(of) or copy.kept.get(of) for of in copy.list_files()}
            self._say_refused(copy.refused)
            return {of: at for of, at in contents.items() if at is not None}, not copy.refused
        try:
            others, growing = _copy_two_looks(copy.look, copy.try_to_take, copy.kept, check)
        except _Unreadable as fault:  # No reason to keep a checkpoint from the volume.
            shutil.rmtree(place, ignore_errors=True)
            before, self._unreadable = self._unreadable, str(fault)
            if self._unreadable != before:
                self._say(f"no other files go to the volume with {asked.name}: {fault}")
            return copy.kept, True
        # What was renamed meanwhile, the next copy has by its new name: until then it stays.
        others = {
            of: content
            for of, content in others.items()
            if of in copy.kept or os.path.lexists(root / of)
        }
        copy.remove_all_but(others)
        self._say_refused({of: copy.refused[of] for of in copy.refused.keys() - self._refused})
        self._say_growing(growing)
        return others, True

    def _say_refused(self, refused: Mapping[str, OSError]) -> None:
        if refused:
            more = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
            first = min(refused)
            self._say(f"{first}{more} cannot go to the volume: {refused[first]}")
            self._refused |= refused.keys()

    def _say_growing(self, growing: States) -> None:
        for of, state in growing.items():
            if self._growing.get(of) == state.st_ino:
                self._growing[of] = 0
                self._say(
                    f"{of} has {state.st_size / 1e6:,.1f} MB and is still written: the volume gets "
                    "it when it is not, at the latest when the command has ended"
                )
            self._growing.setdefault(of, state.st_ino)


class _Copy:
    """One copy of them to the volume."""

    def __init__(
        self,
        scratch: Scratch,
        asked: m.Copy,
        root: Path,
        volume: Path,
        place: Path,
        check: Callable[[], object],
    ) -> None:
        self._scratch = scratch
        self._asked = asked
        self._root = root
        self._place = place
        self._check = check
        self._there: dict[str, set[Content]] = {}
        """What the volume has under each name, of all pods."""
        self.kept: dict[str, Content] = {}
        """What it has of this pod."""
        self._taken: dict[str, Content] = {}
        self.refused: dict[str, OSError] = {}
        """What cannot be copied, and why."""
        durable.refresh(volume / publication.PUBLISHED)
        present = {below(path, volume) for path in durable.walk(volume / OUTPUT)}
        for at, (size, checksum, rank, of) in publication.read_others(volume)["files"].items():
            if at in present:
                self._there.setdefault(of, set()).add((size, checksum))
            if rank == scratch.pod.trainer_id:
                self.kept[of] = (size, checksum)

    def look(self) -> States:
        """Lists them. Raises _Unreadable."""
        try:
            states = self.list_files()
            # What is renamed as folders are listed may have been in none of them.
            return states if self.kept.keys() <= states.keys() else self.list_files()
        except OSError as error:
            raise _Unreadable(str(error)) from error

    def list_files(self) -> States:
        """Returns the pod's own files and links that belong to no checkpoint; at the end, to none
        that is on the volume. Raises OSError.
        """
        root, scratch, states = self._root, self._scratch, {}
        for path in durable.walk(root / OUTPUT):
            with contextlib.suppress(FileNotFoundError):
                of, state = below(path, root), path.lstat()
                changed = state.st_ctime_ns > scratch.filled or of not in scratch.brought
                if (changed or of in self.kept) and _is_plain(state):
                    states[of] = state
        # Last: a file that came meanwhile to a checkpoint is one of the checkpoint's.
        at_end = self._asked.key == REST
        names = self._asked.published if at_end else durable.names(root, scratch.glob)
        real = [root / name for name in names if not (root / name).is_symlink()]
        saves = {below(file, root) for path in real for file in list_members(path)}
        return {of: state for of, state in states.items() if of not in saves}

    def try_to_take(self, of: str) -> Content | None:
        """Copies a file. Returns its content; None: it is gone, changes too fast, or is refused.
        Raises OSError if that may pass; at the end, also what says that the file has changed.
        """
        at_end = self._asked.key == REST
        try:
            self._check()
            content = self._take(of)
        except (BadData, FileNotFoundError):
            if at_end:
                raise
            return None
        except OSError as error:
            if may_pass(error) and (at_end or error.filename != str(self._root / of)):
                raise
            self.refused[of] = error
            return None
        if content is not None:
            self._taken[of] = content
        return content

    def _take(self, of: str) -> Content | None:
        """Copies a file as it is at one moment, unless the volume has it. Returns its content;
        None: it is gone. Raises BadData if it changes too fast, OSError.
        """
        scratch, path, there = self._scratch, self._root / of, self._there.get(of, ())
        try:
            if path.is_symlink():
                content = (0, scratch.describe_link(path))
            else:
                size = path.stat().st_size
                may_be_same = any(size == bytes_there for bytes_there, _ in there)
                content = (size, scratch.checksum(path) if may_be_same else "")
            if content in there:
                return content
            return scratch.copy_file(path, self._place / of, None, self._check)
        except OSError:
            if os.path.lexists(path):
                raise
            return None

    def remove_all_but(self, others: Mapping[str, Content]) -> None:
        """Removes what was copied, and then changed or renamed."""
        for of, content in self._taken.items():
            if others.get(of) != content:
                (self._place / of).unlink(missing_ok=True)


def _copy_two_looks(
    look: Callable[[], States],
    take: Callable[[str], Content | None],
    kept: Mapping[str, Content],
    wait: Callable[[], object],
) -> tuple[dict[str, Content], dict[str, os.stat_result]]:
    """Takes files by their names; `take` returns None for what is gone, changes too fast, or is
    refused. `kept`: what the volume has of them. `wait` is called while time passes.

    Returns what the volume has then, and the large files that were not taken.
    """
    end, settled, first = time.monotonic() + SETTLE, time.time() - SETTLE, look()
    written = {of for of, state in first.items() if state.st_mtime > settled}
    written |= _find_large(first, written)
    taken: dict[str, Content | None] = {}

    def take_whole(of: str, least: int) -> None:
        # What is written anew is shorter at first, even if it was not when it was looked at.
        content = take(of)
        taken[of] = content if content is not None and content[0] >= least else None

    for of in _smallest_first(first.keys() - written, first):
        take_whole(of, _count_bytes(first[of]))
    states, large = first, set[str]()
    if written:
        while time.monotonic() < end:
            wait()
            time.sleep(SETTLE / 20)
        states = look()
        changed = {of for of in states if _differs(first.get(of), states[of])}
        large = _find_large(states, changed)
        for of in _smallest_first((written | changed) & states.keys(), states):
            before, least = first.get(of), _count_bytes(states[of])
            if of in changed and before is not None and before.st_ino == states[of].st_ino:
                least = max(least, _count_bytes(before), kept.get(of, (0, ""))[0])
            taken[of] = None
            if of not in large:
                take_whole(of, least)
    contents = {of: taken[of] or kept.get(of) for of in states if of in taken}
    left = {of: states[of] for of in large if of in changed}
    return {of: content for of, content in contents.items() if content is not None}, left


def _find_large(states: States, changed: Collection[str]) -> set[str]:
    """Returns the large files that have changed, and those beside them."""
    large = {of for of, state in states.items() if state.st_size > LARGE}
    folders = {PurePosixPath(of).parent for of in large.intersection(changed)}
    return {of for of in large if PurePosixPath(of).parent in folders}


def _is_plain(state: os.stat_result) -> bool:
    """Whether it is a file or a link: no pipe, no socket."""
    return stat.S_ISREG(state.st_mode) or stat.S_ISLNK(state.st_mode)


def _differs(before: os.stat_result | None, now: os.stat_result) -> bool:
    return before is None or any(
        getattr(before, of) != getattr(now, of) for of in ("st_ino", "st_size", "st_mtime_ns")
    )


def _count_bytes(state: os.stat_result) -> int:
    return 0 if stat.S_ISLNK(state.st_mode) else state.st_size


def _smallest_first(names: Collection[str], states: States) -> list[str]:
    return sorted(names, key=lambda of: (states[of].st_size, of))

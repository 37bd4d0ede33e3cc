"""The scratch of a pod as the output of its command, with `checkpoints: local`.

An attempt writes to a folder of its own there, `attempts/<run>-<n>`. The agent looks for settled
checkpoints, says which files they have, and copies those it is asked for to the volume. The
folder counts only if a record in it says that this rank of this run has filled it.
"""

import contextlib
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from paddle_node import command_line
from paddle_node.environment import PodEnvironment
from paddle_node.failure import BadData
from paddle_node.rendezvous import messages as m
from paddle_node.rendezvous.saves import REST
from paddle_node.retry import disk_full, retry
from paddle_node.runtimes import remarks
from paddle_node.runtimes.checkpoint import file_fault, members, shows_its_end
from paddle_node.runtimes.file_progress import resume_glob
from paddle_node.runtimes.series import Series, newest_first
from paddle_node.volume import durable, publication
from paddle_node.volume.publication import LINK, OUTPUT

LOOK = 0.5
"""Seconds between two looks at the scratch."""
SETTLE, SETTLE_UNKNOWN = 1.5, 5.0
"""Seconds for which a checkpoint must not change; longer where no recipe says what it consists
of.
"""
TRIES = 3
"""How often the scratch is looked at, and everything else on it copied, if that fails."""
FACTS, ROOM = 80, m.LINE_BYTES // 4
"""Bytes of a message for one file, besides its name, and for all of them: an escape may need six
for one.
"""
OWNER = "owner.json"
Stamp = tuple[tuple[str, int, int, int], ...]


class Abandoned(Exception):
    """The attempt is over, or another copy is asked for."""


class _Seen(NamedTuple):
    """A checkpoint as it was last seen."""

    stamp: Stamp
    since: float
    part: Mapping[str, Any] | None


class LocalOutput:
    """The pod's scratch. Its methods block; two threads may call them."""

    def __init__(self, pod: PodEnvironment, say: Callable[[str], None]) -> None:
        self._pod = pod
        self._say = say
        self._glob = resume_glob(pod)
        has_recipe = bool(pod.command.checkpoint_files)
        self._settle = SETTLE if has_recipe else SETTLE_UNKNOWN
        self._lock = threading.Lock()
        self._turn = 0
        """Counts what may interrupt a copy."""
        self._root: Path | None = None
        self._bringing = ""
        """The checkpoint that is not whole on the scratch yet."""
        self._seen: dict[str, _Seen] = {}
        self._ended = 0.0
        """When the attempt's processes were first known to be gone; 0: some are left."""
        self._checksums: dict[tuple[int, int, int], str] = {}
        self.saves = m.Saves(0, True, {})
        """What the rendezvous server is to know."""
        self.busy: set[int] = set()
        """The threads that copy."""
        self._left_out: set[str] = set()
        """The checkpoints that no message has room for."""
        self._faults = 0
        """How many looks have failed, one after the other."""
        self.moved = time.monotonic()
        """When one of them last copied a block."""

    def recover(self, pod: PodEnvironment) -> None:
        """Finds what an earlier container of this pod has left. Raises OSError."""
        with self._lock:
            self._pod = pod
            for folder in durable.entries(pod.home / "attempts"):
                run, _, number = folder.name.rpartition("-")
                if run != pod.run_id or not number.isdigit():
                    continue
                owner = self._read_owner(int(number))
                if owner is not None and int(number) > self.saves.attempt:
                    self._root, self._bringing = Path(folder.path), owner["bringing"]
                    self.saves = m.Saves(int(number), True, {})
        with contextlib.suppress(OSError):  # The next look says so.
            self.look(final=True)

    # The beginning of an attempt.

    def interrupt(self) -> int:
        """Ends the copy or the beginning that is under way, as another follows, and returns its
        number.
        """
        self._turn += 1
        return self._turn

    def begin(self, pod: PodEnvironment, start: m.Start, turn: int) -> None:
        """Fills the scratch for an attempt: with the last one's files, and what these lack of the
        checkpoint that is resumed from. Raises BadData if that is damaged, OSError, Abandoned.
        """
        with self._lock, self._work():
            self._check(turn)
            self._pod, settled = pod, dict(self.saves.parts)
            earlier = pod.scratch(start.earlier) / OUTPUT
            owner = self._read_owner(start.earlier)
            taken = start.local and owner is not None and earlier.is_dir()
            root = pod.scratch(start.attempt)
            if taken:
                root.mkdir(parents=True, exist_ok=True)
                earlier.replace(root / OUTPUT)
            for entry in durable.entries(pod.home / "attempts"):
                if not taken or Path(entry.path) != root:
                    shutil.rmtree(entry.path, ignore_errors=True)
            self._seen, self._ended = {}, 0.0
            self.saves = m.Saves(start.attempt, False, {}, full=self.saves.full)
            self._root = root if start.local else None
            if not start.local:
                return
            (root / OUTPUT).mkdir(parents=True, exist_ok=True)
            kept = {name for name in start.kept if settled.get(name) is not None}
            kept |= self._left_out if kept else set()
            keep = {file for name in kept for file in members(root / name)}
            for name in durable.names(root, self._glob):
                if name not in kept:
                    _remove(root / name, keep)
            success = command_line.fill(
                pod.command.success_file, remarks.FIRST | {"trainers": f"{pod.trainers}"}
            )
            if success:  # Only what the attempt itself writes says that it is done.
                (root / success).unlink(missing_ok=True)
            newest = start.resumed.get("newest", "")
            self._note_owner(newest if start.bring else "")
            if start.bring and newest:
                self._bring(root, newest, start.resumed["content"], turn)
            if not taken:
                self._bring_rest(root, turn)
            self._note_owner("")

    def _bring(self, root: Path, name: str, content: str, turn: int) -> None:
        """Takes from the volume what the scratch lacks of a checkpoint."""
        volume = self._pod.folder.attempt(self._pod.run_id, self.saves.attempt)
        records = publication.read_records(volume)
        files = next(
            (of["files"] for of in records if (of["name"], of["key"]) == (name, content)), None
        )
        if files is None:  # Another run has left it.
            files = {_below(file, volume): None for file in members(volume / name)}
        for file in members(root / name):
            if _below(file, root) not in files:
                file.unlink()
        for of, file in files.items():
            self._check(turn)
            if file is None or not self._has(root / of, file):
                self._copy_file(volume / of, root / of, file, turn)

    def _bring_rest(self, root: Path, turn: int) -> None:
        """Takes from the volume what belongs to no checkpoint."""
        volume = self._pod.folder.attempt(self._pod.run_id, self.saves.attempt)
        names = durable.names(volume, self._glob)
        saves = {file for name in names for file in members(volume / name)}
        for path in durable.walk(volume / OUTPUT):
            target = root / _below(path, volume)
            if path not in saves and not path.is_dir() and not os.path.lexists(target):
                self._copy_file(path, target, None, turn)

    def _has(self, path: Path, file: list[Any]) -> bool:
        try:
            return path.stat().st_size == int(file[0]) and self._checksum(path) == str(file[1])
        except FileNotFoundError:
            return False

    def _note_owner(self, bringing: str) -> None:
        assert self._root is not None
        self._bringing = bringing
        owner = {"rank": self._pod.trainer_id, "trainers": self._pod.trainers, "bringing": bringing}
        durable.write(self._root / OWNER, json.dumps(owner))

    def _read_owner(self, attempt: int) -> dict[str, Any] | None:
        """Returns the record of an attempt's folder; None: it is not this rank's, or not filled."""
        try:
            owner = json.loads((self._pod.scratch(attempt) / OWNER).read_text())
        except (FileNotFoundError, ValueError):
            return None
        mine = (self._pod.trainer_id, self._pod.trainers)
        return owner if (owner.get("rank"), owner.get("trainers")) == mine else None

    # While it runs, and when it has ended.

    def look(self, final: bool, clean: bool = False) -> bool:
        """Looks what the scratch has. Returns whether that has changed. `final`: no process of the
        attempt is left; `clean`: none of them was killed. Raises OSError; after `TRIES` of them
        its checkpoints count as torn, so that nobody waits for them.
        """
        with self._lock:
            try:
                changed = self._look(final, clean)
            except OSError:
                self._faults += 1
                if self._faults >= TRIES:
                    torn = dict.fromkeys(self.saves.parts)
                    self.saves = replace(self.saves, final=final, parts=torn)
                raise
            self._faults = 0
            return changed

    def _look(self, final: bool, clean: bool) -> bool:
        self._ended = (self._ended or time.monotonic()) if final else 0.0
        before = self.saves
        parts: dict[str, Any] = {}
        largest = 0
        if (root := self._root) is not None:
            names = durable.names(root, self._glob)
            real = [name for name in names if not (root / name).is_symlink()]
            stamps = {name: stamp for name in real if (stamp := _stamp(root, root / name))}
            newest = max(map(_changed, stamps.values()), default=0)
            for name, stamp in stamps.items():
                largest = max(largest, sum(size for _, size, _, _ in stamp))
                age = (newest - _changed(stamp)) / 1e9 if final else 0.0
                parts[name] = self._look_at(root, name, stamp, age, clean)
        self._leave_out(parts)
        self._seen = {name: seen for name, seen in self._seen.items() if name in parts}
        full = before.full
        if parts != before.parts and not full:
            with contextlib.suppress(OSError):  # A program may lock folders of its own.
                full = self._find_shortage(largest)
        self.saves = replace(before, final=final, parts=parts, full=full)
        return self.saves != before

    def _leave_out(self, parts: dict[str, Any]) -> None:
        """Counts the oldest checkpoints as not whole if one message cannot name all files."""
        room, before, self._left_out = ROOM, self._left_out, set()
        changed = {name: of["changed"] for name, of in parts.items() if of}
        for name, _ in newest_first(changed, changed.get):
            room -= sum(FACTS + len(of) for of in parts[name]["files"])
            if room < 0:
                parts[name] = None
                self._left_out.add(name)
                if not before and len(self._left_out) == 1:
                    self._say(
                        f"{name} and older checkpoints have too many files: they are copied to "
                        "the volume only when the command has ended"
                    )

    def _look_at(
        self, root: Path, name: str, stamp: Stamp, age: float, clean: bool
    ) -> Mapping[str, Any] | None:
        """Returns the files of a checkpoint; None: it is being written, or torn. `age`: the seconds
        for which it had not changed when it is first seen.
        """
        seen, now = self._seen.get(name), self._ended or time.monotonic()
        if seen is None or seen.stamp != stamp:
            seen = self._seen[name] = _Seen(stamp, now - age, None)
        if seen.part is not None or name == self._bringing:
            return seen.part
        unsettled = not clean and now - seen.since < self._settle
        # Who was killed while it wrote may have left the half of a file.
        if unsettled and not (self._ended and all(shows_its_end(root / of) for of, *_ in stamp)):
            return None
        last = self._pod.command.checkpoint_last.replace("{stem}", Path(name).stem)
        try:
            if any(file_fault(root / of) for of, *_ in stamp):
                return None
            written = [changed for of, _, changed, _ in stamp if Path(of).name == last]
            if written and any(changed > written[0] for _, _, changed, _ in stamp):
                return None
            files = {of: [size, self._checksum(root / of)] for of, size, _, _ in stamp}
        except FileNotFoundError:
            return None
        if _stamp(root, root / name) != stamp:
            return None
        part = {"changed": _changed(stamp), "files": files}
        self._seen[name] = seen._replace(part=part)
        return part

    def _checksum(self, path: Path) -> str:
        state = path.stat()
        key = (state.st_ino, state.st_size, state.st_mtime_ns)
        if (digest := self._checksums.get(key)) is None:
            checksum = publication.new_checksum()
            with path.open("rb") as stream:
                while block := stream.read(publication.BLOCK):
                    checksum.update(block)
                    self.moved = time.monotonic()
            if len(self._checksums) > 100_000:
                self._checksums.clear()
            digest = self._checksums[key] = checksum.hexdigest()
        return digest

    def _find_shortage(self, largest: int) -> str:
        """Says that the scratch has no room for another checkpoint; empty: it has."""
        home = self._pod.home
        disk = os.statvfs(home)
        left, limit = disk.f_bavail * disk.f_frsize, "its disk"
        if self._pod.room is not None:
            used = sum(map(_count_blocks, durable.walk(home))) * 512
            if self._pod.room - used < left:
                left, limit = self._pod.room - used, "resources.scratch"
        if largest < left:
            return ""
        return (
            f"the scratch has no room for another checkpoint of {largest / 1e6:,.1f} MB, "
            f"{max(left, 0) / 1e6:,.1f} MB of {limit} are left: from the next attempt on, "
            "checkpoints go to the volume"
        )

    # Copies to the volume.

    def copy(self, asked: m.Copy, turn: int) -> None:
        """Copies what is asked for to the volume; `saves` tells what became of it."""
        self._tell("", "")
        with self._work():
            try:
                self._copy_settled(asked, turn)
            except Abandoned:
                return
            except (OSError, BadData) as error:
                if turn == self._turn:
                    self._say(f"{asked.name or 'the output'} is not copied to the volume: {error}")
                    self._tell("", asked.key)
            else:
                self._tell(asked.key, "")

    def _copy_settled(self, asked: m.Copy, turn: int) -> None:
        """Copies; anew if what is left behind of the command has changed a file meanwhile."""
        for tries_left in reversed(range(TRIES if asked.key == REST else 1)):
            try:
                return retry(lambda: self._copy(asked, turn), self._say)
            except (FileNotFoundError, BadData):
                if not tries_left:
                    raise

    def _tell(self, copied: str, failed: str) -> None:
        with self._lock:
            self.saves = replace(self.saves, copied=copied, failed=failed)

    def _copy(self, asked: m.Copy, turn: int) -> None:
        with self._lock:
            root, saves = self._root, self.saves
            self._check(turn)
            if root is None or saves.attempt > asked.attempt:  # A later one may never have run.
                raise BadData("it belongs to another attempt")
            if asked.key == REST:
                files = self._list_rest(root, asked.published)
            else:
                part = saves.parts.get(asked.name, {"files": {}})
                if part is None:
                    raise BadData("it has changed")
                files = part["files"]
            snapshot = self._pod.home / "attempts" / "snapshot"
            shutil.rmtree(snapshot, ignore_errors=True)
            if asked.key != REST:
                self._take_snapshot(root, snapshot, asked.name, files)
                root = snapshot
        volume = self._pod.folder.attempt(self._pod.run_id, asked.attempt)
        place = volume / publication.COPIES / asked.key / str(self._pod.trainer_id)
        try:
            for of, file in files.items():
                self._check(turn)
                self._copy_file(root / of, place / of, file, turn)
            publication.list_part(volume, asked.key, self._pod.trainer_id, files)
        finally:
            shutil.rmtree(snapshot, ignore_errors=True)

    def _take_snapshot(
        self, root: Path, snapshot: Path, name: str, files: Mapping[str, Any]
    ) -> None:
        """Keeps the files from their program, which may delete them, or write them anew if their
        name has no number.
        """
        rewritten = not Series.parse([name]).numbers[name]
        for of in files:
            (snapshot / of).parent.mkdir(parents=True, exist_ok=True)
            if rewritten:
                shutil.copy2(root / of, snapshot / of)
            else:
                os.link(root / of, snapshot / of)

    def _list_rest(self, root: Path, published: list[str]) -> dict[str, list[Any]]:
        done = {file for name in published for file in members(root / name)}
        files: dict[str, list[Any]] = {}
        for path in durable.walk(root / OUTPUT):
            if path.is_symlink():
                files[_below(path, root)] = [0, f"{LINK}{path.readlink()}"]
            elif path.is_file() and path not in done:
                files[_below(path, root)] = [path.stat().st_size, self._checksum(path)]
        return files

    def _copy_file(self, source: Path, target: Path, file: list[Any] | None, turn: int) -> None:
        if source.is_symlink():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            target.symlink_to(source.readlink())
            return
        publication.copy(source, target, file, lambda: self._check(turn))

    def _check(self, turn: int) -> None:
        self.moved = time.monotonic()
        if turn != self._turn:
            raise Abandoned

    @contextlib.contextmanager
    def _work(self) -> Any:
        self.moved = time.monotonic()
        self.busy.add(threading.get_ident())
        try:
            yield
        finally:
            self.busy.discard(threading.get_ident())


def describe(error: Exception) -> str:
    """Says why the scratch could not be filled."""
    full = isinstance(error, OSError) and disk_full(error)
    return f"the pod's scratch cannot be filled{' (it is full)' if full else ''}: {error}"


def _below(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()


def _stamp(root: Path, path: Path) -> Stamp:
    """Returns name, size, time and inode of each file of a checkpoint; empty: it has no byte."""
    files = []
    for file in members(path):
        with contextlib.suppress(FileNotFoundError):
            state = file.lstat()
            if not file.is_symlink():
                stamp = (state.st_size, state.st_mtime_ns, state.st_ino)
                files.append((_below(file, root), *stamp))
    return tuple(sorted(files)) if any(size for _, size, _, _ in files) else ()


def _count_blocks(path: Path) -> int:
    try:
        return path.lstat().st_blocks
    except FileNotFoundError:  # Just removed.
        return 0


def _changed(stamp: Stamp) -> int:
    return max(changed for _, _, changed, _ in stamp)


def _remove(path: Path, keep: set[Path]) -> None:
    for file in members(path):
        if file not in keep:
            file.unlink(missing_ok=True)
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)

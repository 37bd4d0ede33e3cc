"""The scratch of a pod as the output of its command, with `checkpoints: local`.

An attempt writes to a folder of its own there, `attempts/<run>-<n>`. The agent looks for settled
checkpoints, says which files they have, and copies those it is asked for to the volume. The
folder counts only if a record in it says that this rank of this run has filled it.
"""

import contextlib
import errno
import json
import os
import shutil
import stat
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from paddle_node import command_line, contract
from paddle_node.agent.other_files import SETTLE, Content, copy_two_looks
from paddle_node.environment import PodEnvironment
from paddle_node.failure import BadData
from paddle_node.rendezvous import messages as m
from paddle_node.rendezvous.saves import REST
from paddle_node.retry import disk_full, may_pass, retry
from paddle_node.runtimes import remarks
from paddle_node.runtimes.attempt_output import lead
from paddle_node.runtimes.checkpoint import file_fault, members, shows_its_end
from paddle_node.runtimes.file_progress import resume_glob
from paddle_node.runtimes.series import Series, newest_first
from paddle_node.volume import durable, publication
from paddle_node.volume.publication import LINK, OUTPUT

LOOK = 0.5
"""Seconds between two looks at the scratch."""
SETTLE_UNKNOWN = 5.0
"""Seconds for which a checkpoint must not change where no recipe says what it consists of; else
`SETTLE`.
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


class _Unreadable(Exception):
    """The scratch cannot be listed."""


class _Seen(NamedTuple):
    """A checkpoint as it was last seen."""

    stamp: Stamp
    since: float
    part: m.Part | None


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
        self._filled = 0
        """When the scratch was last filled from the volume, in nanoseconds: what has not been
        changed since, and has its name of then, is not this pod's. 0: it is not filled yet.
        """
        self._brought: set[str] = set()
        """What it had then."""
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
        self._unreadable = ""
        """Why no other files were copied when that last failed."""
        self._refused: set[str] = set()
        """Other files of which was said that they cannot be copied."""
        self._growing: dict[str, int] = {}
        """The inodes of large files that were still written when others were copied; 0: said."""
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
                filled = owner is not None and (Path(folder.path) / OUTPUT).is_dir()
                if owner is not None and filled and int(number) > self.saves.attempt:
                    self._root, self._bringing = Path(folder.path), owner["bringing"]
                    self._filled, self._brought = owner["filled"], set(owner["brought"])
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
            self._filled, self._brought = 0, set()
            if taken and owner is not None:
                self._filled, self._brought = owner["filled"], set(owner["brought"])
                root.mkdir(parents=True, exist_ok=True)
                starts = {str(earlier), os.path.realpath(earlier)}
                # From here on, the files are found again wherever this is cut short.
                durable.write(root / OWNER, json.dumps(owner))
                lead(earlier, starts, self._own)
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
            keep = {file for name in kept for file in _members(root / name)}
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
            if not self._filled:
                self._filled = self._bring_others(root, turn)
                self._brought = {_below(path, root) for path in durable.walk(root / OUTPUT)}
            self._note_owner("")

    def _bring(self, root: Path, name: str, content: str, turn: int) -> None:
        """Takes from the volume what the scratch lacks of a checkpoint."""
        volume = self._pod.folder.attempt(self._pod.run_id, self.saves.attempt)
        records = publication.read_records(volume)
        files = next(
            (of["files"] for of in records if (of["name"], of["key"]) == (name, content)), None
        )
        if files is None:  # Another run has left it.
            files = {_below(file, volume): None for file in _members(volume / name)}
        for file in _members(root / name):
            if _below(file, root) not in files:
                file.unlink()
        for of, file in files.items():
            self._check(turn)
            if file is None or not self._has(root / of, file):
                self._copy_file(volume / of, root / of, file, turn)

    def _bring_others(self, root: Path, turn: int) -> int:
        """Takes from the volume what belongs to no checkpoint; of several pods' files of one name,
        this pod's own. Returns when the last of them came, by the scratch's clock, but not 0.
        """
        volume = self._pod.folder.attempt(self._pod.run_id, self.saves.attempt)
        others, rank = publication.read_others(volume)["files"], self._pod.trainer_id
        names = durable.names(volume, self._glob)
        saves = {file for name in names for file in _members(volume / name)}
        paths = [
            path for path in durable.walk(volume / OUTPUT) if path.is_symlink() or path.is_file()
        ]
        last = 1
        paths.sort(key=lambda path: others.get(_below(path, volume), (0, "", -1))[2] != rank)
        for path in paths:
            place = _below(path, volume)
            _, _, whose, of = others.get(place, (0, "", rank, place))
            if path in saves or (whose != rank and of != place):
                continue
            if not os.path.lexists(root / of):
                self._copy_file(path, root / of, None, turn)
            last = max(last, (root / of).lstat().st_ctime_ns)
        return last

    def _has(self, path: Path, file: list[Any]) -> bool:
        if path.is_symlink():
            return bool(file[1] == self._describe_link(path))
        try:
            return path.stat().st_size == int(file[0]) and self._checksum(path) == str(file[1])
        except FileNotFoundError:
            return False

    def _note_owner(self, bringing: str) -> None:
        assert self._root is not None
        self._bringing = bringing
        owner = {
            "rank": self._pod.trainer_id,
            "trainers": self._pod.trainers,
            "bringing": bringing,
            "filled": self._filled,
            "brought": sorted(self._brought),
        }
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
        parts: dict[str, m.Part | None] = {}
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

    def _leave_out(self, parts: dict[str, m.Part | None]) -> None:
        """Counts the oldest checkpoints as not whole if one message cannot name all files."""
        room, before, self._left_out = ROOM, self._left_out, set()
        whole = {name: part for name, part in parts.items() if part is not None}
        changed = {name: part.changed for name, part in whole.items()}
        for name, _ in newest_first(changed, changed.get):
            room -= sum(FACTS + len(of) for of in whole[name].files)
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
    ) -> m.Part | None:
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
        paths = [path for of, *_ in stamp if (path := root / of).is_file()]
        if unsettled and not (self._ended and all(map(shows_its_end, paths))):
            return None
        last = self._pod.command.checkpoint_last.replace("{stem}", Path(name).stem)
        try:
            if any(map(file_fault, paths)):
                return None
            written = [changed for of, _, changed, _ in stamp if Path(of).name == last]
            files = [part for part in stamp if not (root / part[0]).is_symlink()]
            if written and any(changed > written[0] for _, _, changed, _ in files):
                return None
            contents = {of: self._describe(root / of) for of, *_ in stamp}
        except FileNotFoundError:
            return None
        if _stamp(root, root / name) != stamp:
            return None
        part = m.Part(max(0, _changed(stamp)), contents)
        self._seen[name] = seen._replace(part=part)
        return part

    def _describe(self, path: Path) -> tuple[int, str]:
        """Returns bytes and checksum of a file; for a link, of what it leads to, and where."""
        size = path.stat().st_size if path.is_file() else 0
        return size, self._describe_link(path) if path.is_symlink() else self._checksum(path)

    def _describe_link(self, path: Path) -> str:
        return LINK + self._read_link(path)

    def _read_link(self, path: Path) -> str:
        """Returns where a link leads; into the output: from the link's own folder, so that it leads
        there in every attempt and pod.
        """
        target = str(path.readlink())
        roots = [self._pod.home / "attempts" / "snapshot", *([self._root] if self._root else [])]
        roots.append(self._pod.folder.attempt(self._pod.run_id, self.saves.attempt))
        outputs = [root / OUTPUT for root in roots]
        folder = next(path.parent.relative_to(at) for at in outputs if path.is_relative_to(at))
        in_pod = contract.path(contract.UNPACKED, self._pod.environ) / OUTPUT
        for output in (*outputs, self._own, in_pod):
            for start in (str(output), os.path.realpath(output)):
                if (inside := target.removeprefix(f"{start}/")) != target:
                    return os.path.relpath(inside, folder)
        return target

    @property
    def _own(self) -> Path:
        """The output by the path that is the same in every attempt and pod."""
        return contract.path(contract.ATTEMPT, self._pod.environ) / OUTPUT

    def _checksum(self, path: Path) -> str:
        state = path.stat()
        key = (state.st_ino, state.st_size, state.st_mtime_ns)
        if (digest := self._checksums.get(key)) is None:
            checksum = publication.new_checksum()
            if (stream := durable.open_file(path)) is None:  # A pipe would wait for its writer.
                raise FileNotFoundError(errno.ENOENT, "it is no file any more", str(path))
            with stream:
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
        self._tell(turn, "", "")
        with self._work():
            try:
                whole = self._copy_settled(asked, turn)
            except Abandoned:
                return
            except (OSError, BadData) as error:
                if turn == self._turn:
                    self._say(f"{asked.name or 'the output'} is not copied to the volume: {error}")
                    self._tell(turn, "", asked.key)
            else:
                self._tell(turn, asked.key, "" if whole else asked.key)

    def _copy_settled(self, asked: m.Copy, turn: int) -> bool:
        """Copies; anew if what is left behind of the command has changed a file meanwhile. Returns
        whether all went, of the rest; of a checkpoint, other files may follow.
        """
        tries_left = TRIES if asked.key == REST else 1
        while True:
            tries_left -= 1
            try:
                return retry(lambda: self._copy(asked, turn), self._say)
            except (FileNotFoundError, BadData):
                if not tries_left:
                    raise

    def _tell(self, turn: int, copied: str, failed: str) -> None:
        with self._lock:
            if turn == self._turn:
                self.saves = replace(self.saves, copied=copied, failed=failed)

    def _copy(self, asked: m.Copy, turn: int) -> bool:
        with self._lock:
            root, saves = self._root, self.saves
            self._check(turn)
            if root is None or saves.attempt > asked.attempt:  # A later one may never have run.
                raise BadData("it belongs to another attempt")
            part = saves.parts.get(asked.name, m.Part(0, {}))
            if part is None:
                raise BadData("it has changed")
            snapshot = self._pod.home / "attempts" / "snapshot"
            shutil.rmtree(snapshot, ignore_errors=True)
            self._take_snapshot(root, snapshot, asked.name, part.files)
        volume = self._pod.folder.attempt(self._pod.run_id, asked.attempt)
        place = volume / publication.COPIES / asked.key / str(self._pod.trainer_id)
        self._discard_copies(volume, asked.key)
        try:
            # First: they are to be as they were when the checkpoint was complete.
            others, whole = self._copy_others(root, volume, place, asked, turn)
            for of, file in part.files.items():
                self._check(turn)
                self._copy_file(snapshot / of, place / of, file, turn)
            publication.list_part(volume, asked.key, self._pod.trainer_id, part.files, others)
        except (OSError, BadData):  # Others may need the room.
            if turn == self._turn:
                shutil.rmtree(place, ignore_errors=True)
            raise
        finally:
            with self._lock:
                if turn == self._turn:  # Else it is the next copy's.
                    shutil.rmtree(snapshot, ignore_errors=True)
        return whole

    def _discard_copies(self, volume: Path, key: str) -> None:
        """Removes what earlier copies of this pod have left that became no checkpoint."""
        durable.refresh(volume / publication.PUBLISHED)
        records = [*publication.read_records(volume), publication.read_others(volume)]
        recorded = {record["key"] for record in records} - {key}
        for entry in durable.entries(volume / publication.COPIES):
            if entry.name not in recorded:
                part = Path(entry.path) / str(self._pod.trainer_id)
                shutil.rmtree(part, ignore_errors=True)
                part.with_suffix(".json").unlink(missing_ok=True)
                if entry.name != key:
                    with contextlib.suppress(OSError):  # Other pods' are there.
                        Path(entry.path).rmdir()

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
                shutil.copy2(root / of, snapshot / of, follow_symlinks=False)
            else:
                os.link(root / of, snapshot / of, follow_symlinks=False)

    def _copy_file(
        self, source: Path, target: Path, file: Sequence[Any] | None, turn: int
    ) -> Content:
        if source.is_symlink():
            to = self._read_link(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            target.symlink_to(to)
            return 0, LINK + to
        size, checksum = publication.copy(source, target, file, lambda: self._check(turn))
        return size, checksum

    # What belongs to no checkpoint.

    def _copy_others(
        self, root: Path, volume: Path, place: Path, asked: m.Copy, turn: int
    ) -> tuple[dict[str, Content], bool]:
        """Copies what the volume lacks of the pod's other files. Returns all that it has then, and
        whether that is all of the rest.
        """
        durable.refresh(volume / publication.PUBLISHED)
        there: dict[str, set[Content]] = {}
        kept: dict[str, Content] = {}
        present = {_below(path, volume) for path in durable.walk(volume / OUTPUT)}
        for at, (size, checksum, rank, of) in publication.read_others(volume)["files"].items():
            if at in present:
                there.setdefault(of, set()).add((size, checksum))
            if rank == self._pod.trainer_id:
                kept[of] = (size, checksum)
        # No program ran that could have deleted what has not come yet, or is not found.
        if not self._filled or not (root / OUTPUT).is_dir():
            return kept, True

        taken: dict[str, Content] = {}
        refused: dict[str, OSError] = {}

        def look() -> dict[str, os.stat_result]:
            try:
                states = self._list_others(root, kept, asked)
                # What is renamed as folders are listed may have been in none of them.
                return (
                    states if kept.keys() <= states.keys() else self._list_others(root, kept, asked)
                )
            except OSError as error:
                raise _Unreadable(str(error)) from error

        def take(of: str) -> Content | None:
            self._check(turn)
            content = self._take_other(root / of, place / of, there.get(of, ()), turn)
            taken.update({of: content} if content is not None else {})
            return content

        def try_to_take(of: str) -> Content | None:
            try:
                return take(of)
            except (BadData, FileNotFoundError):
                if asked.key == REST:
                    raise
                return None
            except OSError as error:
                if may_pass(error) and (asked.key == REST or error.filename != str(root / of)):
                    raise
                refused[of] = error
                return None

        if asked.key == REST:  # No process is left that may write.
            states = self._list_others(root, kept, asked)
            contents = {of: try_to_take(of) or kept.get(of) for of in states}
            self._say_refused(refused)
            return {of: at for of, at in contents.items() if at is not None}, not refused
        try:
            others, growing = copy_two_looks(look, try_to_take, kept, lambda: self._check(turn))
        except _Unreadable as fault:  # No reason to keep a checkpoint from the volume.
            shutil.rmtree(place, ignore_errors=True)
            before, self._unreadable = self._unreadable, str(fault)
            if self._unreadable != before:
                self._say(f"no other files go to the volume with {asked.name}: {fault}")
            return kept, True
        # What was renamed meanwhile, the next copy has by its new name: until then it stays.
        others = {
            of: content
            for of, content in others.items()
            if of in kept or os.path.lexists(root / of)
        }
        for of, content in taken.items():
            if others.get(of) != content:
                (place / of).unlink(missing_ok=True)
        self._say_refused({of: refused[of] for of in refused.keys() - self._refused})
        for of, state in growing.items():
            if self._growing.get(of) == state.st_ino:
                self._growing[of] = 0
                self._say(
                    f"{of} has {state.st_size / 1e6:,.1f} MB and is still written: the volume gets "
                    "it when it is not, at the latest when the command has ended"
                )
            self._growing.setdefault(of, state.st_ino)
        return others, True

    def _say_refused(self, refused: Mapping[str, OSError]) -> None:
        if refused:
            more = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
            first = min(refused)
            self._say(f"{first}{more} cannot go to the volume: {refused[first]}")
            self._refused |= refused.keys()

    def _list_others(
        self, root: Path, kept: Collection[str], asked: m.Copy
    ) -> dict[str, os.stat_result]:
        """Returns the pod's own files and links that belong to no checkpoint; at the end, to none
        that is on the volume.
        """
        states = {}
        for path in durable.walk(root / OUTPUT):
            with contextlib.suppress(FileNotFoundError):
                of, state = _below(path, root), path.lstat()
                changed = state.st_ctime_ns > self._filled or of not in self._brought
                if (changed or of in kept) and _is_plain(state):
                    states[of] = state
        # Last: a file that came meanwhile to a checkpoint is one of the checkpoint's.
        names = asked.published if asked.key == REST else durable.names(root, self._glob)
        real = [root / name for name in names if not (root / name).is_symlink()]
        saves = {_below(file, root) for path in real for file in _members(path)}
        return {of: state for of, state in states.items() if of not in saves}

    def _take_other(
        self, path: Path, target: Path, there: Collection[Content], turn: int
    ) -> Content | None:
        """Copies a file as it is at one moment, unless the volume has it. Returns bytes and
        checksum; None: it is gone. Raises BadData if it changes too fast.
        """
        try:
            if path.is_symlink():
                content = (0, self._describe_link(path))
            else:
                size = path.stat().st_size
                may_be_same = any(size == bytes_there for bytes_there, _ in there)
                content = (size, self._checksum(path) if may_be_same else "")
            if content in there:
                return content
            return self._copy_file(path, target, None, turn)
        except OSError:
            if os.path.lexists(path):
                raise
            return None

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


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _is_plain(state: os.stat_result) -> bool:
    """Whether it is a file or a link: no pipe, no socket."""
    return stat.S_ISREG(state.st_mode) or stat.S_ISLNK(state.st_mode)


def _members(path: Path) -> list[Path]:
    """Returns the files of a checkpoint, and the links in its folder."""
    if not _is_folder(path):
        return members(path)
    return [file for file in durable.walk(path) if file.is_symlink() or file.is_file()]


def _stamp(root: Path, path: Path) -> Stamp:
    """Returns name, size, time and inode of each file and link of a checkpoint; empty: it has no
    byte.
    """
    files = []
    for file in _members(path):
        with contextlib.suppress(FileNotFoundError):
            state = file.lstat()
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
    for file in _members(path):
        if file not in keep:
            file.unlink(missing_ok=True)
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)

"""The pod's scratch as its agent sees it: what it fills, looks at and copies, and in which turn."""

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from paddle_node.agent.local.checkpoints import Checkpoints
from paddle_node.agent.local.filling import Filling
from paddle_node.agent.local.other_files import OtherFiles
from paddle_node.agent.local.scratch import Scratch
from paddle_node.environment import PodEnvironment
from paddle_node.failure import BadData
from paddle_node.rendezvous import messages as m
from paddle_node.rendezvous.saves import REST
from paddle_node.retry import disk_full, retry
from paddle_node.runtimes.series import Series
from paddle_node.volume import durable, publication

LOOK = 0.5
"""Seconds between two looks at the scratch."""
TRIES = 3
"""How often the scratch is looked at, and everything else on it copied, if that fails."""


class Abandoned(Exception):
    """The attempt is over, or another copy is asked for."""


class LocalOutput:
    """The pod's scratch. Its methods block; two threads may call them."""

    def __init__(self, pod: PodEnvironment, say: Callable[[str], None]) -> None:
        self._say = say
        self._scratch = Scratch(pod)
        self._checkpoints = Checkpoints(self._scratch, say)
        self._others = OtherFiles(self._scratch, say)
        self._lock = threading.Lock()
        self._turn = 0
        """Counts what may interrupt a copy."""
        self.saves = m.Saves(0, True, {})
        """What the rendezvous server is to know."""
        self.busy: set[int] = set()
        """The threads that copy."""
        self._faults = 0
        """How many looks have failed, one after the other."""

    @property
    def moved(self) -> float:
        """When one of the busy threads last moved on, by time.monotonic()."""
        return self._scratch.moved

    def recover(self, pod: PodEnvironment) -> None:
        """Finds what an earlier container of this pod has left. Raises OSError."""
        with self._lock:
            self._scratch.pod = pod
            try:
                self._scratch.find()
            finally:  # What it found before an error, too.
                if self._scratch.attempt != self.saves.attempt:
                    self.saves = m.Saves(self._scratch.attempt, True, {})
        with contextlib.suppress(OSError):  # The next look says so.
            self.look(final=True)

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
            settled = {name for name, part in self.saves.parts.items() if part is not None}
            kept = settled.intersection(start.kept)
            kept |= self._checkpoints.left_out if kept else set()
            self._scratch.pod = pod
            self._scratch.take_over(start)
            self._checkpoints.begin()
            self.saves = m.Saves(start.attempt, False, {}, full=self.saves.full)
            if (root := self._scratch.root) is not None:
                Filling(self._scratch, root, partial(self._check, turn)).fill(start, kept)

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
        before = self.saves
        parts, largest = self._checkpoints.look(final, clean)
        full = before.full
        if parts != before.parts and not full:
            with contextlib.suppress(OSError):  # A program may lock folders of its own.
                full = self._scratch.find_shortage(largest)
        self.saves = replace(before, final=final, parts=parts, full=full)
        return self.saves != before

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
        scratch, check = self._scratch, partial(self._check, turn)
        with self._lock:
            root, saves = scratch.root, self.saves
            check()
            if root is None or saves.attempt > asked.attempt:  # A later one may never have run.
                raise BadData("it belongs to another attempt")
            part = saves.parts.get(asked.name, m.Part(0, {}))
            if part is None:
                raise BadData("it has changed")
            snapshot = scratch.snapshot
            shutil.rmtree(snapshot, ignore_errors=True)
            _take_snapshot(root, snapshot, asked.name, part.files)
        pod = scratch.pod
        volume = pod.folder.attempt(pod.run_id, asked.attempt)
        place = volume / publication.COPIES / asked.key / str(pod.trainer_id)
        _discard_copies(volume, asked.key, pod.trainer_id)
        try:
            # First: they are to be as they were when the checkpoint was complete.
            others, whole = self._others.copy(asked, root, volume, place, check)
            for of, file in part.files.items():
                check()
                scratch.copy_file(snapshot / of, place / of, file, check)
            check()  # Else the pod may have another rank by now.
            publication.list_part(volume, asked.key, pod.trainer_id, part.files, others)
        except (OSError, BadData):  # Others may need the room.
            if turn == self._turn:
                shutil.rmtree(place, ignore_errors=True)
            raise
        finally:
            with self._lock:
                if turn == self._turn:  # Else it is the next copy's.
                    shutil.rmtree(snapshot, ignore_errors=True)
        return whole

    def _check(self, turn: int) -> None:
        self._scratch.moved = time.monotonic()
        if turn != self._turn:
            raise Abandoned

    @contextlib.contextmanager
    def _work(self) -> Iterator[None]:
        self._scratch.moved = time.monotonic()
        self.busy.add(threading.get_ident())
        try:
            yield
        finally:
            self.busy.discard(threading.get_ident())


def describe(error: Exception) -> str:
    """Says why the scratch could not be filled."""
    full = isinstance(error, OSError) and disk_full(error)
    return f"the pod's scratch cannot be filled{' (it is full)' if full else ''}: {error}"


def _take_snapshot(root: Path, snapshot: Path, name: str, files: Iterable[str]) -> None:
    """Keeps the files from their program, which may delete them, or write them anew if their name
    has no number.
    """
    rewritten = not Series.parse([name]).numbers[name]
    for of in files:
        (snapshot / of).parent.mkdir(parents=True, exist_ok=True)
        if rewritten:
            shutil.copy2(root / of, snapshot / of, follow_symlinks=False)
        else:
            os.link(root / of, snapshot / of, follow_symlinks=False)


def _discard_copies(volume: Path, key: str, rank: int) -> None:
    """Removes what earlier copies of this pod have left that became no checkpoint."""
    durable.refresh(volume / publication.PUBLISHED)
    records = [*publication.read_records(volume), publication.read_others(volume)]
    recorded = {record["key"] for record in records} - {key}
    for entry in durable.entries(volume / publication.COPIES):
        if entry.name not in recorded:
            part = Path(entry.path) / str(rank)
            shutil.rmtree(part, ignore_errors=True)
            part.with_suffix(".json").unlink(missing_ok=True)
            if entry.name != key:
                with contextlib.suppress(OSError):  # Other pods' are there.
                    Path(entry.path).rmdir()

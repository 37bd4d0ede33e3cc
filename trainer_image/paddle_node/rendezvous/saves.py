"""With `checkpoints: local`: which checkpoints on the pods' scratch are complete, which one is
copied to the volume next, and what the next attempt may take from the scratch. Pure.

A checkpoint counts only when no pod is still writing a part of it and, with a recipe, all its files
are there. Only the newest is copied: one that came while another was copied is skipped. It is
deleted on the volume when the pods that had it have deleted it, and a newer one is there.
"""

import fnmatch
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from paddle_node.environment import PodEnvironment
from paddle_node.rendezvous import effects as e
from paddle_node.rendezvous.messages import Copy, Part
from paddle_node.rendezvous.messages import Saves as Listing
from paddle_node.rendezvous.trainers import list_ranks
from paddle_node.runtimes import Resumption, Scratch
from paddle_node.runtimes.checkpoint import RANK, CheckpointCheck
from paddle_node.runtimes.series import newest_first
from paddle_node.volume import publication

MOST_NAMED = 3
"""Checkpoints that one sentence names."""
REST = "rest"
"""The key of whatever else the pods' outputs have."""
EMPTY = Part(0, {})


Step = Copy | e.Publish | str
"""What to ask of all agents, or of the volume, or to say."""


class Save(NamedTuple):
    """A complete checkpoint."""

    name: str
    changed: int
    files: Mapping[str, tuple[int, str]]
    """Bytes and checksum of each; of a file that several pods have, the lowest rank's."""
    parts: tuple[Mapping[str, tuple[int, str]], ...]
    """The files of each pod."""

    @property
    def key(self) -> str:
        content = json.dumps([self.name, sorted(self.files.items())])
        return hashlib.sha256(content.encode()).hexdigest()[:16]


class Saves:
    """The scratch of all pods, as their agents describe it."""

    def __init__(self, pod: PodEnvironment, check: CheckpointCheck | None, last: int = 0) -> None:
        """`last`: the number of the run's last attempt; 0: there is none."""
        self._pods, self._processes = pod.trainers, pod.command.processes
        self._check = check
        self._listings: dict[int, Listing] = {}
        self._published: dict[str, str] = {}
        """The keys of what is on the volume, by name."""
        self._failed: set[str] = set()
        """Keys that could not be copied."""
        self._had: set[str] = set()
        """What the pods had in this attempt."""
        self._skipped: set[str] = set()
        self._copy: tuple[Copy, Save | None] | None = None
        self._waits: set[int] = set()
        """Pods that have not copied their part of it yet."""
        self._publishing = False
        self._gone: list[str] = []
        """What the program has deleted, and the volume is asked to delete."""
        self._backlog = False
        """What is copied is older than the newest on the volume: any newer one goes first."""
        self._begun = last
        """The attempt that has begun; it may never have run."""
        self._rested = 0
        """The attempt of which everything is on the volume."""
        self.full = ""
        """Why commands write to the volume after all; empty: they do not."""

    def hear(self, rank: int, listing: Listing) -> None:
        """Takes in what an agent says of its pod."""
        self._listings[rank] = listing
        self._had |= listing.parts.keys() if listing.attempt == self._begun else set()
        self.full = self.full or listing.full
        if self._copy is not None and rank in self._waits and listing.attempt == self.attempt:
            key = self._copy[0].key
            self._failed |= {listing.failed} & {key}
            if listing.copied == key:  # Of the rest, perhaps not all: what there is counts.
                self._waits.discard(rank)
            elif listing.failed == key:
                self._copy = None

    def forget(self, rank: int) -> None:
        """The pod is lost, and its scratch perhaps with it."""
        self._listings.pop(rank, None)
        self._copy = None

    @property
    def waits(self) -> str:
        """What pods still copy, in words; empty: nothing."""
        if self._copy is None or not self._waits:
            return ""
        what = self._copy[0].name or "everything else"
        return f"trainers {list_ranks(sorted(self._waits)[:MOST_NAMED])} to copy {what}"

    def give_up(self) -> None:
        """Waits no longer for what pods copy."""
        assert self._copy is not None
        self._failed.add(self._copy[0].key)
        self._copy = None

    def begin(self, attempt: int, resumption: Resumption) -> None:
        """An attempt begins with these on the volume."""
        self._begun = attempt
        self._published, self._had = dict(resumption.published), set()
        self._failed.clear()
        self._copy = None
        if self.full:  # Its command writes to the volume itself.
            self._rested = attempt

    def note_published(self, key: str, fault: str) -> None:
        """The volume has answered."""
        copy, save = self._copy or (None, None)
        self._publishing, self._copy, self._backlog = False, None, False
        if copy is None or copy.key != key:
            return
        if fault:
            self._failed.add(key)
        if save is None:
            self._rested = copy.attempt
        elif not fault:
            self._published[save.name] = key
        for name in self._gone if not fault else ():
            self._published.pop(name, None)

    @property
    def missing(self) -> str:
        """What the volume lacks of an attempt that has ended, in words; empty: nothing."""
        return "what they wrote could not be copied to the volume" if REST in self._failed else ""

    def are_final(self, ranks: Mapping[int, Any]) -> bool:
        """Whether these pods have said what their ended processes have left."""
        return all(rank in self._listings and self._listings[rank].final for rank in ranks)

    @property
    def attempt(self) -> int:
        """The attempt whose files all pods have; 0: not all pods have one's."""
        attempts = {listing.attempt for listing in self._listings.values()}
        return attempts.pop() if len(self._listings) == self._pods and len(attempts) == 1 else 0

    @property
    def written(self) -> int:
        """The attempt from whose scratch pods can take files; 0: none has any."""
        return max((listing.attempt for listing in self._listings.values()), default=0)

    @property
    def _place(self) -> int:
        """The attempt whose folder on the volume takes them: the last one, even if it never ran."""
        return max(attempt, self._begun) if (attempt := self.attempt) else 0

    def list_complete(self) -> list[Save]:
        """Returns the complete checkpoints of all pods, the newest first."""
        if not self.attempt:
            return []
        names = {name for listing in self._listings.values() for name in listing.parts}
        saves = {save.name: save for save in map(self._unite, sorted(names)) if save is not None}
        order = newest_first(saves, lambda name: saves[name].changed)
        return [saves[name] for name, _ in order]

    def _unite(self, name: str) -> Save | None:
        parts = []
        for rank in range(self._pods):
            if (part := self._listings[rank].parts.get(name, EMPTY)) is None:
                return None
            parts.append(part)
        files: dict[str, tuple[int, str]] = {}
        for part in parts:
            for of, file in part.files.items():
                files.setdefault(of, file)
        if not any(size for size, _ in files.values()):
            return None
        folder = name not in files
        inside = PurePosixPath(name) if folder else PurePosixPath(name).parent
        if not all(map(publication.is_inside, (name, *files))) or not all(
            PurePosixPath(of).is_relative_to(inside) for of in files
        ):
            return None
        if self._check is not None:
            states = {
                PurePosixPath(of).relative_to(inside).as_posix(): (file[0], 0)
                for of, file in files.items()
            }
            if self._check.find_missing(states, "" if folder else PurePosixPath(name).stem):
                return None
        changed = max(part.changed for part in parts)
        return Save(name, changed, files, tuple(part.files for part in parts))

    def _suffices(self, save: Save) -> bool:
        """Whether no pod needs a file that another one has."""
        return all(
            part.get(of) == file or (of not in part and self._is_anothers(of, rank))
            for rank, part in enumerate(save.parts)
            for of, file in save.files.items()
        )

    def _is_anothers(self, name: str, rank: int) -> bool:
        """Whether a file is by its name that of a process in another pod than `rank`'s."""
        for pattern in self._check.files if self._check is not None else ():
            for choice in pattern.split("|"):
                words = fnmatch.translate(choice.strip()).replace(re.escape(RANK), r"(\d+)")
                if RANK in choice and (match := re.match(words, PurePosixPath(name).name)):
                    return int(match[1]) // self._processes != rank
        return False

    def scratch(self) -> Scratch:
        """Returns what an attempt can resume from without the volume."""
        saves = [save for save in self.list_complete() if self._suffices(save)]
        return Scratch(
            self._place,
            {save.name: (save.changed, save.key) for save in saves},
            used=not self.full,
        )

    def list_kept(self, resumption: Resumption) -> list[str]:
        """Returns the names that may stay on a scratch: none is newer than what is resumed from."""
        changed = dict.fromkeys(resumption.published, 0)
        changed |= {save.name: save.changed for save in self.list_complete()}
        chosen = resumption.resumed.get("newest", "")
        order = [name for name, _ in newest_first(changed, changed.get)]
        return order[order.index(chosen) :] if chosen in order else []

    def advance(self, final: bool = False, rest: bool = False) -> list[Step] | None:
        """Returns what is to be done for the next copy; None: nothing is left to copy.

        `final`: the newest has to be on the volume unless all pods can resume without it; `rest`:
        so has everything else.
        """
        if self._publishing:
            return []
        save = self._choose()
        if self._backlog and (final or save is not None):
            self._copy, self._backlog = None, False  # A newer one goes first.
        # None needs the volume: no attempt waits for it.
        suffices = final and not rest and not self.full and (not save or self._suffices(save))
        if not final and self.attempt != self._begun:
            return []
        if self._copy is not None and not suffices:
            if self._waits:
                return []
            self._publishing = True
            copy, copied = self._copy
            self._gone = gone = [
                name for name in self._published if name in self._had and not self._has(name)
            ]
            parts = copied.parts if copied is not None else None
            changed = copied.changed if copied is not None else 0
            return [e.Publish(copy.attempt, copy.key, copy.name, parts, changed, tuple(gone))]
        self._copy, attempt = None, self._place
        if save is not None and not suffices:
            return self._begin_copy(Copy(attempt, save.key, save.name, []), save)
        if not final and (save := self._choose(older=True)) is not None:
            self._backlog = True
            return self._begin_copy(Copy(attempt, save.key, save.name, []), save)
        if rest and attempt and attempt != self._rested and REST not in self._failed:
            same = [
                save.name
                for save in self.list_complete()
                if self._published.get(save.name) == save.key
            ]
            return self._begin_copy(Copy(attempt, REST, "", same), None)
        return None

    def _choose(self, *, older: bool = False) -> Save | None:
        """Returns the newest that is not on the volume; without `older`, none that is older than
        one that is there.
        """
        for save in self.list_complete():
            if self._published.get(save.name) != save.key and save.key not in self._failed:
                return save
            if not older and save.key not in self._failed:
                return None
        return None

    def _begin_copy(self, copy: Copy, save: Save | None) -> list[Step]:
        self._copy, self._waits = (copy, save), set(range(self._pods))
        steps: list[Step] = []
        if save is not None and not self._backlog:
            older = [other.name for other in self.list_complete()[1:]]
            skipped = [
                name for name in older if name not in self._published and name not in self._skipped
            ]
            self._skipped.update(skipped)
            if skipped:
                steps.append(
                    f"{', '.join(skipped[:MOST_NAMED])} skipped on the way to the volume: a copy "
                    "takes longer than the program's interval"
                )
        return [*steps, copy]

    def _has(self, name: str) -> bool:
        return any(name in listing.parts for listing in self._listings.values())

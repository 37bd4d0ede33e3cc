"""What an attempt finds on the scratch when it begins: of the checkpoint that it resumes from, and
of the other files, what the scratch has not yet comes from the volume.
"""

import os
import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from paddle_node import command_line
from paddle_node.agent.local.scratch import Scratch, below, list_members
from paddle_node.rendezvous import messages as m
from paddle_node.runtimes import remarks
from paddle_node.volume import durable, publication
from paddle_node.volume.publication import OUTPUT


class Filling:
    """Fills the scratch; `check` raises an error if nobody waits for it any more."""

    def __init__(self, scratch: Scratch, root: Path, check: Callable[[], object]) -> None:
        self._scratch = scratch
        self._pod = scratch.pod
        self._root = root
        self._volume = scratch.volume
        self._check = check

    def fill(self, start: m.Start, kept: Collection[str]) -> None:
        """Fills it for `start`; of its checkpoints, the `kept` ones stay. Raises BadData if what
        comes from the volume is damaged, OSError, and what `check` raises.
        """
        scratch, root = self._scratch, self._root
        (root / OUTPUT).mkdir(parents=True, exist_ok=True)
        keep = {file for name in kept for file in list_members(root / name)}
        for name in durable.names(root, scratch.glob):
            if name not in kept:
                _remove(root / name, keep)
        success = command_line.fill(
            self._pod.command.success_file, remarks.FIRST | {"trainers": f"{self._pod.trainers}"}
        )
        if success:  # Only what the attempt itself writes says that it is done.
            (root / success).unlink(missing_ok=True)
        newest = start.resumed.get("newest", "")
        scratch.record_owner(newest if start.bring else "")
        if start.bring and newest:
            self._bring(newest, start.resumed["content"])
        if not scratch.filled:
            scratch.filled = self._bring_others()
            scratch.brought = {below(path, root) for path in durable.walk(root / OUTPUT)}
        scratch.record_owner("")

    def _bring(self, name: str, content: str) -> None:
        """Takes from the volume what the scratch lacks of a checkpoint."""
        root, volume = self._root, self._volume
        records = publication.read_records(volume)
        files = next(
            (of["files"] for of in records if (of["name"], of["key"]) == (name, content)), None
        )
        if files is None:  # Another run has left it.
            files = {below(file, volume): None for file in list_members(volume / name)}
        for file in list_members(root / name):
            if below(file, root) not in files:
                file.unlink()
        for of, file in files.items():
            self._check()
            if file is None or not self._has(root / of, file):
                self._scratch.copy_file(volume / of, root / of, file, self._check)

    def _bring_others(self) -> int:
        """Takes from the volume what belongs to no checkpoint; of several pods' files of one name,
        this pod's own. Returns when the last of them came, by the scratch's clock, but not 0.
        """
        root, volume = self._root, self._volume
        others, rank = publication.read_others(volume)["files"], self._pod.trainer_id
        names = durable.names(volume, self._scratch.glob)
        saves = {file for name in names for file in list_members(volume / name)}
        paths = [
            path for path in durable.walk(volume / OUTPUT) if path.is_symlink() or path.is_file()
        ]
        last = 1
        paths.sort(key=lambda path: others.get(below(path, volume), (0, "", -1))[2] != rank)
        for path in paths:
            place = below(path, volume)
            _, _, whose, of = others.get(place, (0, "", rank, place))
            if path in saves or (whose != rank and of != place):
                continue
            if not os.path.lexists(root / of):
                self._scratch.copy_file(path, root / of, None, self._check)
            last = max(last, (root / of).lstat().st_ctime_ns)
        return last

    def _has(self, path: Path, file: list[Any]) -> bool:
        if path.is_symlink():
            return bool(file[1] == self._scratch.describe_link(path))
        try:
            size = path.stat().st_size
            return size == int(file[0]) and self._scratch.checksum(path) == str(file[1])
        except FileNotFoundError:
            return False


def _remove(path: Path, keep: Collection[Path]) -> None:
    """Removes a checkpoint, but not the files that others share with it."""
    for file in list_members(path):
        if file not in keep:
            file.unlink(missing_ok=True)
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)

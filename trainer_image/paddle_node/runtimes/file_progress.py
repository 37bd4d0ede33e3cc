"""Tracks a command's progress by the files that it leaves in the job's output folder.

An attempt resumes from the newest match from which no attempt has resumed and failed without
progress. A file's time is compared with that of a mark on the same volume.
"""

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from paddle_node import command_line, durable
from paddle_node.data import data_manifest
from paddle_node.environment import NodeEnvironment
from paddle_node.failure import BadData
from paddle_node.runtimes import History, Resumption, program_files
from paddle_node.training.passes import Identity

SAMPLERS = re.compile(r"\bDistributed(Batch)?Sampler\b")
"""Samplers that divide the data among the ranks a second time."""
OURS = re.compile(r"output/(run|node_\d+)(/|$)")
"""The agent's own files, which lie beside the program's."""


class FileProgress:
    """An attempt resumes from {newest: the match below the job's folder, seen: the state of
    progress when the attempt began}.
    """

    trainers_join = False

    def __init__(self, node: NodeEnvironment, say: Callable[[str], None]) -> None:
        self._node = node
        self._folder = node.folder
        self._say = say
        values = {
            "output": "output",
            "rank": "0",
            "trainers": str(node.trainers),
            "shard": "0",
            "data": "data",
        }
        self._success = command_line.fill(node.own.success, values)
        self._resume = "".join(command_line.globs(node.own.resume))
        self._progress = command_line.fill(node.own.progress, values) or self._resume
        self._known = ""

    def begin(self, identity: Identity, history: History) -> Resumption:
        self._mark("began", self._node.run_id)
        same = self._mark("program", f"{identity.data} {identity.program}")
        if history.first:
            if self._success and self.finished(identity, Resumption(), stopped=False) is None:
                raise BadData(
                    f"{self._success} is dated later than this run, which has not begun: remove it"
                )
            self._tell_flags()
            self._warn_of_samplers()
        tried = {one.get("newest", "") for one in history.without_progress}
        passed_over: list[str] = []
        newest, older = "", 0
        for path, changed in self._matches(self._resume):
            name = str(path.relative_to(self._folder.root))
            if changed <= same and self._node.resume_from == "same":
                older += 1
            elif name in tried:
                self._say(
                    f"{name} is skipped: an attempt that resumed from it failed without progress"
                )
                passed_over.append(name)
            else:
                newest = name
                break
        if older and not newest:
            self._say(
                f"{older} files of another program or other data are not resumed from; "
                "resume_from: any would"
            )
        self._known = self._state()
        resume = {"seen": self._known} | ({"newest": newest} if newest else {})
        return Resumption(
            resume, f"from {newest}" if newest else "from the beginning", tuple(passed_over)
        )

    def made(self, attempt: int, resumption: Resumption) -> str:
        state = self._state()
        return state.partition(" ")[2] if state != resumption.resume.get("seen", "") else ""

    def finished(self, identity: Identity, resumption: Resumption, stopped: bool) -> str | None:
        if not self._success:
            return (
                "the command was told to stop, and nothing else says that it is done"
                if stopped
                else None
            )
        success = self._folder.root / self._success
        durable.look(success.parent)
        try:
            written = durable.stat(success).st_mtime_ns
        except OSError:
            return f"{self._success}, by which the command says that it is done, is not there"
        if written <= (self._folder.run_state / "began").stat().st_mtime_ns:
            return (
                f"{self._success}, by which the command says that it is done, is older than this "
                "run"
            )
        return None

    def saved(self) -> float:
        return next((changed for _, changed in self._matches(self._progress)), 0) / 1e9

    def changed(self) -> bool:
        before, self._known = self._known, self._state()
        return before != self._known

    def _state(self) -> str:
        path, changed = next(self._matches(self._progress), (None, 0))
        return "" if path is None else f"{changed} {path.relative_to(self._folder.root)}"

    def _matches(self, glob: str) -> Iterator[tuple[Path, int]]:
        """Yields non-empty matches below output/, newest first, with the time of their last
        change.
        """
        if not glob:
            return
        durable.look(self._folder.output)
        root = self._folder.output.resolve()
        found = []
        for path in self._folder.root.glob(glob):
            if OURS.match(str(path.relative_to(self._folder.root))):
                continue
            with contextlib.suppress(
                FileNotFoundError, PermissionError
            ):  # Just removed, or not accessible.
                states = [
                    durable.stat(file)
                    for file in ([path] if path.is_file() else path.rglob("*"))
                    if file.is_file()
                ]
                # A link to itself is not a file and cannot be resolved.
                if any(state.st_size for state in states) and root in path.resolve().parents:
                    found.append(
                        (max(state.st_mtime_ns for state in states), _natural(path.name), path)
                    )
        for changed, _, path in sorted(found, reverse=True):
            yield path, changed

    def _mark(self, name: str, whose: str) -> int:
        """Returns when the mark with this text was made; replaces a mark with another text."""
        path = self._folder.run_state / name
        if not path.exists() or path.read_text() != whose:
            durable.write(path, whose)
        return path.stat().st_mtime_ns

    def _tell_flags(self) -> None:
        servers = self._node.runtime == "fleet-ps"
        flags = command_line.read(self._node.own.words, servers).flags
        ours = (*command_line.CLUSTER_FLAGS, *(command_line.SERVER_FLAGS if servers else ()))
        if given := [f"--{flag} {flags[flag]}" for flag in ours if flag in flags]:
            self._say(f"{', '.join(given)} in the command: the job's own settings win")

    def _warn_of_samplers(self) -> None:
        manifest = data_manifest.read(self._folder.data_manifest)
        if manifest is None or manifest.shared or len(manifest.shards) < 2:
            return
        # The folder where this pod works, however the program got there.
        folder = self._node.home / "program"
        for file, text in program_files.of_command(self._node.own.words, folder):
            if found := SAMPLERS.search(text):
                self._say(
                    f"warning: {file.relative_to(folder)} uses {found[0]}, which divides among the "
                    f"ranks what the {self._node.trainers} pods have divided already: set "
                    "data.shared: true, or leave the sampler out"
                )
                return


def _natural(name: str) -> list[tuple[int, int, str]]:
    return [
        (0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name)
    ]

"""Tracks a command's progress by the files in its attempt's output folder.

An attempt resumes from the newest match, by the numbers in the names; from the one before if two
attempts could not load it. Progress is what lies beyond the best that the run has seen.
"""

import hashlib
import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from paddle_node import command_line, contract
from paddle_node.environment import PodEnvironment
from paddle_node.failure import BadSetting
from paddle_node.runtimes import NO_SCRATCH, History, Resumption, remarks
from paddle_node.runtimes.attempt_output import OUTPUT, AttemptOutput, Facts
from paddle_node.runtimes.checkpoint import CheckpointCheck, members
from paddle_node.runtimes.series import Number, Series, newest_first
from paddle_node.volume import durable, publication
from paddle_node.volume.passes import Identity

WHOLE_BYTES = 64 << 20
"""Bytes up to which a file's content is read whole; of a larger one, `BLOCKS` blocks."""
BLOCKS, BLOCK = 64, 1 << 16
MOST_PLAIN = 100
"""The most files without a number in their names whose contents are compared."""
MOST_CONTENTS = 300
"""Contents that are remembered."""
MOST_NAMED = 6
"""Files that one sentence names."""
TORN = "not-whole"
"""Folder in the output for checkpoints that are passed over because they are not whole."""


class FileProgress:
    """An attempt resumes from {newest: the match, such as output/epoch-3; content: its digest}."""

    scratch = NO_SCRATCH

    def __init__(self, pod: PodEnvironment, say: Callable[[str], None]) -> None:
        self._pod = pod
        self._folder = pod.folder
        self._say = say
        values = remarks.FIRST | {"trainers": f"{pod.trainers}"}
        self._success = command_line.fill(pod.command.success_file, values)
        self._resume = resume_glob(pod)
        self._progress = command_line.fill(pod.command.progress, values) or self._resume
        self._model = pod.command.model
        self._check = checkpoint_check(pod)
        self._output = AttemptOutput(pod, self._success, say)
        self._root = self._folder.root
        """The folder of the attempt that runs, or has just ended."""
        self._facts: Facts = {}
        """The facts with which that attempt began."""
        self._known = ""
        self._led_out = False
        """Whether the program has linked `output` to another place."""

    def begin(self, identity: Identity, history: History) -> Resumption:
        if history.first:
            if self._pod.command.recipe:
                self._say(self._pod.command.recipe)
            self._tell_flags()
        if not (local := self.scratch.used):
            self.scratch = NO_SCRATCH
        earlier = self._output.begin(
            history.number, identity, history.gone, self._checkpoints, local
        )
        self._root = self._folder.attempt(self._pod.run_id, history.number)
        torn = self._set_torn_aside(history.number)
        self._facts = self._describe_start(earlier)
        self._output.complete(self._facts)
        self._known = self._state()
        passed_over = torn
        newest: dict[str, str] = {}
        for name, _ in newest_first(self._names(self._resume), self._change_time):
            candidate = {"newest": name, "content": self._find_content(name)}
            # If no checkpoint can be loaded, the job tries the newest one, and fails: it never
            # starts anew over existing files.
            newest = newest or candidate
            if candidate not in history.unloadable:
                newest = candidate
                break
            self._say(f"{name} is skipped: two attempts that resumed from it failed")
            passed_over.append(name)
        if history.first and not newest:
            self._tell_of_others()
        elif not newest and self._resume:
            files = sorted(path.name for path in durable.glob(self._root / OUTPUT, "*"))
            names = ", ".join([*files[:MOST_NAMED], *(["..."] if files[MOST_NAMED:] else [])])
            self._say(
                f"nothing matches {self._resume}, so this attempt starts over; {OUTPUT}/ has "
                f"{names or 'no file'}"
            )
        return Resumption(
            newest,
            f"from {newest['newest']}" if newest else "from the beginning",
            tuple(passed_over),
            published := self._published(),
            bool(newest)
            and published.get(newest["newest"]) != newest["content"]
            and newest["newest"] in self.scratch.saves,
        )

    def _published(self) -> dict[str, str]:
        """Returns the contents of what agents have copied to the volume, by name."""
        records = publication.read_records(self._root) if self._pod.local else ()
        return {record["name"]: record["key"] for record in records}

    def _find_content(self, name: str) -> str:
        """Returns the content of a checkpoint: the pods' scratch has the newest, if it has it."""
        if name in self.scratch.saves:
            return self.scratch.saves[name][1]
        return self._published().get(name) or _content(self._root / name)

    def name_progress(self, attempt: int, resumption: Resumption) -> str:
        self._root = self._folder.attempt(self._pod.run_id, attempt)
        facts = self._output.facts(attempt) or self._facts
        best = tuple(facts.get("best", ()))
        series = self._series(best, facts)
        if series.certain:
            for name in series.highest_first():
                if series.numbers[name] <= best:
                    break
                if self._change_time(name) is not None:
                    return name
        contents = facts.get("contents", ())
        return next(
            (name for name, content in self._list_plain(series) if content not in contents), ""
        )

    def find_missing(self, identity: Identity, resumption: Resumption, stopped: bool) -> str | None:
        self._refuse_own_folder()
        if self._model and not any(
            self._change_time(name) is not None for name in self._names(self._model)
        ):
            return f"{self._model}, the command's final model, was not written"
        if not self._success:
            return (
                "the command was told to stop, and nothing else says that it is done"
                if stopped
                else None
            )
        success = self._root / self._success
        durable.refresh(success.parent)
        try:
            durable.stat(success)
        except (FileNotFoundError, NotADirectoryError):
            return (
                f"{self._success}, by which the command says that it is done, was not written in "
                "this attempt"
            )
        return None

    def save_time(self) -> float:
        # What no later attempt can resume from is lost, whatever progress it was.
        newest = newest_first(self._names(self._resume), self._change_time)
        return next((changed for _, changed in newest), 0) / 1e9

    def has_progressed(self) -> bool:
        self._refuse_own_folder()
        self._output.show()
        before, self._known = self._known, self._state()
        return before != self._known

    def publish(self) -> None:
        self._output.publish()

    def _describe_start(self, earlier: Facts) -> Facts:
        """Returns what is known of progress as an attempt begins, for the next ones to compare."""
        best = tuple(earlier.get("best", ()))
        series = self._series(best, earlier)
        numbered = series.highest_first()
        whole = (name for name in numbered if self._change_time(name) is not None)
        if (newest := next(whole, None)) is not None:
            best = max(best, series.numbers[newest])
        contents = [
            *earlier.get("contents", ()),
            *(content for _, content in self._list_plain(series)),
        ]
        return {
            "best": best,
            "series": series.certain,
            "contents": list(dict.fromkeys(contents))[-MOST_CONTENTS:],
        }

    def _series(self, best: Number, facts: Facts) -> Series:
        """Returns what counts as progress; the run's best number is part of the series."""
        series = Series.parse(self._names(self._progress))
        others = {number for number in series.numbers.values() if number} - {best}
        certain = series.certain or facts.get("series", False) or bool(best and others)
        return Series(series.numbers, certain)

    def _list_plain(self, series: Series) -> Iterator[tuple[str, str]]:
        """Yields the files whose contents count, because no number in the name does, with their
        digests.
        """
        names = [name for name, number in series.numbers.items() if not (series.certain and number)]
        states = [
            (changed, name) for name in names if (changed := self._change_time(name)) is not None
        ]
        for _, name in sorted(states, reverse=True)[:MOST_PLAIN]:
            yield name, self._find_content(name)

    def _state(self) -> str:
        names = self._names(self._progress)
        newest = next(newest_first(names, self._change_time), ("", 0))
        # Of checkpoints, one that is not whole yet is no change.
        return f"{0 if self._check else len(names)} {newest}"

    def _names(self, pattern: str) -> list[str]:
        if not pattern:
            return []
        here = [name for name in self.scratch.saves if PurePosixPath(name).match(pattern)]
        return sorted({*durable.names(self._root, pattern), *here})

    def _change_time(self, name: str) -> int | None:
        """Returns when a match was last changed; None: it is empty, gone, or leads out of the
        output.
        """
        path = self._root / name
        if name in self.scratch.saves:
            return self.scratch.saves[name][0]
        if not os.path.realpath(path).startswith(f"{os.path.realpath(self._root / OUTPUT)}/"):
            return None
        states = []
        for file in _files(path):
            try:
                states.append(durable.stat(file))
            except FileNotFoundError:  # Just removed.
                continue
        if not any(state.st_size for state in states) or self._fault(name):
            return None
        return max(state.st_mtime_ns for state in states)

    def _fault(self, name: str) -> str:
        """Returns why a checkpoint is not whole; empty: it is, or nobody says what whole is."""
        if self._check is None or not PurePosixPath(name).match(self._resume):
            return ""
        return self._check.fault(self._root / name)

    def _set_torn_aside(self, number: int) -> list[str]:
        """Moves the checkpoints that are not whole to a folder beside them, and returns their
        names: a program may take the newest one by itself, or write into what another attempt
        began.
        """
        torn = []
        for name in durable.names(self._root, self._resume) if self._check is not None else ():
            if not (fault := self._fault(name)):
                continue
            path = self._root / name
            below = PurePosixPath(name).relative_to(OUTPUT)
            place = self._root / OUTPUT / TORN / f"attempt-{number}" / below
            self._say(f"{name} is skipped: {fault}; it is in {place.relative_to(self._root)} now")
            torn.append(name)
            place.parent.mkdir(parents=True, exist_ok=True)
            for file in [path] if path.is_dir() else members(path):
                file.replace(place.with_name(file.name))
        return torn

    def _checkpoints(self, shipped: Path) -> Collection[Path]:
        """Returns the files in a program's own folder that would count as this job's."""
        patterns = {self._resume, self._progress, self._success} - {""}
        return {path for pattern in patterns for path in durable.glob(shipped, pattern)}

    def _refuse_own_folder(self) -> None:
        output = contract.path(contract.UNPACKED, self._pod.environ) / OUTPUT
        replaced, place = "`output`, which leads to the volume,", self._root / OUTPUT
        local = contract.path(contract.ATTEMPT, self._pod.environ) / OUTPUT
        if self.scratch.used and output.is_dir() and local.is_dir() and output.samefile(local):
            return
        if place.is_symlink() or place.is_file():
            replaced = "{output}, its folder on the volume,"
        elif not output.is_dir() or output.is_symlink():
            if output.is_dir() and not self._led_out:
                self._warn_of_link(os.path.realpath(output))
            return
        raise BadSetting(
            f"the program has replaced {replaced} by a folder, a file or a link of its own, whose "
            "files would be gone with the pod: let it empty the folder (`rm -rf output/*`), or "
            "write to {output}"
        )

    def _warn_of_link(self, to: str) -> None:
        volume = os.path.realpath(self._folder.root)
        if not f"{to}/".startswith(f"{volume}/"):
            self._led_out = True
            self._say(
                f"warning: the program has led `output` to {to}, which is not this job's folder on "
                "the volume: nothing there is resumed from or kept, unless it is a volume of its "
                "own"
            )

    def _tell_of_others(self) -> None:
        places = self._output.list_set_aside() if self._resume else []
        matches = [path for place in places for path in durable.glob(place, self._resume)]
        if count := sum(not path.is_symlink() for path in matches):
            self._say(
                f"{count} files of another program or other data, in {self._folder.set_aside}, are "
                "not resumed from; resume_from: any would"
            )

    def _tell_flags(self) -> None:
        servers = self._pod.way.servers
        if overridden := command_line.read(self._pod.command.words, servers).list_overridden(
            servers
        ):
            self._say(f"{', '.join(overridden)} in the command: the job's own settings win")


def resume_glob(pod: PodEnvironment) -> str:
    """Returns the pattern of the checkpoints, below an attempt's folder; empty: there is none."""
    return "".join(command_line.globs(pod.command.resume or pod.command.resume_line))


def checkpoint_check(pod: PodEnvironment) -> CheckpointCheck | None:
    """Returns the check by the job's recipe; None: nobody says what a whole checkpoint has."""
    command = pod.command
    if not command.checkpoint_files:
        return None
    # Where anybody's is resumed from, another number of ranks may have saved.
    ranks = 0 if pod.resume_from == "any" else pod.trainers * command.processes
    return CheckpointCheck(command.checkpoint_files, command.checkpoint_last, ranks)


def _files(path: Path) -> list[Path]:
    """Returns the files that a match consists of: itself, or what lies below it."""
    if path.is_file():
        return [path]
    return [file for file in durable.walk(path) if file.is_file()]


def _content(path: Path) -> str:
    """Returns a digest of a match: of every byte, or of a sample of a large file."""
    whole: Any = hashlib.sha256()
    for file in _files(path):
        with file.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            whole.update(f"{file.relative_to(path)}\0{size}\0".encode(errors="surrogateescape"))
            if size <= WHOLE_BYTES:
                whole.update(hashlib.file_digest(stream, "sha256").digest())
                continue
            for block in range(BLOCKS + 1):
                stream.seek(block * (size - BLOCK) // BLOCKS)
                whole.update(stream.read(BLOCK))
    return str(whole.hexdigest()[:16])

"""The output folder of a command's attempt: the files with which it begins, and the links by which
people reach it.

Each attempt writes to a folder of its own, below `output/attempts/<run>-<n>/`. It begins with what
the last attempt of the same data and program left, in files that no process of that attempt can
reach; docs/pod.md has the reasons. Only the holder of the lease calls this. The next call completes
a call that was cut short.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

from paddle_node import contract
from paddle_node.environment import PodEnvironment
from paddle_node.failure import BadSetting
from paddle_node.volume import durable, passes, publication
from paddle_node.volume.passes import Identity

OUTPUT, BEFORE, COPYING, BEGAN = "output", "before", "copying", "began.json"
"""What an attempt's folder holds: what the command writes, the `success` file of an earlier
attempt, half-made copies, and whose the folder is.
"""
NEWEST = "newest"
"""The link to the newest attempt's folder, beside it."""
OURS = re.compile(r"run|attempts|set-aside|node_\d+")
"""Names in the job's output that are the agents' own."""
COPY_BYTES = 64 << 20
"""Bytes up to which a file is copied that a lost pod has not changed, but may have open."""
COPIES = 8
"""Files that are copied at once."""
MOST_FOLDERS = 500
"""Parts of a path up to which a lost pod's files are copied."""
MOST_LISTINGS = 5
"""How often a lost pod's files are listed: if it still runs, it may replace what was listed."""
MOST_LINKS = 1000
"""Names in `output/` that get a link while a run goes on."""

Facts = Mapping[str, Any]
"""What `began.json` says: whose the folder is (data, program), whether it is `whole`, and what the
caller adds.
"""


class AttemptOutput:
    """The folders of a job's attempts. `root` is the present attempt's, once `begin` was called."""

    root: Path | None = None

    def __init__(self, pod: PodEnvironment, success: str, say: Callable[[str], None]) -> None:
        """`success` is the file by which the command says that it is done, such as
        `output/result.json`; empty: none.
        """
        self._pod = pod
        self._folder = pod.folder
        self._success = success
        self._say = say
        self._any = pod.resume_from == "any"
        self._mark = pod.folder.run_state / "program"
        """Records the program and data of the files in `output/` itself."""

    def begin(
        self,
        number: int,
        identity: Identity,
        gone: bool,
        left_out: Callable[[Path], Collection[Path]],
        local: bool = False,
    ) -> Facts:
        """Fills the folder of attempt `number`. Returns the facts of this run's last attempt; none
        if there is none.

        `gone`: no process of an earlier attempt is left. `local`: the attempt's command writes to
        the pods' scratch, and only agents to this folder. `left_out`: what not to take of the files
        that the program's own folder has, below the given folder. Raises OSError.
        """
        root = self.root = self._folder.attempt(self._pod.run_id, number)
        identity_facts = {"data": identity.data, "program": identity.program}
        # A command that writes here itself may change what agents have recorded.
        self._parts = (OUTPUT, BEFORE, publication.PUBLISHED) if local else (OUTPUT, BEFORE)
        for part in (*self._parts, COPYING):
            (root / part).mkdir(parents=True, exist_ok=True)
        began_facts = identity_facts | {"whole": False} | ({"local": True} if local else {})
        durable.write(root / BEGAN, json.dumps(began_facts))
        self._set_others_aside(identity_facts)
        facts: Facts = {}
        continued = False
        for earlier, began in self._attempts():
            if earlier == root:
                continue
            # In a folder that was never whole no process has run.
            self._continue_from(earlier, gone or not began["whole"] or "local" in began)
            if began["whole"]:
                # Files in older folders came too late, from processes of ended attempts.
                facts, continued = began if earlier == self._folder_in_run(earlier) else {}, True
                break
        for name in self._list_published():
            continued = True
            _remove(root / OUTPUT / name)  # Only a person can have put one of that name there.
            _move(self._folder.output / name, root / OUTPUT / name)
        self._lead_links(root / OUTPUT, self._folder.output, root / OUTPUT)
        own_aside = [] if continued else [self._place_set_aside(identity_facts)]
        for aside in filter(_exists, self.list_set_aside() if self._any else own_aside):
            continued = True
            self._continue_from(aside, gone=True)
            _forget(aside)
        if not continued:
            self._take_shipped(left_out)
        if self._success and _exists(path := root / self._success):
            # Only what the attempt itself writes says that it is done.
            kept = root / BEFORE / self._success.partition("/")[2]
            kept.parent.mkdir(parents=True, exist_ok=True)
            path.replace(kept)
        durable.write(self._mark, _text(identity_facts))
        return facts

    def complete(self, facts: Facts) -> None:
        """Records that the folder is whole, adds `facts`, and removes the earlier ones."""
        assert self.root is not None
        began = _read_beginning(self.root) or {}
        durable.write(self.root / BEGAN, json.dumps({**began, **facts, "whole": True}))
        for attempt in passes.list_attempts(self._folder):
            if attempt != self.root:
                _forget(attempt)
        self.show()

    def facts(self, number: int) -> Facts:
        """Returns what `complete` recorded of an attempt; nothing if its program removed it."""
        return _read_beginning(self._folder.attempt(self._pod.run_id, number)) or {}

    def show(self) -> None:
        """Sets the links in `output/` for people and tools."""
        if self.root is None:
            return
        here = self._folder.output
        durable.link(self._folder.attempts / NEWEST, self.root.name)
        names = [entry.name for entry in durable.entries(self.root / OUTPUT)]
        names = [name for name in names if not OURS.fullmatch(name)][:MOST_LINKS]
        self._hide(names)
        there = {entry.name for entry in durable.entries(here)}
        for name in names:
            if name not in there:
                with contextlib.suppress(FileExistsError):
                    (here / name).symlink_to(_view(name))

    def publish(self) -> None:
        """Moves what this run's last attempt left to `output/` itself. Call when no process of it
        is left. Does nothing if that is done, or if another run has begun; two may do it at once.
        """
        root, began = next(self._attempts(), (None, {"whole": False}))
        if root is None or not began["whole"] or root != self._folder_in_run(root):
            return
        here = self._folder.output
        self._hide()
        publication.install(root)
        _straighten(root)
        if self._success and not _exists(root / self._success):
            # The run has ended without one, so the earlier one still says what it said.
            kept = root / BEFORE / self._success.partition("/")[2]
            if _exists(kept):
                (root / self._success).parent.mkdir(parents=True, exist_ok=True)
                kept.replace(root / self._success)
        self._lead_links(root / OUTPUT, root / OUTPUT, here)
        there = {entry.name for entry in durable.entries(here)}
        for entry in durable.entries(root / OUTPUT):
            if OURS.fullmatch(entry.name):
                self._say(f"output/{entry.name} of the program stays in {root / OUTPUT}")
                continue
            if entry.name in there:
                aside = self._folder.set_aside / root.name
                self._say(
                    f"output/{entry.name}, which somebody has put there meanwhile, is in {aside} "
                    "now"
                )
                _merge(here / entry.name, aside / entry.name)
            with contextlib.suppress(FileNotFoundError):
                _move(root / OUTPUT / entry.name, here / entry.name)
        if not durable.entries(root / OUTPUT):
            _forget(root)
            (self._folder.attempts / NEWEST).unlink(missing_ok=True)

    def list_set_aside(self) -> list[Path]:
        """Returns the folders in which `output` holds what other programs, or this one on other
        data, have left.
        """
        return [path.parent for path in durable.glob(self._folder.set_aside, f"*/{OUTPUT}")]

    def _attempts(self) -> Iterator[tuple[Path, dict[str, Any]]]:
        """Yields the folders of commands' attempts, newest first, with what each began with. One
        that a process of an ended attempt made anew has no such record.
        """
        for attempt in reversed(passes.list_attempts(self._folder)):
            if (began := _read_beginning(attempt)) is not None:
                yield attempt, began

    def _folder_in_run(self, attempt: Path) -> Path:
        """Returns the folder of the same attempt, were it one of this run."""
        return self._folder.attempt(self._pod.run_id, passes.attempt_number(attempt.name))

    def _list_published(self) -> list[str]:
        """Returns the names in `output/` itself that programs or people have put there."""
        here = self._folder.output
        return [
            entry.name
            for entry in durable.entries(here)
            if not OURS.fullmatch(entry.name)
            and not (
                entry.is_symlink() and (here / entry.name).readlink().parts[:1] == ("attempts",)
            )
        ]

    def _hide(self, but: Collection[str] = ()) -> None:
        """Removes the links that `show` has set."""
        kept = set(but)
        for entry in durable.entries(self._folder.output):
            if entry.is_symlink() and entry.name not in kept:
                link = self._folder.output / entry.name
                if str(link.readlink()) == _view(entry.name):
                    link.unlink(missing_ok=True)

    def _set_others_aside(self, identity_facts: Mapping[str, str]) -> None:
        """Moves away what another program, or this one on other data, has left."""
        if self._any:
            return
        for earlier, began in list(self._attempts()):
            if _text(began) != _text(identity_facts):
                place = self._place_set_aside(began) / OUTPUT
                _merge(earlier / OUTPUT, place)
                self._lead_links(place, earlier / OUTPUT, place)
                _forget(earlier)
        mark = self._mark.read_text() if _exists(self._mark) else _text(identity_facts)
        if mark != _text(identity_facts):
            data, _, program = mark.partition(" ")
            place = self._place_set_aside({"data": data, "program": program}) / OUTPUT
            for name in self._list_published():
                _merge(self._folder.output / name, place / name)
            self._lead_links(place, self._folder.output, place)

    def _place_set_aside(self, whose: Mapping[str, str]) -> Path:
        parts = (whose["program"][:12] or "program", whose["data"][:12] or "data")
        return self._folder.set_aside / "-".join(parts)

    def _continue_from(self, earlier: Path, gone: bool) -> None:
        """Moves what an earlier attempt left; copies what a process of it may have open."""
        assert self.root is not None
        # The volume's own clock, which no program sets.
        since = None if gone else (earlier / BEGAN).stat().st_ctime_ns
        publication.install(earlier)
        _straighten(earlier)
        modes: dict[Path, int] = {}
        for _ in range(MOST_LISTINGS):
            copies: list[_Planned] = []
            for part in self._parts:
                _take(earlier / part, self.root / part, since, copies, modes)
            if self._copy_open_files(copies, passes.attempt_number(earlier.name)):
                break
        for folder, mode in reversed(modes.items()):
            folder.chmod(mode)
        self._lead_links(self.root / OUTPUT, earlier / OUTPUT, self.root / OUTPUT)

    def _lead_links(self, folder: Path, earlier: Path, now: Path) -> None:
        in_pod = (
            contract.path(at, self._pod.environ) for at in (contract.ATTEMPT, contract.UNPACKED)
        )
        starts = {str(earlier), os.path.realpath(earlier), *(str(at / OUTPUT) for at in in_pod)}
        lead(folder, starts, now)

    def _copy_open_files(self, copies: Collection[_Planned], attempt: int) -> bool:
        """Copies files of an attempt. Returns False if one was gone."""
        assert self.root is not None
        if not copies:
            return True
        self._say(
            f"a pod of attempt {attempt} was lost and may only be frozen: {len(copies)} files that "
            f"it may have open are copied, {sum(copy.size for copy in copies) / 1e6:,.1f} MB"
        )
        drafts = repeat(self.root / COPYING)
        with ThreadPoolExecutor(COPIES) as pool:
            # Raises what a copy raised.
            whole = all(list(pool.map(_copy, copies, drafts)))
        for folder in {copy.target.parent for copy in copies}:
            durable.sync(folder)
        return whole

    def _take_shipped(self, left_out: Callable[[Path], Collection[Path]]) -> None:
        """Copies what the program's own folder has in `output`."""
        assert self.root is not None
        shipped = contract.path(contract.SHIPPED, self._pod.environ)
        skipped = set() if self._any else set(left_out(shipped))
        for path in durable.walk(shipped / OUTPUT):
            target = self.root / path.relative_to(shipped)
            if not skipped.isdisjoint((path, *path.parents)) or _exists(target):
                continue
            if path.is_dir() and not path.is_symlink():
                target.mkdir()
            else:
                shutil.copy2(path, target, follow_symlinks=False)
        if skipped:
            more = f" and {len(skipped) - 1} more" if len(skipped) > 1 else ""
            self._say(
                f"{min(skipped).relative_to(shipped)}{more} of the program's folder would count as "
                "a checkpoint of this job and is left out; resume_from: any takes it"
            )


class _Planned(NamedTuple):
    """A file to be copied, and its bytes when it was listed."""

    source: Path
    target: Path
    size: int


def _take(
    source: Path, target: Path, since: int | None, copies: list[_Planned], modes: dict[Path, int]
) -> None:
    """Moves what `target` lacks, and lists what has to be copied instead: what changed after
    `since`, and small files; None: nothing. `modes` gets those of folders, which can be set only
    once they are full: a program may make its checkpoint read-only.
    """
    if since is None and not durable.entries(target):
        with contextlib.suppress(FileNotFoundError):
            _move(source, target)  # One rename, however much there is.
        return
    for entry in durable.entries(source):
        here, there = source / entry.name, target / entry.name
        # A process that may still write there may also remove it.
        with contextlib.suppress(FileNotFoundError):
            if entry.is_dir(follow_symlinks=False) and (since is not None or _exists(there)):
                if len(there.parts) > MOST_FOLDERS:
                    raise BadSetting(
                        f"{here} lies too deep to be copied: remove the folders that the program "
                        "has made in each other by mistake"
                    )
                there.mkdir(exist_ok=True)
                modes.setdefault(there, _unlock(here))
                _unlock(there)
                _take(here, there, since, copies, modes)
            elif _exists(there):
                continue  # A call that was cut short got as far as this.
            elif since is None or not entry.is_file(follow_symlinks=False):
                _move(here, there)
            elif (state := here.lstat()).st_ctime_ns >= since or state.st_size <= COPY_BYTES:
                copies.append(_Planned(here, there, state.st_size))
            else:
                _move(here, there)


def _straighten(attempt: Path) -> None:
    """Makes sure that an attempt's files lie in a folder. A program may have replaced its output
    folder by a link or a file; this is then moved into a new folder.
    """
    output = attempt / OUTPUT
    if output.is_dir() and not output.is_symlink():
        _unlock(output)
    elif _exists(output):
        aside = attempt / COPYING / OUTPUT
        aside.parent.mkdir(exist_ok=True)
        output.replace(aside)
        output.mkdir()
        aside.replace(output / OUTPUT)


def _move(source: Path, target: Path) -> None:
    """Renames a file or a folder, also one that its program has made read-only: a folder that gets
    another parent is written to.
    """
    try:
        source.replace(target)
    except PermissionError:
        if source.is_symlink() or not source.is_dir():
            raise
        mode = _unlock(source)
        source.replace(target)
        target.chmod(mode)


def _unlock(folder: Path) -> int:
    """Lets this user change what a folder holds. Returns the folder's mode before."""
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & stat.S_IRWXU != stat.S_IRWXU:
        folder.chmod(mode | stat.S_IRWXU)
    return mode


def lead(folder: Path, earlier: Collection[str], now: Path) -> None:
    """Makes the links in a folder that led into another one by one of its full paths lead to where
    its files are now. A call that is cut short leaves each link as it was, or as it is to be.
    """
    for link in _links(folder):
        to = str(link.readlink())
        for start in earlier:
            inside = to.removeprefix(f"{start}/")
            if inside != to and not OURS.fullmatch(inside.partition("/")[0]):
                durable.link(link, str(now / inside))


def _links(folder: Path) -> Iterator[Path]:
    waiting = [folder]
    while waiting:
        place = waiting.pop()
        try:
            entries = durable.entries(place)
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:  # No path leads there: it came by `chdir`.
                continue
            raise
        for entry in entries:
            if entry.is_symlink():
                yield place / entry.name
            elif entry.is_dir(follow_symlinks=False):
                waiting.append(place / entry.name)


def _copy(copy: _Planned, drafts: Path) -> bool:
    """Copies a file; under its name it is whole, and on the disk. Returns False if it is gone."""
    draft = drafts / os.urandom(8).hex()
    try:
        shutil.copy2(copy.source, draft)
        durable.sync(draft)
        draft.replace(copy.target)
    except FileNotFoundError:
        return False
    return True


def _merge(source: Path, target: Path) -> None:
    """Moves a file or folder into the place of another; of two folders, what they hold."""
    if target.is_dir() and source.is_dir():
        for entry in durable.entries(source):
            _merge(source / entry.name, target / entry.name)
    elif _exists(source):
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove(target)
        _move(source, target)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        _remove_folder(path)
    else:
        path.unlink(missing_ok=True)


def _remove_folder(folder: Path) -> None:
    """Removes a folder as far as possible: a program may have made it read-only, or too deep."""
    with contextlib.suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError, RecursionError):
        if _exists(folder):
            for path in (folder, *durable.walk(folder)):
                if path.is_dir() and not path.is_symlink():
                    _unlock(path)
            shutil.rmtree(folder, ignore_errors=True)


def _forget(attempt: Path) -> None:
    """Removes a command's part of an attempt's folder; passes of another runtime stay."""
    for part in (OUTPUT, BEFORE, COPYING, publication.COPIES, publication.PUBLISHED):
        _remove_folder(attempt / part)
    with contextlib.suppress(OSError):
        (attempt / BEGAN).unlink(missing_ok=True)
        attempt.rmdir()


def _read_beginning(attempt: Path) -> dict[str, Any] | None:
    """Returns what an attempt's folder began with; None: that is not recorded."""
    unknown = {"data": "", "program": "", "whole": False}
    try:
        began = json.loads((attempt / BEGAN).read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError:
        return unknown
    return unknown | began if isinstance(began, dict) else unknown


def _text(whose: Mapping[str, Any]) -> str:
    return f"{whose['data']} {whose['program']}"


def _view(name: str) -> str:
    return f"attempts/{NEWEST}/{OUTPUT}/{name}"


def _exists(path: Path) -> bool:
    """Whether there is anything of that name, be it a broken link. Raises OSError for a refusal."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True

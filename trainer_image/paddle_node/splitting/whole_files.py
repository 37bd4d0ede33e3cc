"""Format `files`: each file of the source, or of its archives, is one record and keeps its name.

Promises: as `parts` for records, but that the list of names is held in memory (about 1.3 kB a file, with the manifest).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import xxhash

from paddle_node.contract import ExitCode
from paddle_node.data_manifest import DataFile
from paddle_node.failure import Failure
from paddle_node.splitting.framing import LINES
from paddle_node.splitting.kinds import is_archive
from paddle_node.splitting.part_file import BLOCK, PartFile
from paddle_node.splitting.shares import PART, Share
from paddle_node.splitting.source import Object, Reader, inside
from paddle_node.splitting.steps import Step, Steps
from paddle_node.splitting.units import fetched, group

MOST_A_STEP = 2000


@dataclass(frozen=True, slots=True)
class Whole:
    """One record: a file on this machine."""

    name: str
    path: str
    bytes: int


def prepare(steps: Steps, source: Reader, objects: Sequence[Object], workers: int) -> list[Whole]:
    """Every file of the source, downloaded and unpacked where it must be."""
    groups = group(objects)
    several = len(objects) > 1
    todo = [
        Step(f"unit-{number:06d}", _unpack(steps, source, members, number, several), sum(thing.size or 0 for thing in members))
        for number, members in enumerate(groups)
    ]
    found = []
    for members, result in zip(groups, steps.run(todo, workers), strict=True):
        for at, name, kept_as, size in result:
            in_place = source.local(members[at])
            name = inside(name, "the source")  # The name of an object in S3 is any text.
            path = steps.folder / "units" / kept_as if kept_as or in_place is None else in_place
            found.append(Whole(name, str(path), size))
    seen: set[str] = set()
    for whole in found:
        if whole.name in seen:
            raise Failure(
                ExitCode.BAD_DATA, f"two files of the source are named {whole.name}: format files needs names that differ"
            )
        seen.add(whole.name)
    for whole in found:
        for above in PurePosixPath(whole.name).parents:
            if str(above) in seen:
                raise Failure(ExitCode.BAD_DATA, f"the source has {whole.name} and also a file named {above}: rename one")
    return found


def in_order(files: list[Whole], held_out: int, seed: str | None) -> list[Whole]:
    """The sequence that the shares refer to: held-out ones first."""
    if seed is not None:
        import numpy as np  # Only here: the data job need not wait for it otherwise.

        digest = xxhash.xxh3_128(repr((seed, "files")).encode()).digest()
        places = np.random.RandomState(np.frombuffer(digest, np.uint32)).permutation(len(files)).tolist()
        return [files[place] for place in places]
    picked = {(2 * which + 1) * len(files) // (2 * held_out) for which in range(held_out)}
    return [file for at, file in enumerate(files) if at in picked] + [file for at, file in enumerate(files) if at not in picked]


def write(steps: Steps, files: Sequence[Whole], shares: Sequence[Share], workers: int) -> dict[str, tuple[DataFile, ...]]:
    """Copies each share's files below `parts/<share>/`."""
    todo: list[tuple[Share, Step]] = []
    for share in shares:
        first = share.first
        while first < share.last:
            last, size = first, 0
            while last < share.last and last - first < MOST_A_STEP and (last == first or size + files[last].bytes <= PART):
                size += files[last].bytes
                last += 1
            todo.append((share, Step(f"part-{share.name}-{first:09d}", _copy(steps, files[first:last], share), size)))
            first = last
    results = steps.run([step for _, step in todo], workers)
    written: dict[str, list[DataFile]] = {share.name: [] for share in shares}
    for (share, _), result in zip(todo, results, strict=True):
        written[share.name] += [DataFile(**file) for file in result]
    return {name: tuple(each) for name, each in written.items()}


def _unpack(steps: Steps, source: Reader, members: tuple[Object, ...], number: int, several: bool) -> Callable[[], list[Any]]:
    def work() -> list[Any]:
        """Of each file: which object, its name, where it was unpacked to ("": it is read in place), bytes."""
        from paddle_node.splitting import unpacking  # Late, as in `units`.

        found: list[Any] = []
        for at, thing in enumerate(members):
            with fetched(steps, source, thing, f"{number}-{at}") as raw, unpacking.damage_of(thing.name):
                archive = is_archive(raw)
                if not archive and source.local(thing) is not None:
                    found.append((at, thing.name, "", raw.stat().st_size))
                    continue
                if not archive:
                    kept_as = f"{number:06d}-{len(found):06d}"
                    to = steps.folder / "units" / kept_as
                    to.parent.mkdir(exist_ok=True)
                    size = raw.stat().st_size
                    raw.replace(to)
                    found.append((at, thing.name, kept_as, size))
                    continue
                for name, content in unpacking.members(raw, thing.name):
                    kept_as = f"{number:06d}-{len(found):06d}"
                    size = 0
                    with steps.file(steps.folder / "units" / kept_as) as stream:
                        while block := content.read(BLOCK):
                            size += stream.write(block)
                    found.append((at, f"{thing.name}/{name}" if several else name, kept_as, size))
        return found

    return work


def _copy(steps: Steps, files: Sequence[Whole], share: Share) -> Callable[[], list[dict[str, Any]]]:
    def work() -> list[dict[str, Any]]:
        done = []
        for file in files:
            path = steps.folder / "parts" / share.name / file.name
            with PartFile(path, steps.temporary(path), LINES, steps.progress.add) as part:
                part.copy_whole(Path(file.path))
            done.append(vars(part.done(file.name)))
        return done

    return work

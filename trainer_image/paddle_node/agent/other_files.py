"""Which of a pod's files that belong to no checkpoint go to the volume with the next one.

A program may be writing any of them. What has not changed for a while is taken at once; the rest is
looked at again: of a file that grows, such as a log, what it has by then is taken. Of one that
shrinks, or of a large one, the volume keeps what it has: the next checkpoint takes it.
"""

import os
import stat
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import PurePosixPath

SETTLE = 1.5
"""Seconds for which a file must not change, to be taken at the first look."""
LARGE = 64 << 20
"""Bytes from which a file is taken only once it does not change, and no other large one beside it:
together they may be a checkpoint under its temporary name.
"""

Content = tuple[int, str]
"""Bytes and checksum."""
States = Mapping[str, os.stat_result]


def copy_two_looks(
    look: Callable[[], States],
    take: Callable[[str], Content | None],
    kept: Mapping[str, Content],
    wait: Callable[[], object],
) -> tuple[dict[str, Content], dict[str, os.stat_result]]:
    """Takes files by their names; `take` returns None for what is gone, or changes too fast.
    `kept`: what the volume has of them. `wait` is called while time passes.

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


def _differs(before: os.stat_result | None, now: os.stat_result) -> bool:
    return before is None or any(
        getattr(before, of) != getattr(now, of) for of in ("st_ino", "st_size", "st_mtime_ns")
    )


def _count_bytes(state: os.stat_result) -> int:
    return 0 if stat.S_ISLNK(state.st_mode) else state.st_size


def _smallest_first(names: Collection[str], states: States) -> list[str]:
    return sorted(names, key=lambda of: (states[of].st_size, of))

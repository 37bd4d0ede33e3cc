"""Orders a command's files by the numbers in their names. Pure."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

Number = tuple[int, ...]
"""The numbers of one name, to be compared; empty: the name has none that count."""
_EXPLAINED = re.compile(
    r"(?:epoch|step|iter(?:ation)?|pass|checkpoint|ckpt)s?[\W_]{0,3}(\d+(?:[\W_]\d+)*)", re.I
)
"""A word that says what a number counts: `epoch_9`, `global_step100`, `checkpoint_1_5000`."""
_ALONE = re.compile(r"(\d{1,7})(\.\D\w*)?")
"""A part of a path that is a number: `12`, `12.pdparams`."""
_TIME = 8
"""Digits from which a number that no word explains is taken for a date, a time or a hash."""


@dataclass(frozen=True)
class Series:
    """The names that match one pattern."""

    numbers: Mapping[str, Number]
    """The numbers of each name: those that a word explains, if any name has one; otherwise all."""
    certain: bool
    """The numbers count steps: a word says so, or several names differ in them."""

    @classmethod
    def parse(cls, names: Iterable[str]) -> "Series":
        names = list(names)
        explained = {name: _parse(name) for name in names}
        if any(explained.values()):
            return cls(explained, certain=True)
        numbers = {
            name: tuple(int(part) for part in re.findall(r"\d+", name) if len(part) < _TIME)
            for name in names
        }
        return cls(numbers, len({number for number in numbers.values() if number}) > 1)

    def highest_first(self) -> list[str]:
        """Returns the names that have a number."""
        numbered = [name for name, number in self.numbers.items() if number]
        return sorted(numbered, key=lambda name: (self.numbers[name], name), reverse=True)


def newest_first(
    names: Collection[str], changed: Callable[[str], int | None]
) -> Iterator[tuple[str, int]]:
    """Yields names by their numbers, each with the time of its last change, which decides between
    a name without any and the others. `changed` returns that time, None for a name that does not
    count; of names with numbers it is asked only as far as they are taken.
    """
    series = Series.parse(names)
    times = ((changed(name), name) for name in names if not series.numbers[name])
    plain = sorted((time, name) for time, name in times if time is not None)
    for name in series.highest_first():
        if (time := changed(name)) is not None:
            while plain and plain[-1][0] > time:
                yield plain[-1][1], plain.pop()[0]
            yield name, time
    yield from ((name, time) for time, name in reversed(plain))


def _parse(name: str) -> Number:
    numbers: list[int] = []
    for part in name.split("/"):
        if alone := _ALONE.fullmatch(part):
            numbers.append(int(alone[1]))
        for match in _EXPLAINED.finditer(part):
            numbers += map(int, re.findall(r"\d+", match[1]))
    return tuple(numbers)

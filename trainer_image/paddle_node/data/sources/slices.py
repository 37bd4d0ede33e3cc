"""Slices of the source of about equal bytes, in the order of the listing. A line belongs to the slice in which it begins."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from paddle_node.data.sources.registry import Object

UNKNOWN = 64 << 20
"""Bytes assumed for an object of unknown size."""


@dataclass(frozen=True, slots=True)
class Piece:
    """An object, or the lines of it that begin at `begin` or later, and before `end`."""

    thing: Object
    begin: int = 0
    end: int | None = None

    @property
    def bytes(self) -> int:
        if self.end is not None:
            return self.end - self.begin
        return UNKNOWN if self.thing.size is None else self.thing.size


def cut(pieces: Sequence[Piece], many: int, cuttable: Callable[[Object], bool]) -> list[list[Piece]]:
    """`many` lists, some perhaps empty. Only an object that lies across a border, and is `cuttable`, is cut."""
    total = sum(piece.bytes for piece in pieces)
    borders = [total * number // many for number in range(1, many)]
    slices: list[list[Piece]] = [[] for _ in range(many)]
    at = 0
    for piece in pieces:
        end = at + piece.bytes
        inner = sorted({border for border in borders if at < border < end})
        if inner and (piece.end is not None or cuttable(piece.thing)):
            for begin, stop in zip([at, *inner], [*inner, end], strict=True):
                slices[bisect_right(borders, begin)].append(
                    replace(piece, begin=piece.begin + begin - at, end=piece.begin + stop - at)
                )
        else:
            slices[bisect_right(borders, at)].append(piece)
        at = end
    return slices

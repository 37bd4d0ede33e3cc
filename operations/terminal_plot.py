"""A line through points, drawn in characters: eight dots a cell where the terminal has braille, else a star.

Promises: no line is longer than `width`; what is no number (a loss that blew up) leaves a gap; any number of points fits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Braille's bits by row and column of a cell (Unicode 2800)."""
LEAST = 16
"""Cells across, under which nothing can be seen."""

Point = tuple[float, float]


def chart(points: Sequence[Point], title: str, width: int, height: int = 8, braille: bool = True) -> list[str]:
    """Lines of text: the title, the curve between its axes, and the ends of the axis below it."""
    known = [point for point in points if math.isfinite(point[0]) and math.isfinite(point[1])]
    if len(known) < 2:
        return []
    # Not the first and the last: a pass that was trained again ended later than those behind it.
    left = min(x for x, _ in known)
    right = max(*(x for x, _ in known), left + 1e-9)
    low, high = min(y for _, y in known), max(y for _, y in known)
    labels = {0: _number(high), height - 1: _number(low)} if high > low else {height // 2: _number(low)}
    margin = max(map(len, labels.values()))
    across = max(width - margin - 2, LEAST)
    columns, rows = (2, 4) if braille else (1, 1)
    grid = [[0] * across for _ in range(height)]

    def place(point: Point) -> tuple[int, int]:
        share = (point[1] - low) / (high - low) if high > low else 0.5
        x = round((point[0] - left) / (right - left) * (across * columns - 1))
        return x, round((1 - share) * (height * rows - 1))

    def dot(x: int, y: int) -> None:
        grid[y // rows][x // columns] |= DOTS[y % 4][x % 2] if braille else 1

    before: tuple[int, int] | None = None
    for point in points:
        if not (math.isfinite(point[0]) and math.isfinite(point[1])):
            before = None
            continue
        here = place(point)
        for x, y in _between(before or here, here):
            dot(x, y)
        before = here
    empty = " "
    lines = [title]
    for number, row in enumerate(grid):
        cells = "".join(empty if not cell else chr(0x2800 + cell) if braille else "*" for cell in row)
        lines.append(f"{labels.get(number, ''):>{margin}} {'│' if braille else '|'}{cells}".rstrip())
    first, last = _number(left), _number(right)
    lines.append(" " * (margin + 2) + first + last.rjust(across - len(first)))
    return lines


def _between(start: tuple[int, int], end: tuple[int, int]) -> list[tuple[int, int]]:
    """The dots of a straight line."""
    steps = max(abs(end[0] - start[0]), abs(end[1] - start[1]), 1)
    return [
        (start[0] + round((end[0] - start[0]) * n / steps), start[1] + round((end[1] - start[1]) * n / steps))
        for n in range(steps + 1)
    ]


def _number(value: float) -> str:
    return f"{value:.4g}"

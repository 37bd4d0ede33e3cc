"""The loss as a picture: against passes and time in a PNG file, against passes in a terminal's characters.

Promises: no line is longer than `width`; what is no number (a loss that blew up) leaves a gap; any number of points fits.

In a terminal not by plotext: it frames its charts in characters that an ASCII terminal lacks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from operations.training_metrics import Pass


def png(passes: Sequence[Pass], title: str, file: Path) -> None:
    """Writes a PNG with two charts: each trainer's loss and the mean of all, by pass and by time."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(11, 4.2), dpi=120, layout="constrained")
    by_pass, by_time = figure.subplots(1, 2, sharey=True)
    numbers = [one.number for one in passes]
    whole = passes[-1].ended - passes[0].began
    unit, size = ("hours", 3600) if whole >= 7200 else ("minutes", 60) if whole >= 120 else ("seconds", 1)
    times = [(one.ended - passes[0].began) / size for one in passes]
    for index, trainer in enumerate(passes[0].trainers):
        losses = [one.trainers[index].loss if index < len(one.trainers) else float("nan") for one in passes]
        for axes, across in ((by_pass, numbers), (by_time, times)):
            axes.plot(across, losses, marker=".", linewidth=1, alpha=0.7, label=f"trainer {trainer.trainer}")
    for axes, across in ((by_pass, numbers), (by_time, times)):
        axes.plot(across, [one.loss for one in passes], color="black", linewidth=2, label="all")
        axes.grid(alpha=0.3)
    by_pass.set(xlabel="pass", ylabel="loss (mean over the pass)")
    by_pass.xaxis.set_major_locator(MaxNLocator(integer=True))
    by_time.set(xlabel=f"{unit} since the first pass began")
    if len(passes[0].trainers) <= 12:
        by_time.legend()
    figure.suptitle(title)
    file.parent.mkdir(parents=True, exist_ok=True)
    FigureCanvasAgg(figure)
    figure.savefig(file, format="png")


LEAST = 16
"""Cells across, under which nothing can be seen."""

Point = tuple[float, float]


def chart(points: Sequence[Point], title: str, width: int, height: int = 12) -> list[str]:
    """Lines of text: the title, the curve between its axes, and the ends of the axis below it; none for less than two points."""
    known = [point for point in points if math.isfinite(point[1])]
    if len(known) < 2:
        return []
    left, right = known[0][0], known[-1][0]
    low, high = min(y for _, y in known), max(y for _, y in known)
    labels = {0: _number(high), height - 1: _number(low)} if high > low else {height // 2: _number(low)}
    margin = max(map(len, labels.values()))
    across = max(width - margin - 2, LEAST)

    def place(point: Point) -> tuple[int, int]:
        share = (high - point[1]) / (high - low) if high > low else 0.5
        return round((point[0] - left) / (right - left) * (across - 1)), round(share * (height - 1))

    dots = {place(point) for point in known}
    for start, end in pairwise(points):
        if math.isfinite(start[1]) and math.isfinite(end[1]):
            dots.update(_between(place(start), place(end)))
    lines = [title]
    for row in range(height):
        cells = "".join("*" if (column, row) in dots else " " for column in range(across))
        lines.append(f"{labels.get(row, ''):>{margin}} |{cells}".rstrip())
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

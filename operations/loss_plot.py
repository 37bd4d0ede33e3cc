"""The loss as a picture: against the passes, and against the time that they took."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from operations.terminal_plot import chart
from operations.training_metrics import Pass

BESIDE = 100
"""Columns from which both charts stand beside each other."""


def png(passes: Sequence[Pass], title: str, file: Path) -> None:
    """Writes a PNG with two charts: each trainer's loss and the mean of all, by pass and by minute."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(11, 4.2), dpi=120, layout="constrained")
    by_pass, by_time = figure.subplots(1, 2, sharey=True)
    numbers = [one.number for one in passes]
    minutes = [(one.ended - passes[0].began) / 60 for one in passes]
    for index, trainer in enumerate(passes[0].trainers):
        losses = [one.trainers[index].loss if index < len(one.trainers) else float("nan") for one in passes]
        for axes, across in ((by_pass, numbers), (by_time, minutes)):
            axes.plot(across, losses, marker=".", linewidth=1, alpha=0.7, label=f"trainer {trainer.trainer}")
    for axes, across in ((by_pass, numbers), (by_time, minutes)):
        axes.plot(across, [one.loss for one in passes], color="black", linewidth=2, label="all")
        axes.grid(alpha=0.3)
    by_pass.set(xlabel="pass", ylabel="loss (mean over the pass)")
    by_pass.xaxis.set_major_locator(MaxNLocator(integer=True))
    by_time.set(xlabel="minutes since the first pass began")
    if len(passes[0].trainers) <= 12:
        by_time.legend()
    figure.suptitle(title)
    file.parent.mkdir(parents=True, exist_ok=True)
    FigureCanvasAgg(figure)
    figure.savefig(file, format="png")


def text(passes: Sequence[Pass], width: int, braille: bool) -> list[str]:
    """The same two charts for a terminal, beside each other where both fit; nothing for fewer than two passes."""
    by_pass = [(float(one.number), one.loss) for one in passes]
    by_time = [((one.ended - passes[0].began) / 60, one.loss) for one in passes]
    beside = width >= BESIDE
    each = (width - 4) // 2 if beside else width
    first = chart(by_pass, "loss by pass", each, braille=braille)
    second = chart(by_time, "loss by minute since the first pass began", each, braille=braille)
    if not first or not second:
        return []
    if not beside:
        return [*first, "", *second]
    return [f"{left:<{each}}    {right}".rstrip() for left, right in zip(first, second, strict=True)]

"""The loss as a picture: against the passes, and against the time that they took."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from operations.training_metrics import Pass


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


def bar(value: float, low: float, high: float, width: int = 12) -> str:
    """A loss as a bar for the terminal: the longest for `high`, one cell for `low`."""
    share = (value - low) / (high - low) if high > low else 1.0
    return "█" * (1 + round(share * (width - 1)))

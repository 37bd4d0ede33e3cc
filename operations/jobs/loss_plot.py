"""The loss as a picture: against passes and time in a PNG file, as bars beside the passes in a terminal."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from operations.jobs.training_metrics import Pass


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


def bars(losses: Sequence[float], width: int) -> Callable[[float], str]:
    """Draws a loss as a bar in characters of any terminal, the greatest of `losses` at full width; no number is no bar."""
    most = max(filter(math.isfinite, map(abs, losses)), default=0.0)
    return lambda loss: "*" * round(abs(loss) / most * width) if most and math.isfinite(loss) else ""

"""The loss as a picture: one line a trainer and their mean, pass by pass."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rehearsal.training_progress import Pass


def loss(passes: Sequence[Pass], title: str, file: Path) -> None:
    """Write `file` (PNG)."""
    # Imported here: a quarter of a second that only this phase should wait for.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(7.2, 4.2), dpi=120, layout="constrained")
    axes = figure.subplots()
    numbers = [one.number for one in passes]
    for trainer in range(len(passes[0].trainers)):
        axes.plot(
            numbers,
            [one.trainers[trainer].loss for one in passes],
            marker=".",
            linewidth=1,
            alpha=0.7,
            label=f"trainer {trainer}",
        )
    axes.plot(numbers, [one.loss for one in passes], color="black", linewidth=2, label="all")
    axes.set(title=title, xlabel="pass", ylabel="loss (mean over the pass)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.legend()
    file.parent.mkdir(parents=True, exist_ok=True)
    FigureCanvasAgg(figure)
    figure.savefig(file, format="png")

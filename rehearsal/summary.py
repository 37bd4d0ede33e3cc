"""The last screen: what was trained, how good it is, where everything lies and how long each part took."""

from __future__ import annotations

from pathlib import Path

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from rehearsal.output_tree import output_tree
from rehearsal.rehearse import Results
from rehearsal.screen import Phase

_ERRORS = frozenset({"rmse", "mse", "mae", "loss"})
"""Metrics of which less is better."""


def summary(results: Results, phases: list[Phase], seconds: float) -> RenderableType:
    """Everything to print after a rehearsal that went well."""
    folder = results.folder
    tree = output_tree(folder, results.job.program.folder, len(results.shards), _shown(folder.root))
    kept = [Text(f"kept  {resource}", style="dim") for resource in results.retained]
    return Group(Text(), tree, Text(), _records(results), Text(), *kept, _headline(results, phases, seconds))


def _records(results: Results) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("trainer", "records in its shard", "records it trained on", "its last loss"):
        table.add_column(column, justify="right", header_style="bold")
    last = results.passes[-1]
    for trainer, held in zip(last.trainers, results.shards, strict=True):
        table.add_row(
            str(trainer.trainer),
            f"{held:,}",
            f"{trainer.records:,} in each pass" + (f", {trainer.skipped:,} skipped" if trainer.skipped else ""),
            f"{trainer.loss:.4f}",
        )
    return table


def _headline(results: Results, phases: list[Phase], seconds: float) -> Panel:
    found = results.evaluation
    better = found.value < found.baseline if found.metric in _ERRORS else found.value > found.baseline
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(
        found.metric,
        Text.assemble(
            (f"{found.value:.3f}", "bold green" if better else "bold red"),
            f" on {found.records:,} rows that no trainer saw; {found.baseline_of}: {found.baseline:.3f}",
        ),
    )
    grid.add_row("loss", f"{results.passes[0].loss:.4f} -> {results.passes[-1].loss:.4f}, drawn in {_shown(results.plot)}")
    grid.add_row("time", ", ".join(f"{phase.name} {phase.seconds:.1f}" for phase in phases) + f": {seconds:.0f} s in all")
    kept = f", but for {len(results.retained)} resources that `retain: true` keeps" if results.retained else ""
    grid.add_row("account", f"as it was before the deploy{kept}")
    return Panel(grid, title=f"{results.job.name}: trained and gone again", border_style="green", title_align="left")


def _shown(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)

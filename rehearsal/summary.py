"""The last screen: what was trained, how good it is, where everything lies and how long each part took."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from rehearsal.rehearse import PaddleJobResults, Results, shown
from rehearsal.screen import Phase


def summary(results: Results | PaddleJobResults, phases: list[Phase], seconds: float) -> RenderableType:
    """Everything to print after a rehearsal that went well."""
    kept = [Text(f"kept  {resource}", style="dim") for resource in results.retained]
    if isinstance(results, PaddleJobResults):
        return Group(Text(), *kept, _panel(results, _paddle_job(results), phases, seconds))
    return Group(Text(), *kept, _panel(results, _job(results), phases, seconds))


_Rows = list[tuple[str, RenderableType]]


def _job(results: Results) -> _Rows:
    found = results.evaluation
    rest = f" on {found.records:,} rows that no trainer saw; {found.baseline_of}: {found.baseline:.3f}"
    losses = f"{results.passes[0].loss:.4f} -> {results.passes[-1].loss:.4f}, drawn in {shown(results.plot)}"
    files = f"in {shown(results.folder.root)}/ until the next rehearsal: paddle-aws status, logs, results, evaluate"
    return [(found.metric, _measured(found.value, found.better, rest)), ("loss", losses), ("files", files)]


def _paddle_job(results: PaddleJobResults) -> _Rows:
    logs: _Rows = [("logs", f"of each pod in {shown(results.logs)}/")]
    found = results.measured
    if found is None:
        return [("metric", "none: worker 0 printed no line of JSON with one"), *logs]
    rest = f" as worker 0 measured it; baseline: {found.baseline:.3f}"
    losses = f"{found.first_loss:.4f} -> {found.last_loss:.4f}"
    return [(found.metric, _measured(found.value, found.better, rest)), ("loss", losses), *logs]


def _measured(value: float, better: bool, rest: str) -> Text:
    return Text.assemble((f"{value:.3f}", "bold green" if better else "bold yellow"), rest)


def _panel(results: Results | PaddleJobResults, rows: _Rows, phases: list[Phase], seconds: float) -> Panel:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, what in rows:
        grid.add_row(name, what)
    grid.add_row("time", ", ".join(f"{phase.name} {phase.seconds:.1f}" for phase in phases) + f": {seconds:.0f} s in all")
    kept = f", but for {len(results.retained)} resources that `retain: true` keeps" if results.retained else ""
    grid.add_row("account", f"as it was before the deploy{kept}")
    found = results.measured if isinstance(results, PaddleJobResults) else results.evaluation
    useless = found is not None and not found.better
    title = "trained, but no better than a constant guess" if useless else "trained and gone again"
    style = "yellow" if useless else "green"
    return Panel(grid, title=f"{results.job.name}: {title}", border_style=style, title_align="left")

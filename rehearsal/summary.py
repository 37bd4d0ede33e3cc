"""What a rehearsal leaves to be shown: what was trained, how good it is, where everything lies and how long each part took."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from paddle_node.contract import JobFolder
from paddle_node.rendezvous.goodput import sentence
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from k8s_charts.spec import TrainingJob
from operations.commands.evaluate import Evaluation
from operations.commands.results import goodput
from operations.jobs.training_metrics import Pass
from rehearsal.inventory import Resource
from rehearsal.paddle_job import Measured
from rehearsal.screen import Phase


@dataclass(frozen=True)
class Results:
    """Of one rehearsal that went well."""

    job: TrainingJob
    rows: Mapping[str, str | Text]
    """What to say, by the word that it is about."""
    better: bool | None
    """Than a constant guess; None: nothing was measured."""
    retained: tuple[Resource, ...] = ()

    @classmethod
    def of_passes(cls, job: TrainingJob, folder: JobFolder, passes: Sequence[Pass], found: Evaluation) -> Self:
        """Of a program on our API."""
        rest = f" on {found.records:,} rows that no trainer saw; {found.baseline_of}: {found.baseline:.3f}"
        where = f"in {shown(folder.root)}/ until the next rehearsal"
        rows: dict[str, str | Text] = {
            found.metric: _measured(found.value, found.better, rest),
            "loss": f"{passes[0].loss:.4f} -> {passes[-1].loss:.4f}; `paddle-aws board` draws it",
            **_goodput(folder),
            "files": f"{where}: paddle-aws board, status, logs, results, evaluate",
        }
        return cls(job, rows, found.better)

    @classmethod
    def of_program(cls, job: TrainingJob, found: Measured | None, logs: Path, folder: JobFolder | None = None) -> Self:
        """Of any other program, whose output is known to itself alone."""
        where = {**_goodput(folder), "logs": f"of each pod in {shown(logs)}/"}
        if found is None:
            return cls(job, {"metric": "none: worker 0 printed no line of JSON with one", **where}, None)
        rows: dict[str, str | Text] = {
            found.metric: _measured(found.value, found.better, f" as worker 0 measured it; baseline: {found.baseline:.3f}"),
            "loss": f"{found.first_loss:.4f} -> {found.last_loss:.4f}",
        }
        return cls(job, rows | where, found.better)


def _goodput(folder: JobFolder | None) -> dict[str, str]:
    """Where the pods' time went, as the attempts' record says."""
    with suppress(OSError):
        found = goodput(json.loads((folder.run_state / "attempts.json").read_text())["attempts"], 1) if folder else None
        return {"time of pods": sentence(found["seconds"])} if found else {}
    return {}


def summary(results: Results, phases: Sequence[Phase], seconds: float) -> RenderableType:
    """Everything to print after a rehearsal that went well."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, what in results.rows.items():
        grid.add_row(name, what)
    grid.add_row("time", ", ".join(f"{phase.name} {phase.seconds:.1f}" for phase in phases) + f": {seconds:.0f} s in all")
    but = f", but for {len(results.retained)} resources that `retain: true` keeps" if results.retained else ""
    grid.add_row("account", f"as it was before the deploy{but}")
    useless = results.better is False
    title = "trained, but no better than a constant guess" if useless else "trained and gone again"
    style = "yellow" if useless else "green"
    panel = Panel(grid, title=f"{results.job.name}: {title}", border_style=style, title_align="left")
    return Group(Text(), *(Text(f"kept  {resource}", style="dim") for resource in results.retained), panel)


def shown(path: Path) -> str:
    """Relative to where the user is."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _measured(value: float, better: bool, rest: str) -> Text:
    return Text.assemble((f"{value:.3f}", "bold green" if better else "bold yellow"), rest)

"""The last screen: what was trained, how good it is, where everything lies and how long each part took."""

from __future__ import annotations

from pathlib import Path

from paddle_node.contract import JobFolder
from rich.console import Group, RenderableType
from rich.filesize import decimal
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from rehearsal.rehearse import PaddleJobResults, Results, shown
from rehearsal.screen import Phase


def summary(results: Results | PaddleJobResults, phases: list[Phase], seconds: float) -> RenderableType:
    """Everything to print after a rehearsal that went well."""
    kept = [Text(f"kept  {resource}", style="dim") for resource in results.retained]
    if isinstance(results, PaddleJobResults):
        return Group(Text(), *kept, _panel(results, _paddle_job(results), phases, seconds))
    folder = results.folder
    program = "programs" if results.job.program.archived else results.job.program.folder
    tree = output_tree(folder, program, len(results.shards), shown(folder.root))
    return Group(Text(), tree, Text(), _records(results), Text(), *kept, _panel(results, _job(results), phases, seconds))


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


_Rows = list[tuple[str, RenderableType]]


def _job(results: Results) -> _Rows:
    found = results.evaluation
    rest = f" on {found.records:,} rows that no trainer saw; {found.baseline_of}: {found.baseline:.3f}"
    losses = f"{results.passes[0].loss:.4f} -> {results.passes[-1].loss:.4f}, drawn in {shown(results.plot)}"
    return [(found.metric, _measured(found.value, found.better, rest)), ("loss", losses)]


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


def output_tree(folder: JobFolder, program: str, trainers: int, title: str) -> Tree:
    """A tree to print; `title` is its root's name."""
    tree = Tree(f"[bold]{escape(title)}/[/]", guide_style="dim")
    root = folder.root
    _folder(tree, root / program, "the training program")
    for trainer in range(trainers):
        _folder(tree, folder.shard(trainer), f"shard {trainer}", name=f"{trainer}/data")
    if folder.held_out.exists():
        _folder(tree, folder.held_out, "kept from training", name="held-out/data")
    if folder.splits.exists():
        _folder(tree, folder.splits, "where the shards lie; the folders above are links")
    _file(tree, folder.data_manifest, "the newest complete split")
    output = tree.add("[bold]output/[/]")
    for trainer in range(trainers):
        node = folder.node(trainer)
        names = " ".join(sorted(file.name for file in node.glob("*") if file.is_file()))
        output.add(f"[bold]{node.name}/[/] {escape(names)}")
    if attempts := sorted(folder.output.glob("attempts/*")):
        count = f"{len(attempts)} attempt{'s' if len(attempts) != 1 else ''}"
        output.add(f"[bold]attempts/[/] [dim]{count}:[/] where the passes lie, each in its attempt's folder")
    passes = sorted(entry for entry in folder.output.glob("pass-*") if entry.is_dir())
    for one in passes:
        complete = "complete" if (one / "done").exists() else "[red]incomplete[/]"
        _folder(output, one, complete)
    return tree


def _folder(tree: Tree, folder: Path, meaning: str, name: str = "") -> None:
    files = [file for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    size = decimal(sum(file.stat().st_size for file in files))
    count = f"{len(files)} file{'s' if len(files) != 1 else ''}"
    tree.add(f"[bold]{escape(name or folder.name)}/[/] [dim]{count}, {size}:[/] {meaning}")


def _file(tree: Tree, file: Path, meaning: str) -> None:
    size = decimal(file.stat().st_size) if file.exists() else "missing"
    tree.add(f"{escape(file.name)} [dim]{size}:[/] {meaning}")

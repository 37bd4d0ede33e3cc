"""How results look: tables that read well on a narrow terminal, without colour and in a pipe; JSON where a program reads.

Promises: in a pipe no line is broken or padded to a terminal's width; `--json` writes one document and nothing else to
stdout; what is said beside the results goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, for programs.")]
Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", help="Kubernetes namespace. Default: the job file's, else paddle.")
]
Context = Annotated[str | None, typer.Option(help="The kubeconfig's context. Default: the current one.")]

DEFAULT_NAMESPACE = "paddle"
_PIPE_WIDTH = 10_000

STYLES = {
    "done": "green",
    "ok": "green",
    "running": "cyan",
    "starting": "cyan",
    "waiting": "yellow",
    "warning": "yellow",
    "suspended": "yellow",
    "failed": "red",
    "problem": "red",
}


def console(stderr: bool = False) -> Any:
    """A rich console: as wide as the terminal, or as wide as its lines in a pipe."""
    from rich.console import Console

    width = None if on_a_terminal(stderr) else _PIPE_WIDTH
    return Console(stderr=stderr, highlight=False, width=width, emoji=False, markup=False)


def on_a_terminal(stderr: bool = False) -> bool:
    """Whether lines have a width that somebody sees."""
    return (sys.stderr if stderr else sys.stdout).isatty() or "COLUMNS" in os.environ


def has_braille() -> bool:
    """Whether what reads stdout can show more than ASCII."""
    return (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf")


def say(text: str) -> None:
    """A word beside the results."""
    typer.echo(text, err=True)


def as_json(document: object) -> None:
    """The one document of `--json`."""
    typer.echo(json.dumps(document, indent=2, default=str))


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[str] = (), folds: str | None = None) -> Any:
    """A table without lines; a cell that is a word of STYLES has its colour.

    The column `folds`, else the last one, takes what space is left and breaks its words; no other is ever cut. A column in which
    every cell is empty is left out.
    """
    from rich.table import Table
    from rich.text import Text

    found = [list(row) for row in rows]
    shown = [number for number in range(len(columns)) if not found or any(row[number] for row in found)]
    titled = any(column.strip() for column in columns)
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_header=titled)
    rights, breaking = set(right), folds or columns[-1]
    for number in shown:
        column = columns[number]
        widest = max([len(column), *(len(row[number]) for row in found)])
        made.add_column(
            column,
            justify="right" if column in rights else "left",
            overflow="fold",
            no_wrap=column != breaking,
            min_width=None if column == breaking else widest,
        )
    for row in found:
        made.add_row(*(Text(row[number], style=STYLES.get(row[number], "")) for number in shown))
    return made


def show(made: Any) -> None:
    """Prints a table; lines end with their last word."""
    screen = console()
    with screen.capture() as captured:
        screen.print(made)
    for line in captured.get().splitlines():
        typer.echo(line.rstrip())


def age(text: str | datetime | None) -> str:
    """How long ago, in one unit that people use."""
    if not text:
        return ""
    then = text if isinstance(text, datetime) else datetime.fromisoformat(text.replace("Z", "+00:00"))
    return span((datetime.now(UTC) - then).total_seconds())


def span(seconds: float | None) -> str:
    """A length of time: 42 s, 7 min, 3 h 5 min, 2 d 4 h."""
    if seconds is None:
        return ""
    seconds = max(0, round(seconds))
    if seconds < 90:
        return f"{seconds} s"
    minutes = seconds // 60
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"

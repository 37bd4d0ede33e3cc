"""How results look: tables that read well on a narrow terminal, without colour and in a pipe; JSON where a program reads.

Promises: in a pipe no line is broken or padded to a terminal's width; `--json` writes one document and nothing else to
stdout; what is said beside the results goes to stderr.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, for programs.")]
LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
"""A name of Kubernetes: of a namespace, of a job."""


def _namespace(text: str | None) -> str | None:
    if text is not None and not LABEL.fullmatch(text):
        raise typer.BadParameter(f"{text} is no namespace: lower-case letters, digits and dashes are allowed")
    return text


Namespace = Annotated[
    str | None,
    typer.Option("--namespace", "-n", callback=_namespace, help="Kubernetes namespace. Default: the job file's, else paddle."),
]
Context = Annotated[str | None, typer.Option(help="The kubeconfig's context. Default: the current one.")]

DEFAULT_NAMESPACE = "paddle"
_PIPE_WIDTH = 10_000
GAP = 2
"""Spaces between columns."""
READABLE, NAME = 24, 12
"""Columns that words which are broken need at least; the name of a row, which has to stand first, makes do with fewer."""

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


def of_job(name: str, namespace: str) -> str:
    """A job, as the commands that are proposed name it: they work from any folder."""
    return name if namespace == DEFAULT_NAMESPACE else f"{name} -n {namespace}"


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


def show(columns: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[str] = (), folds: str | None = None) -> None:
    """A table without lines; a cell that is a word of STYLES has its colour.

    The column `folds`, else the last one, takes what space is left and breaks its words. What finds no room beside the others
    stands below its row. Nothing is ever cut, and a column in which every cell is empty is left out.
    """
    from rich.text import Text

    found = [list(row) for row in rows]
    shown = [number for number in range(len(columns)) if not found or any(row[number] for row in found)]
    widest = {number: max(len(columns[number]), *(len(row[number]) for row in found), 0) for number in shown}
    breaking = columns.index(folds or columns[-1])
    screen = console()
    beside, room = [], screen.width
    for number in shown:
        # Each takes the space behind it too; of the last one it is no loss.
        least = min(widest[number], READABLE if number else NAME) if number == breaking else widest[number]
        if least <= room:
            beside.append(number)
            room -= least + GAP
    widths = {number: widest[number] for number in beside}
    if breaking in beside:
        others = sum(widest[number] + GAP for number in beside if number != breaking)
        widths[breaking] = min(widest[breaking], screen.width - others)

    rights = set(right)
    lines: list[Text] = []

    def add(cells: Mapping[int, str], style: str = "") -> None:
        parts = {
            number: Text(text, style=style or STYLES.get(text, "")).wrap(screen, widths[number]) for number, text in cells.items()
        }
        for height in range(max(map(len, parts.values()))):
            made = Text()
            for number in beside:
                part = parts[number][height] if height < len(parts[number]) else Text()
                part.rstrip()
                gap = " " * (widths[number] - part.cell_len)
                made.append_text(Text.assemble(gap, part) if columns[number] in rights else Text.assemble(part, gap))
                made.append(" " * GAP)
            lines.append(made)

    if any(columns[number].strip() for number in beside):
        add({number: columns[number] for number in beside}, "bold")
    for row in found:
        add({number: row[number] for number in beside})
        for number in shown:
            if number not in beside and row[number]:
                title = f"{columns[number]} " if number != breaking else ""
                lines += [
                    Text(" " * GAP).append_text(part) for part in Text(title + row[number]).wrap(screen, screen.width - GAP)
                ]
    with screen.capture() as captured:
        for one in lines:
            one.rstrip()
            screen.print(one, soft_wrap=True)
    typer.echo(captured.get(), nl=False)


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

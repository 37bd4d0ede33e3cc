"""Output: tables that read well on a narrow terminal, without colour and in a pipe; JSON for
programs.

In a pipe no line is wrapped or padded. `--json` prints one document to stdout; messages go to
stderr.
"""

import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import typer
from paddle_node.volume import progress

from paddle_settings.errors import ORDERS, visible

_PIPE_WIDTH = 10_000
_CONTROL = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\].*?(?:\x07|\x1b\\))|" + ORDERS)
GAP = 2
"""Spaces between columns."""
NARROW = 5
"""On a terminal that is too narrow, each column except the one that folds gets at most 1/NARROW of
the width.
"""

STYLES = {
    "done": "green",
    "ok": "green",
    "running": "cyan",
    "starting": "cyan",
    "waiting": "yellow",
    "warning": "yellow",
    "suspended": "yellow",
    "cancelled": "yellow",
    "failed": "red",
    "problem": "red",
}


def console(stderr: bool = False, **options: Any) -> Any:
    """A rich console that shows the orders of other people's text; in a pipe as wide as its lines.

    `options` are rich's.
    """
    from rich.console import Console
    from rich.segment import Segment

    class Visible(Console):
        def render(self, *arguments: Any) -> Iterable[Segment]:
            for text, style, control in super().render(*arguments):
                yield Segment(text if control else visible(text), style, control)

    plain = {"highlight": False, "emoji": False, "markup": False, "color_system": colours()}
    width = None if is_terminal(stderr) else _PIPE_WIDTH
    return Visible(stderr=stderr, **{"width": width, **plain, **options})


def colours() -> Literal["auto"] | None:
    """Returns the colour system for a rich console. On its own, rich drops only colours for
    NO_COLOR, and keeps bold and dim.
    """
    return None if os.environ.get("NO_COLOR") else "auto"


def is_terminal(stderr: bool = False) -> bool:
    """Returns whether the output goes to a terminal, or COLUMNS sets its width."""
    return (sys.stderr if stderr else sys.stdout).isatty() or "COLUMNS" in os.environ


def clean(text: str) -> str:
    """Removes what would move the cursor from a line; keeps the last state of a progress bar that
    rewrites its line.
    """
    return _CONTROL.sub("", text.rstrip("\r").rpartition("\r")[2])


def echo(text: object = "", nl: bool = True, err: bool = False) -> None:
    """Prints a result to stdout, as `typer.echo` does, with the orders in it as escapes."""
    typer.echo(visible(str(text)), nl=nl, err=err)


def say(text: str) -> None:
    """Prints a message to stderr, apart from the results."""
    echo(text, err=True)


def print_json(document: object) -> None:
    """Prints the one document of `--json`."""
    typer.echo(json.dumps(document, indent=2, default=str))


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    right: Iterable[str] = (),
    folds: str | None = None,
) -> None:
    """Prints a table without rules; a cell that is a key of STYLES gets its colour.

    On a narrow terminal the column `folds`, or else the last one, gets most of the width; words
    that do not fit are broken, nothing is cut off. A column in which every cell is empty is left
    out.
    """
    from rich.table import Table
    from rich.text import Text

    cells, screen = [list(row) for row in rows], console()
    table = Table(
        box=None, pad_edge=False, padding=(0, GAP, 0, 0), show_header=any(map(str.strip, columns))
    )
    every = range(len(columns))
    shown = [number for number in every if not cells or any(row[number] for row in cells)]
    for number in shown:
        side: Literal["left", "right"] = "right" if columns[number] in right else "left"
        table.add_column(columns[number], overflow="fold", justify=side)
    for row in cells:
        table.add_row(*(Text(row[number], STYLES.get(row[number], "")) for number in shown))
    unlimited = screen.options.update(width=_PIPE_WIDTH)
    if screen.measure(table, options=unlimited).maximum > screen.width:
        for column in table.columns:
            if column.header != (folds or columns[-1]):
                column.max_width = max(screen.width // NARROW, 1)
    with screen.capture() as captured:
        screen.print(table)
    typer.echo(re.sub(r" +$", "", captured.get(), flags=re.MULTILINE), nl=False)


def age(text: str | datetime | None) -> str:
    """Returns how long ago a time was, as `span` writes it; empty for no time."""
    if not text:
        return ""
    then = text if isinstance(text, datetime) else datetime.fromisoformat(text)
    return span((datetime.now(UTC) - then).total_seconds())


def span(seconds: float | None) -> str:
    """A length of time: 42 s, 7 min, 3 h 5 min, 2 d 4 h."""
    return "" if seconds is None else progress.span(seconds)

"""What a rehearsal shows while it runs: one line a phase, one line a pass, and what runs now at the bottom.

Promises: the lines are the same on a terminal and in a pipe, only the moving bottom is left out there; phases
may run side by side, and from any thread.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

_NAME_WIDTH = 10


class Phase:
    """A phase that runs: `now` moves at the bottom, `result` is what its finished line says."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.result = ""
        self.started = time.monotonic()
        self.seconds = 0.0
        self._now = ""
        self._spinner = Spinner("dots", style="cyan")

    def now(self, text: str) -> None:
        """What it is doing, for the moving line."""
        self._now = " ".join(text.split())

    def moving(self) -> RenderableType:
        """The line at the bottom while it runs."""
        row = _row()
        now = Text(self._now, style="dim", no_wrap=True, overflow="ellipsis")
        row.add_row(self._spinner, self.name, now, f"{time.monotonic() - self.started:.0f} s")
        return row


class Screen:
    """A console that rehearsals share; use it as a context manager."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.finished: list[Phase] = []
        self._running: list[Phase] = []
        self._lock = threading.Lock()
        self._live = Live(console=console, get_renderable=self._bottom, refresh_per_second=8, transient=True)

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.console.is_terminal:
            self._live.stop()

    def print(self, what: RenderableType) -> None:
        """Lasting lines above the moving ones."""
        self.console.print(what)

    def remark(self, text: str, style: str = "dim") -> None:
        """A lasting line that belongs to the phase that runs: it stands below the phases' results."""
        self.print(Padding(Text(text, style=style), (0, 0, 0, _NAME_WIDTH + 3), expand=False))

    def wait_for_enter(self, sentence: str) -> None:
        """Stand still until the user presses Enter; where nobody can, go on."""
        self.remark(sentence, style="bold")
        self.__exit__(None, None, None)
        try:
            sys.stdin.readline()
        finally:
            self.__enter__()

    @contextmanager
    def phase(self, name: str) -> Iterator[Phase]:
        """Time a phase and print its line when it ends; the line says so when it fails."""
        phase = Phase(name)
        with self._lock:
            self._running.append(phase)
        mark = "[red]✗[/]"
        try:
            yield phase
            mark = "[green]✓[/]"
        finally:
            phase.seconds = time.monotonic() - phase.started
            with self._lock:
                self._running.remove(phase)
                self.finished.append(phase)
            row = _row()
            row.add_row(mark, Text(name, style="bold"), Text(phase.result), Text(f"{phase.seconds:.1f} s", style="dim"))
            self.print(row)

    def _bottom(self) -> RenderableType:
        with self._lock:
            return Group(*(phase.moving() for phase in self._running))


def _row() -> Table:
    row = Table.grid(padding=(0, 1), expand=True)
    row.add_column(width=1)
    row.add_column(width=_NAME_WIDTH)
    row.add_column(ratio=1, overflow="fold")
    row.add_column(justify="right", no_wrap=True)
    return row

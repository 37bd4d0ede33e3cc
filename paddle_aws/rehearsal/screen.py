"""What a rehearsal shows while it runs: a line for each phase, a line for each pass or attempt, and
at the bottom the current activity and a table of the training's progress.

A pipe gets the same lasting lines as a terminal, and a line of progress every few seconds in place
of the moving bottom.
"""

import asyncio
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from paddle_node.volume import progress
from paddle_node.volume.job_folder import JobFolder
from paddle_node.volume.progress import Progress
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress import Progress as Bar
from rich.progress import SpinnerColumn, TextColumn
from rich.table import Column, Table
from rich.text import Text

from paddle_aws.operations.jobs.progress.training_table import TrainingTable
from paddle_aws.operations.jobs.volume.server import Folder
from paddle_aws.rehearsal.pods.job import ENDED, POLL_INTERVAL, Watcher
from paddle_aws.rehearsal.pods.pod import Pod, PodEnd

_NAME_WIDTH = 10
_INDENT = (0, 0, 0, _NAME_WIDTH + 3)
_AGENT = re.compile(r"\[agent (\d+)\]")
"""How a log names its rank: pods of a Job without indexes agree on theirs."""
_PROGRESS_INTERVAL = 5.0
"""Seconds between two lines of what a phase is doing, in a pipe."""


@dataclass
class Phase:
    """A phase of a rehearsal; `result` is the text of its final line."""

    name: str
    result: str = ""
    seconds: float = 0.0


class Screen:
    """A console that rehearsals share; use it as a context manager."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.finished: list[Phase] = []
        name, now, seconds = _columns()
        self._bottom = Bar(
            SpinnerColumn("dots", style="cyan"),
            TextColumn("{task.description}", markup=False, table_column=name),
            TextColumn("{task.fields[now]}", style="dim", markup=False, table_column=now),
            TextColumn("{task.elapsed:.0f} s", table_column=seconds),
            console=console,
            expand=True,
        )
        self._table: RenderableType | None = None
        self._next_activity = 0.0
        self._live = Live(
            console=console,
            transient=True,
            refresh_per_second=8,
            get_renderable=self._moving_part,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def _moving_part(self) -> RenderableType:
        return Group(self._bottom, *([self._table] if self._table is not None else []))

    def progress(self, progress: Progress | None, lost: int) -> None:
        """Shows a training's progress in the moving table; None removes the table. `lost`: pods
        that failed so far.
        """
        if progress is None:
            self._table = None
            return
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
        rows = {
            "ATTEMPT": str(progress.attempt),
            "STEP": "-" if progress.step is None else f"{progress.step:,}",
            "LOSS": "-" if progress.loss is None else f"{progress.loss:.4f}",
            "STEPS/S": f"{progress.steps_per_second:.1f}" if progress.steps_per_second else "-",
            "LOST PODS": str(lost),
            "LAST ATTEMPT ENDED": progress.last_end or "-",
        }
        *numbers, reason = rows
        for name in numbers:
            table.add_column(name, no_wrap=True, min_width=len(name))
        table.add_column(reason, no_wrap=True, overflow="ellipsis")
        table.add_row(*(Text(value) for value in rows.values()))
        self._table = Padding(table, _INDENT)

    def show_activity(self, text: str) -> None:
        """Shows what the phase is doing: on the moving line, or in a pipe now and then on one of
        its own.
        """
        activity = " ".join(text.split())
        for task in self._bottom.task_ids:
            self._bottom.update(task, now=activity)
        if not self.console.is_terminal and time.monotonic() >= self._next_activity:
            self._next_activity = time.monotonic() + _PROGRESS_INTERVAL
            self.remark(activity)

    def remark(self, text: str, style: str = "dim") -> None:
        """Prints a lasting line for the running phase, indented to the column of the phases'
        results.
        """
        self.console.print(Padding(Text(text, style=style), _INDENT, expand=False))

    @contextmanager
    def phase(self, name: str) -> Iterator[Phase]:
        """Times a phase and prints its line when it ends; the line shows whether it failed."""
        task, started = self._bottom.add_task(name, total=None, now=""), time.monotonic()
        self._next_activity = started + _PROGRESS_INTERVAL
        phase = Phase(name)
        mark = "[red]✗[/]"
        try:
            yield phase
            mark = "[green]✓[/]"
        finally:
            phase.seconds = time.monotonic() - started
            self._bottom.remove_task(task)
            self.finished.append(phase)
            row = Table.grid(
                Column(width=1), *_columns(overflow="fold"), padding=(0, 1), expand=True
            )
            seconds = Text(f"{phase.seconds:.1f} s", style="dim")
            row.add_row(mark, Text(name, style="bold"), Text(phase.result), seconds)
            self.console.print(row)


def _columns(overflow: Literal["fold", "ellipsis"] = "ellipsis") -> tuple[Column, Column, Column]:
    """The columns for a phase's name, what it does or did, and its seconds."""
    what = Column(ratio=1, overflow=overflow, no_wrap=overflow == "ellipsis")
    return Column(width=_NAME_WIDTH), what, Column(justify="right", no_wrap=True)


class PodScreen(Watcher):
    """A watcher that shows a Job's pods: starts on the moving line, failures in lasting lines."""

    def __init__(self, screen: Screen) -> None:
        self.screen = screen
        self.lost = 0

    def pod_started(self, pod: Pod, index: int | None) -> None:
        self.screen.show_activity(f"{pod.facts.name} starts at {pod.facts.address}")

    def pod_ended(self, pod: Pod, index: int | None, end: PodEnd, verdict: str) -> None:
        if not end.succeeded:
            self.lost += verdict != ENDED
            codes = ", ".join(map(str, end.codes.values()))
            words = f"pod {pod.facts.name} ended with code {codes}: {verdict}"
            self.screen.remark(words, style="yellow")


class TrainingScreen(PodScreen):
    """A watcher of the training Job that also shows its attempts, its progress and, if the program
    reports any, its passes.
    """

    def __init__(self, screen: Screen, folder: JobFolder) -> None:
        """`folder` is the job's folder on the volume."""
        super().__init__(screen)
        self.table = TrainingTable(screen.remark, screen.show_activity)
        self._volume = Folder(folder.root)
        self._logs: dict[Path, int] = {}
        """Each log's rank."""
        self._read_to: dict[Path, int] = {}
        self._restarts: dict[str, Pod] = {}
        self._line, self._line_due = "", time.monotonic() + _PROGRESS_INTERVAL

    def pod_started(self, pod: Pod, index: int | None) -> None:
        super().pod_started(pod, index)
        self._logs[pod.log(pod.template.containers[0].name)] = index or 0
        self._restarts[pod.facts.name] = pod

    async def follow(self) -> None:
        try:
            while True:
                self.show()
                await asyncio.sleep(POLL_INTERVAL)
        finally:
            self.show()
            self.screen.progress(None, 0)

    def show(self) -> None:
        """Shows what the pods wrote since the previous call, and their progress."""
        for log, rank in list(self._logs.items()):
            with suppress(FileNotFoundError), log.open("rb") as file:
                file.seek(self._read_to.get(log, 0))
                whole, end, _ = file.read().rpartition(b"\n")
                self._read_to[log] = self._read_to.get(log, 0) + len(whole + end)
                for line in whole.decode(errors="replace").splitlines():
                    if agent := _AGENT.match(line):
                        rank = self._logs[log] = int(agent[1])
                    self.table.hear(rank, line)
        lost = self.lost + sum(pod.restarts for pod in self._restarts.values())
        far, passes = progress.read(self._volume.read), self.table.passes.complete
        self.screen.progress(far, lost)
        if not self.screen.console.is_terminal and time.monotonic() > self._line_due:
            self._line_due = time.monotonic() + _PROGRESS_INTERVAL
            pods = f", {lost} pods lost" if lost else ""
            # Passes have rows of their own.
            started = far is not None and far.step is not None and not passes
            if started and (line := f"{far}{pods}") != self._line:
                self._line = line
                self.screen.remark(line)

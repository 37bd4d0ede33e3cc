"""Training as it goes: a row for each pass, the supervisors' own words, and the pod that was lost or replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

from paddle_node.contract import JobFolder

from operations.training_metrics import Pass, passes
from operations.training_table import TrainingTable
from rehearsal.pods.pod import Pod, PodEnd
from rehearsal.screen import Phase, Screen


class TrainingProgress:
    """What `trainers` trainers have reported so far in `folder`."""

    def __init__(self, folder: JobFolder, trainers: int) -> None:
        self._folder, self._trainers = folder, trainers
        self._metrics = dict.fromkeys(range(trainers), "")
        self.passes: dict[int, Pass] = {}

    def read(self) -> list[Pass]:
        """The passes that became complete, or were trained again, since the last call."""
        for trainer in self._metrics:
            file = self._folder.metrics(trainer)
            self._metrics[trainer] = file.read_text() if file.exists() else ""
        new = [one for one in passes(self._metrics) if self.passes.get(one.number) != one]
        self.passes |= {one.number: one for one in new}
        return new

    @property
    def waiting_for(self) -> str:
        """How far the training is, in words."""
        if not any(self._metrics.values()):
            return "pods are starting, pservers and trainers meet"
        return f"pass {max(self.passes, default=-1) + 1} of {self._trainers} trainers"


class PodScreen:
    """A watcher that says what happens to a Job's pods: starts on the moving line, failures in lines that stay."""

    def __init__(self, phase: Phase, screen: Screen) -> None:
        self.phase, self.screen = phase, screen

    def pod_started(self, pod: Pod, index: int | None) -> None:
        self.phase.now(f"{pod.facts.name} starts at {pod.facts.address}")

    def pod_ended(self, pod: Pod, index: int | None, end: PodEnd, verdict: str) -> None:
        if not end.succeeded:
            codes = ", ".join(str(code) for code in end.codes.values())
            self.screen.remark(f"pod {pod.facts.name} ended with code {codes}: {verdict}", style="yellow")


class TrainingScreen(PodScreen):
    """A watcher of the training Job that shows its passes as well, for as long as `follow()` runs."""

    def __init__(self, phase: Phase, screen: Screen, progress: TrainingProgress) -> None:
        super().__init__(phase, screen)
        self._progress = progress
        self._logs: list[Path] = []
        self._read_to: dict[Path, int] = {}
        self._table = TrainingTable(screen.remark)

    def pod_started(self, pod: Pod, index: int | None) -> None:
        super().pod_started(pod, index)
        if index == 0:
            self._logs.append(pod.log(pod.template.containers[0].name))

    async def follow(self) -> None:
        """Show what is new, again and again, until cancelled."""
        while True:
            self.show()
            self.phase.now(self._progress.waiting_for)
            await asyncio.sleep(0.2)

    def show(self) -> None:
        """Show what is new."""
        for one in self._progress.read():
            self._table.passed(one)
        for line in self._new_lines():
            self._table.said(line)

    def _new_lines(self) -> Iterator[str]:
        """What the first pod, whose supervisor speaks for all, wrote since the last look."""
        for log in self._logs:
            try:
                with log.open("rb") as file:
                    file.seek(self._read_to.get(log, 0))
                    text = file.read()
            except FileNotFoundError:
                continue
            whole = text[: text.rfind(b"\n") + 1]
            self._read_to[log] = self._read_to.get(log, 0) + len(whole)
            yield from whole.decode(errors="replace").splitlines()


def outcome(passes: Sequence[Pass], trainers: int, retries: int) -> str:
    """A finished training in one line."""
    replaced = f", {_count(retries, 'pod')} replaced" if retries else ""
    done = f"{_count(len(passes), 'pass', 'es')} by {_count(trainers, 'trainer')}"
    return f"{done}, loss {passes[0].loss:.3f} -> {passes[-1].loss:.3f}{replaced}"


def _count(number: int, what: str, more: str = "s") -> str:
    return f"{number} {what}{'' if number == 1 else more}"

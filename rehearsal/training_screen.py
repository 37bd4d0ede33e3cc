"""Training as it goes: a row for each pass, the agents' own words, and the pod that was lost or replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from operations.training_metrics import Pass
from operations.training_table import TrainingTable
from rehearsal.pods.job import Watcher
from rehearsal.pods.pod import Pod, PodEnd
from rehearsal.screen import Phase, Screen


class PodScreen(Watcher):
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

    def __init__(self, phase: Phase, screen: Screen) -> None:
        super().__init__(phase, screen)
        self.table = TrainingTable(screen.remark, phase.now)
        self._logs: dict[Path, int] = {}
        """Whose they are, by rank."""
        self._read_to: dict[Path, int] = {}

    def pod_started(self, pod: Pod, index: int | None) -> None:
        super().pod_started(pod, index)
        self._logs[pod.log(pod.template.containers[0].name)] = index or 0

    async def follow(self) -> None:
        """Show what is new, again and again, until cancelled."""
        while True:
            self.show()
            await asyncio.sleep(0.2)

    def show(self) -> None:
        """Show what the pods wrote since the last look."""
        for log, rank in list(self._logs.items()):
            with suppress(FileNotFoundError), log.open("rb") as file:
                file.seek(self._read_to.get(log, 0))
                whole, end, _ = file.read().rpartition(b"\n")
                self._read_to[log] = self._read_to.get(log, 0) + len(whole + end)
                for line in whole.decode(errors="replace").splitlines():
                    self.table.hear(rank, line)


def outcome(passes: Sequence[Pass], trainers: int, retries: int) -> str:
    """A finished training in one line."""
    replaced = f", {_count(retries, 'pod')} replaced" if retries else ""
    done = f"{_count(len(passes), 'pass', 'es')} by {_count(trainers, 'trainer')}"
    return f"{done}, loss {passes[0].loss:.3f} -> {passes[-1].loss:.3f}{replaced}"


def _count(number: int, what: str, more: str = "s") -> str:
    return f"{number} {what}{'' if number == 1 else more}"

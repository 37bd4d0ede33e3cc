"""The summary of a rehearsal: what it trained, how good the model is, where its files are and how
long each part took.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from paddle_node.volume.attempts import file_of, parse
from paddle_node.volume.job_folder import JobFolder
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from k8s_charts.spec import TrainingJob
from paddle_aws.operations.jobs.evaluation import Evaluation
from paddle_aws.operations.jobs.objects.paddle_noise import is_noise
from paddle_aws.operations.jobs.progress.run_record import doubts_of, goodput_of
from paddle_aws.operations.jobs.progress.training_metrics import Pass
from paddle_aws.operations.screen import clean
from paddle_aws.rehearsal.account import Resource
from paddle_aws.rehearsal.pods.job import last_lines
from paddle_aws.rehearsal.screen import Phase

_PRINTED = 5
"""Lines of a program's output that a summary repeats."""
_SEARCHED = 1000
"""Last lines of a log to search for them: Paddle prints much as it ends."""


@dataclass(frozen=True)
class Results:
    """The results of a successful rehearsal."""

    job: TrainingJob
    rows: Mapping[str, str | Text]
    """The summary's texts, by label."""
    better: bool = True
    """Whether the model beats a constant guess; True if the model was not measured."""
    retained: tuple[Resource, ...] = ()
    measured: Mapping[str, float] = field(default_factory=dict)
    """The metric on held-out records, by its name."""

    @classmethod
    def from_passes(
        cls,
        job: TrainingJob,
        folder: JobFolder,
        passes: Sequence[Pass],
        evaluation: Evaluation | None,
    ) -> Self:
        """The results of a program on our API; `evaluation` is None where no record was held
        out.
        """
        metric: str | Text = "nothing was held out (data.hold_out), so nothing was measured"
        name, better, measured = "metric", True, {}
        if evaluation is not None:
            name, better = evaluation.metric, evaluation.better
            measured = {name: evaluation.value}
            metric = Text.assemble(
                (f"{evaluation.value:.3f}", "bold green" if better else "bold yellow"),
                f" on {evaluation.records:,} rows that no trainer saw; "
                f"{evaluation.baseline_of}: {evaluation.baseline:.3f}",
            )
        where = f"in {shorten_path(folder.root)}/ until the next rehearsal"
        rows: dict[str, str | Text] = {
            name: metric,
            "loss": f"{passes[0].loss:.4f} -> {passes[-1].loss:.4f}; `paddle-aws board` draws it",
            **_record(folder),
            "files": f"{where}: paddle-aws board, status, logs, results, evaluate",
        }
        return cls(job, rows, better, measured=measured)

    @classmethod
    def from_program(
        cls, job: TrainingJob, log: Path, logs: Path, folder: JobFolder | None = None
    ) -> Self:
        """The results of any other program, by its last output, which may be a measurement. `log`
        is worker 0's.
        """
        lines = last_lines(log, _SEARCHED).splitlines()
        lines = [line for line in lines if not is_noise(line)][-_PRINTED:]
        printed = Text("\n".join(map(clean, lines)) or "nothing")
        places = f"{shorten_path(log)}; of each pod in {shorten_path(logs)}/"
        return cls(job, {"printed": printed, **_record(folder), "logs": places})


def _record(folder: JobFolder | None) -> dict[str, str]:
    """Rows from the attempts' record: doubts, and where the pods' time went."""
    rows: dict[str, str] = {}
    with suppress(OSError, ValueError):
        if folder:
            record = parse(file_of(folder).read_text())
            rows |= {"but": doubts} if (doubts := doubts_of(record)) else {}
            rows |= {"time of pods": str(goodput)} if (goodput := goodput_of(record)) else {}
    return rows


def summary(results: Results, phases: Sequence[Phase], seconds: float) -> RenderableType:
    """Everything to print after a successful rehearsal."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in results.rows.items():
        grid.add_row(label, text)
    times = ", ".join(f"{phase.name} {phase.seconds:.1f}" for phase in phases)
    grid.add_row("time", f"{times}: {seconds:.0f} s in all")
    title, style, retained = "trained", "green", results.retained
    if any(phase.name == "destroy" for phase in phases):
        but = f", but for {len(retained)} resources that `retain: true` keeps" if retained else ""
        grid.add_row("account", f"as it was before the deploy{but}")
        title = "trained and gone again"
    if not results.better:
        title, style = "trained, but no better than a constant guess", "yellow"
    title = f"{results.job.name}: {title}"
    panel = Panel(grid, title=title, border_style=style, title_align="left")
    return Group(Text(), *(Text(f"kept  {resource}", style="dim") for resource in retained), panel)


def count(number: int, noun: str, plural: str = "s") -> str:
    """Returns a number of things: `1 run`, `2 runs`."""
    return f"{number} {noun}{'' if number == 1 else plural}"


def shorten_path(path: Path) -> str:
    """The path relative to the current directory, if it lies below that."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)

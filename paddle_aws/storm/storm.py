"""A whole storm: calm runs, runs with faults, a verdict on each, and the fewest faults that make a
failing run fail.
"""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from paddle_node.volume.steps import one_line

from paddle_aws.operations.errors import BadInput, Failed
from paddle_aws.operations.jobs.job_source import JobSource
from paddle_aws.operations.jobs.rehearsal_backend import CANCEL
from paddle_aws.operations.screen import console
from paddle_aws.rehearsal.__main__ import check_folder
from paddle_aws.rehearsal.folder import RehearsalFolder
from paddle_aws.rehearsal.local_account import LocalAccount
from paddle_aws.rehearsal.rehearse import Rehearsal
from paddle_aws.rehearsal.screen import Screen
from paddle_aws.rehearsal.summary import count, shorten_path
from paddle_aws.storm.calm_runs import CalmRuns
from paddle_aws.storm.faults import KINDS, Fault, draw
from paddle_aws.storm.supervisor import StormSupervisor
from paddle_aws.storm.trace import Trace
from paddle_aws.storm.verdict import Calm, Verdict, judge

FOLDER, RECEIPT = Path(".storm"), "receipt.json"
CALM = 2
"""Runs without faults, by default."""
_SHORTEST_SILENCE, _SILENCE_FACTOR = 60.0, 5.0
"""Seconds without an event after which a run counts as hanging: at least the first, and so many
times the longest silence of a calm run more.
"""
_SHORTEST_STALL, _STALL_FACTOR = 45.0, 3.0
"""The same for a pod that counts as stalled, so that a hanging rank ends its attempt before."""
_LONGEST_REASON = 400
"""Characters."""
_SHRINKING = 10
"""Most runs that the search for the fewest faults may take."""
Item = TypeVar("Item")


@dataclass(frozen=True)
class Plan:
    """The options of a storm."""

    seed: int
    kinds: Sequence[str]
    schedule: Sequence[Fault]
    """A given schedule; empty: it is drawn."""
    runs: int
    calm: int
    shrink: bool
    fresh: bool
    """Run the calm runs even if a receipt has them."""

    @classmethod
    def from_options(
        cls, seed: int, faults: str, runs: int | None, calm: int, *, shrink: bool, fresh: bool
    ) -> "Plan":
        """Reads the options. Raises BadInput."""
        words = [word.strip() for word in faults.split(",") if word.strip()]
        if faults and not words:
            raise BadInput(
                f"--faults is {faults!r}: a kind, such as kill-rank, or a whole fault is needed"
            )
        whole = [Fault.parse(word) for word in words if word not in KINDS]
        if whole and len(whole) < len(words):
            kind = next(word for word in words if word in KINDS)
            raise BadInput(
                f"--faults has the kind {kind} beside a whole fault: name kinds to draw from, or "
                "whole faults, which are one run's schedule"
            )
        number = runs if runs is not None else 1 if whole else 5
        kinds = [] if whole else words or list(KINDS)
        return cls(seed, kinds, whole, number, calm, shrink, fresh)


@dataclass
class RecordedRun:
    """One run, as the receipt has it."""

    name: str
    schedule: tuple[Fault, ...]
    trace: Trace
    verdict: Verdict
    shrunk: tuple[Fault, ...] = ()
    """The fewest faults with which it still fails in the same way; empty: not looked for."""


class Storm:
    """The runs of a job. `run()` makes them."""

    def __init__(
        self,
        project: Path,
        source: JobSource,
        plan: Plan,
        say: Callable[[str], None],
        folder: Path = FOLDER,
    ) -> None:
        """Checks the job and the plan; `folder` gets each run's lines. Raises BadInput for a job
        that no storm can run.
        """
        self.project, self.source, self.plan, self.say = project, source, plan, say
        self.folder = folder
        self.job = source.load(fetch=True)
        check_folder(self.job)
        if not self.job.has_agent:
            raise BadInput(
                f"controller is {self.job.controller}: its operator's pods have no agent, which a "
                "storm needs to know each process; use `controller: job`"
            )
        if self.job.way.old:
            raise BadInput(
                "runtime is paddle-0.x: such a Paddle is in your image alone, and a storm runs "
                "what is on this machine; move the program to Paddle 2.6 (docs/migrate-from-0.x.md)"
            )
        ranks = self.job.trainers * self.job.chosen_processes
        for fault in plan.schedule:
            if fault.rank >= ranks:
                raise BadInput(f"--faults has {fault}: the job's ranks are 0 to {ranks - 1}")
        self._program: Path | None = None
        self._digests = self._rehearsal(None).digests()
        self.kept = CalmRuns.read(folder / RECEIPT)
        """The calm runs that later storms of the same job can take: the newest; None: none can."""
        self.takes = (
            not plan.fresh
            and self.kept is not None
            and dict(self.kept.digests) == self._digests
            and len(self.kept.traces) >= count_calm(self.kept.traces, plan.calm)
        )
        """Whether this storm reuses them and runs none."""
        self.calm = Calm([])
        self.runs: list[RecordedRun] = []
        self._said: set[str] = set()
        self.state = "running"
        """In the end `done`, `interrupted`, or `failed`: the job failed without a fault."""

    @property
    def calm_runs(self) -> list[RecordedRun]:
        """The undisturbed runs."""
        return [
            RecordedRun(f"calm-{number}", (), trace, judge(trace, self.calm))
            for number, trace in enumerate(self.calm.traces, 1)
        ]

    def run(self, rehearsals: RehearsalFolder, record: Callable[[], object]) -> None:
        """Makes all runs in `rehearsals`, and calls `record` after the calm ones and after each
        other. Raises Failed for a program that fails without any fault, and KeyboardInterrupt, with
        the runs that ended before.
        """
        try:
            self._run(rehearsals, record)
            self.state = "done"
        except (KeyboardInterrupt, Failed) as error:
            self.state = "failed" if isinstance(error, Failed) else "interrupted"
            raise

    def _run(self, rehearsals: RehearsalFolder, record: Callable[[], object]) -> None:
        if (archive := self.job.program.archive) is not None:
            # Written once for all runs, so that an edit of the program meanwhile makes no run
            # differ.
            self._program = self.folder / "program.tar"
            archive.write(self._program)
        if self.takes and self.kept is not None:
            self._take(self.kept)
        else:
            self._run_calm(rehearsals)
        self.say(describe_calm(self.calm))
        record()
        named = bool(self.plan.schedule)
        for number in range(1, self.plan.runs + 1):
            name, schedule = f"run-{number}", self._schedule(number)
            trace = self._run_once(rehearsals, name, schedule, self._hang_silence)
            run = RecordedRun(name, schedule, trace, judge(trace, self.calm, named=named))
            self.runs.append(run)
            self.say("\n".join(_run_lines(run, self.calm, named=named)))
            if run.verdict.findings and self.plan.shrink and len(run.schedule) > 1:
                self._shrink(rehearsals, run)
            record()

    def _take(self, kept: CalmRuns) -> None:
        self.calm = Calm(kept.traces)
        names = ", ".join(run.name for run in self.calm_runs)
        self.say(
            f"{names}: as in {shorten_path(self.folder / RECEIPT)} of {kept.ran:%Y-%m-%d %H:%M} UTC"
        )

    def _run_calm(self, rehearsals: RehearsalFolder) -> None:
        while len(self.calm.traces) < count_calm(self.calm.traces, self.plan.calm):
            name = f"calm-{len(self.calm.traces) + 1}"
            trace = self._run_once(rehearsals, name, (), 10 * _SHORTEST_SILENCE)
            if not trace.succeeded:
                raise Failed(
                    f"the job fails without any fault ({trace.reason}): mend that first; "
                    f"{self.folder}/{name}.txt has the rehearsal"
                )
            self.calm = Calm([*self.calm.traces, trace])
        if self.kept is not None and self._digests is not None and not self.plan.fresh:
            # Not earlier: what it is said to may be a file in the program's folder.
            of = shorten_path(self.folder / RECEIPT)
            why = _list_changed(self.kept.digests, self._digests)
            why = f"{why} changed since" if why else f"{len(self.kept.traces)} are in"
            self.say(f"undisturbed runs were run again: {why} {of}")
        for run in self.calm_runs:
            self.say(_calm_line(run, self.calm))
        before, digests = self._digests, self._rehearsal(None).digests()
        # The first run may install the program's requirements; nothing else may have changed.
        same = before and digests and digests == {**before, "python": digests["python"]}
        if before and digests and not same:
            self.say(
                f"         {_list_changed(before, digests)} changed meanwhile: the next storm runs "
                "them again"
            )
        elif digests and all(run.verdict.passed for run in self.calm_runs):
            now = datetime.now(UTC).replace(microsecond=0)
            self.kept = CalmRuns(now, digests, self.calm.traces)

    @property
    def failed(self) -> list[RecordedRun]:
        """The runs with findings, calm ones included."""
        return [run for run in (*self.calm_runs, *self.runs) if not run.verdict.passed]

    def replay(self, run: RecordedRun) -> str:
        """Returns the command that runs a run's faults again."""
        faults = ",".join(map(str, run.shrunk or run.schedule))
        words = ["paddle-aws", "storm", shorten_path(self.source.file), *self.source.words()]
        words += ["--calm", str(self.plan.calm)] if self.plan.calm != CALM else []
        return shlex.join([*words, "--faults", faults])

    @property
    def stall(self) -> int:
        """Seconds without output after which a pod of a run with faults counts as stalled."""
        return round(max(_SHORTEST_STALL, _STALL_FACTOR * self.calm.silence))

    @property
    def _hang_silence(self) -> float:
        return max(_SHORTEST_SILENCE, 2.0 * self.stall, _SILENCE_FACTOR * self.calm.silence)

    def _schedule(self, number: int) -> tuple[Fault, ...]:
        if self.plan.schedule:
            return tuple(self.plan.schedule)
        return draw(self.plan.seed, number, self.plan.kinds, self.calm.opportunities)

    def _rehearsal(self, supervisor: StormSupervisor | None) -> Rehearsal:
        account = LocalAccount(self.job, Path("outputs.json"), Path("image.json"))
        return Rehearsal(
            self.project,
            self.job,
            self.source.file,
            account,
            supervisor=supervisor,
            program=self._program,
            say_ports=self._say_ports,
        )

    def _say_ports(self, sentence: str) -> None:
        if sentence not in self._said:
            self._said.add(sentence)
            self.say(sentence)

    def _run_once(
        self, rehearsals: RehearsalFolder, name: str, schedule: Sequence[Fault], silence: float
    ) -> Trace:
        """Runs the job once, and writes its lines to a file."""
        supervisor = StormSupervisor(
            schedule,
            self.job.metrics or {},
            processes=self.job.chosen_processes,
            silence=silence,
            stall=self.stall if schedule else None,
            last_step=max(self.calm.steps, default=None),
            cancel=rehearsals.path / CANCEL,
        )
        trace = supervisor.trace
        with (self.folder / f"{name}.txt").open("w", errors="replace") as file:
            screen = console(file=file, width=100, markup=True, color_system=None)
            try:
                with Screen(screen) as shown:
                    results = self._rehearsal(supervisor).run(
                        rehearsals, shown, trial_first=not self.calm.traces
                    )
                trace.succeeded = True
                trace.last = {**trace.last, **results.measured}
            except Failed as error:
                sentence, *_, end = f"{error}\n{error}".splitlines()
                reason = f"{sentence.partition('; the end of ')[0]}: {end}"
                trace.reason = one_line(reason)[:_LONGEST_REASON]
                if not trace.events and supervisor.error is None:
                    raise
            finally:
                file.write("\n".join(["", *trace.lines, ""]))
        if supervisor.error is not None:
            raise Failed(
                f"the storm could not read what the program did ({supervisor.error!r:.200}), a "
                f"mistake of ours: please report it with {shorten_path(self.folder)}/{name}.txt"
            )
        return trace

    def _shrink(self, rehearsals: RehearsalFolder, run: RecordedRun) -> None:
        """Looks for the fewest faults with which the run fails in the same way."""
        symptoms = {finding.symptom for finding in run.verdict.findings}
        met = {inflicted.fault for _, inflicted in run.trace.came}
        tries = 0

        def fails(faults: Sequence[Fault]) -> bool:
            nonlocal tries
            tries += 1
            name = f"{run.name}-shrink-{tries}"
            trace = self._run_once(rehearsals, name, faults, self._hang_silence)
            verdict = judge(trace, self.calm)
            return any(finding.symptom in symptoms for finding in verdict.findings)

        if not (schedule := [fault for fault in run.schedule if fault in met]):
            return  # It fails without any fault.
        run.shrunk = tuple(find_fewest(schedule, fails, _SHRINKING))
        self.say(
            f"         {len(run.shrunk)} of its faults {'is' if len(run.shrunk) == 1 else 'are'} "
            f"enough, found in {count(tries, 'run')}: {self.replay(run)}"
        )


def _list_changed(digests: Mapping[str, str], others: Mapping[str, str]) -> str:
    return ", ".join(name for name in others if digests.get(name) != others[name])


def count_calm(traces: Sequence[Trace], least: int) -> int:
    """Returns how many calm runs there shall be: `least`, or twice as many if these differ, because
    a few show little of how far apart they may lie.
    """
    return least if len(traces) < least or Calm(traces).has_equal_values else least * 2


def find_fewest(
    items: Sequence[Item], fails: Callable[[Sequence[Item]], bool], most: int
) -> Sequence[Item]:
    """Returns a part of `items`, in order, for which `fails` still returns True, after at most
    `most` tries: halves first, then smaller parts left out (delta debugging, Zeller 1999).
    """
    parts, tries = 2, 0
    while len(items) > 1:
        size = -(-len(items) // parts)
        chunks = [items[at : at + size] for at in range(0, len(items), size)]
        rests = [
            [item for other in chunks if other is not chunk for item in other] for chunk in chunks
        ]
        for candidate in chunks if parts == 2 else [*chunks, *rests]:
            if tries == most:
                return items
            tries += 1
            if fails(candidate):
                items, parts = candidate, 2
                break
        else:
            if parts >= len(items):
                return items
            parts = min(len(items), parts * 2)
    return items


def _calm_line(run: RecordedRun, calm: Calm) -> str:
    steps = run.trace.steps()
    number = count(len(steps), "step") if steps else "no step reported"
    result = ", ".join(
        f"{name} {value:g}" for name, value in run.trace.last.items() if name in calm.last
    )
    words = f"{run.name:8} {run.trace.seconds:5.1f} s  {number}{f'; {result}' if result else ''}"
    if run.trace.attempts > 1:
        words += f"; {run.trace.attempts} attempts, though nothing was done to it"
    if run.verdict.findings:
        words += f"\n         ✗ {run.verdict.findings[0].sentence}"
    return words


def describe_calm(calm: Calm) -> str:
    """Returns the line on what other runs are compared with."""
    if not calm.steps:
        return (
            "         no line reports a step, so faults come only at starts and files: set "
            "metrics.step in the job file"
        )
    if not calm.compares:
        return (
            "         undisturbed runs have no metric and no file that can be compared: other runs "
            "are judged by their end and steps alone; set metrics in the job file"
        )
    if names := ", ".join(calm.too_different):
        names = f"; by over a quarter in {names}, which is not compared"
    if calm.equal and not names:
        return "         undisturbed runs are exactly equal, and so must every other be"
    return f"         undisturbed runs differ: other runs may lie a few times as far apart{names}"


def _run_lines(run: RecordedRun, calm: Calm, *, named: bool) -> list[str]:
    verdict, trace = run.verdict, run.trace
    words = (
        f"{run.name:8} {trace.seconds:5.1f} s  {len(trace.came)} of "
        f"{count(len(run.schedule), 'fault')}, {count(trace.attempts, 'attempt')}, "
        f"{count(verdict.repeated, 'step')} done again, longest silence "
        f"{trace.longest_silence:.0f} s: {calm.words_for_success if verdict.passed else 'DIFFERS'}"
    )
    lines = [words]
    late = [str(fault.fault) for fault in trace.inflicted if fault.seconds is None]
    if named and late:
        lines.append(f"         did not come: {', '.join(late)}")
    for finding in verdict.findings:
        after = f"after {finding.fault}: " if finding.fault is not None else ""
        lines.append(f"         ✗ {after}{finding.sentence}")
    return lines

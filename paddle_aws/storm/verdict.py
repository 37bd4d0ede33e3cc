"""The verdict on a run: how it differs from the calm ones. It says what was seen, and guesses no
cause.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, pairwise
from math import isfinite

from paddle_aws.storm.contents import OutputFile, describe_difference
from paddle_aws.storm.faults import Fault, Opportunities
from paddle_aws.storm.ranges import describe, fits, range_of, same
from paddle_aws.storm.trace import InflictedFault, Trace

_AROUND = 8
"""Lines before and after a symptom that are shown."""
_WIDEST = 0.25
"""By which share of a value calm runs may differ in it, for it to be compared at all: a speed, or
whatever else the machine decides, differs by more.
"""
_QUALITY = re.compile(
    r"acc|loss|auc|f1|error|rmse|mse|mae|score|bleu|perplexity|metric|mean|norm|checksum|sum",
    re.IGNORECASE,
)
"""Names of what describes the model: it is compared although calm runs differ in it, unless by more
than `_WIDEST`. Any other value is compared where calm runs agree.
"""
_OF_RUN = re.compile(
    r"attempt|trainers?|pid|time|.*seconds|elapsed|port|date|eta|ips|speed|.*_cost|.*per_s(?:ec|econd)?",
    re.IGNORECASE,
)
"""Names of what differs from run to run: speeds, times, numbers of processes."""


@dataclass(frozen=True)
class Finding:
    """One thing that was wrong."""

    symptom: str
    """A word for its kind, by which a shrunk schedule is known to fail in the same way."""
    sentence: str
    fault: Fault | None
    """The last fault before it."""
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Verdict:
    """The findings of one run."""

    findings: tuple[Finding, ...]
    repeated: int
    """Steps done more than once, over all attempts."""
    lost: tuple[int, ...]
    """Steps that no attempt reported."""
    lost_work: dict[str, int]
    """For each fault, the steps that were done again after it."""

    @property
    def passed(self) -> bool:
        return not self.findings


class Calm:
    """What the calm runs have in common."""

    def __init__(self, traces: Sequence[Trace]) -> None:
        self.traces = traces
        self.ranks = sorted({rank for trace in traces for rank in trace.ranks})
        """The ranks that report steps."""

    def steps_by_run(self, rank: int) -> list[list[int]]:
        """The steps that each run's rank reports."""
        return [[event.step or 0 for event in trace.steps(rank)] for trace in self.traces]

    @cached_property
    def steps(self) -> list[int]:
        """The steps that a run's lowest rank reports, each once, in order."""
        return self.steps_of(self.ranks[0]) if self.ranks else []

    def steps_of(self, rank: int) -> list[int]:
        """The steps that a run's rank reports, each once, in order."""
        return list(dict.fromkeys(self.steps_by_run(rank)[0]))

    def is_regular(self, rank: int) -> bool:
        """Whether every run's rank reports the same steps, each once; then a step that another run
        lacks was not done.
        """
        steps = self.steps_of(rank)
        return steps == sorted(steps) and all(run == steps for run in self.steps_by_run(rank))

    @cached_property
    def values(self) -> dict[tuple[int, str], dict[int, tuple[float, float]]]:
        """The least and the greatest of each rank's metric, by step."""
        values: defaultdict[tuple[int, str], defaultdict[int, list[float]]]
        values = defaultdict(lambda: defaultdict(list))
        for event in (event for trace in self.traces for event in trace.events):
            for name, value in event.metrics.items():
                if not _OF_RUN.fullmatch(name):
                    values[event.rank, name][event.step or 0].append(value)
        return {
            key: {step: range_of(numbers) for step, numbers in steps.items()}
            for key, steps in values.items()
        }

    @cached_property
    def compared(self) -> dict[tuple[int, str], dict[int, tuple[float, float]]]:
        """The values that another run must have as well."""
        return {
            (rank, name): steps
            for (rank, name), steps in self.values.items()
            if all(_is_comparable(name, *between) for between in steps.values())
        }

    @property
    def too_different(self) -> list[str]:
        """Names of what describes the model and is not compared, because the runs differ in it."""
        names = {name for trace in self.traces for name in trace.last} - set(self.last)
        names |= {f"{name} at steps" for _, name in self.values.keys() - self.compared.keys()}
        return sorted(name for name in names if _QUALITY.search(name) and not _OF_RUN.match(name))

    @cached_property
    def spreads(self) -> dict[tuple[int, str], float]:
        """The greatest difference between runs, by rank and metric."""
        spreads = {
            key: [most - least for least, most in steps.values()]
            for key, steps in self.values.items()
        }
        return {key: max([0.0, *filter(isfinite, spread)]) for key, spread in spreads.items()}

    @cached_property
    def last(self) -> dict[str, tuple[float, float]]:
        """The range of each comparable number in the runs' last lines."""
        ranges = {
            name: range_of([trace.last[name] for trace in self.traces])
            for name in (self.traces[0].last if self.traces else ())
            if all(name in trace.last for trace in self.traces) and not _OF_RUN.fullmatch(name)
        }
        return {name: ends for name, ends in ranges.items() if _is_comparable(name, *ends)}

    @cached_property
    def files(self) -> dict[str, list[OutputFile]]:
        """Each file that all runs left in output/, as each left it."""
        names = (
            set.intersection(*(set(trace.files) for trace in self.traces)) if self.traces else ()
        )
        return {name: [trace.files[name] for trace in self.traces] for name in sorted(names)}

    @property
    def compares(self) -> bool:
        """Whether there is any value by which another run can be told from these: a metric, a
        number at the end, or the content of a file that is the same in all.
        """
        same = (len({file.digest for file in files}) == 1 for files in self.files.values())
        return bool(self.compared or self.last or any(same))

    @property
    def words_for_success(self) -> str:
        """What is said of a run without findings."""
        return "as undisturbed" if self.compares else "ended well, not compared"

    @property
    def has_equal_values(self) -> bool:
        """Whether each value that is compared is the same in all runs."""
        at_steps = (between for steps in self.compared.values() for between in steps.values())
        return all(same(*between) for between in (*at_steps, *self.last.values()))

    @property
    def equal(self) -> bool:
        """Whether the runs reported exactly the same steps and results."""
        reports = bool(self.ranks or self.last)
        return reports and all(map(self.is_regular, self.ranks)) and self.has_equal_values

    @property
    def silence(self) -> float:
        return max((trace.longest_silence for trace in self.traces), default=0.0)

    @property
    def opportunities(self) -> Opportunities:
        """The events to which faults can be tied."""
        first = self.traces[0]
        ranks = {event.rank for event in first.events}
        saves = [event for event in first.events if event.kind == "save"]
        return Opportunities(
            ranks=max(ranks, default=0) + 1,
            steps=sorted(self.steps),
            saves=min(sum(event.kind == "save" for event in trace.events) for trace in self.traces),
            savers=sorted({event.rank for event in saves}),
            servers=first.servers,
        )


def _is_comparable(name: str, least: float, most: float) -> bool:
    """Whether another run's value may be compared with those of calm runs."""
    near = most - least <= _WIDEST * max(abs(least), abs(most))
    return same(least, most) or bool(_QUALITY.search(name) and near)


def judge(trace: Trace, calm: Calm, *, named: bool = False) -> Verdict:
    """Compares a run with the calm ones. `named`: the user has named its faults, so each must
    happen.
    """
    findings = [
        # Of each of these the first: the others follow from it.
        *islice(_judge_end(trace, calm), 1),
        *islice(_judge_hangs(trace), 1),
        *next(filter(None, (list(_judge_steps(trace, calm, rank)) for rank in calm.ranks)), []),
        *_judge_values(trace, calm),
        *_judge_files(trace),
        *islice(_judge_output(trace, calm), 1),
        *(_judge_faults(trace, calm) if named else ()),
    ]
    lost = sorted({step for rank in calm.ranks for step in _list_lost(trace, calm, rank)})
    steps = [event.step for event in trace.steps()]
    return Verdict(tuple(findings), len(steps) - len(set(steps)), tuple(lost), _work_lost(trace))


def _judge_end(trace: Trace, calm: Calm) -> Iterator[Finding]:
    if trace.silent:
        words = "it did not end: nothing happened any more, and it was ended"
        yield _finding("hang", words, trace)
    if not trace.succeeded:
        words = f"the job failed: {trace.reason}"
        last = _fault_before(trace, trace.seconds)
        if last is not None and last.fault.kind == "damage-checkpoint":
            words += f"; the checkpoint that the storm damaged: {last.effect}"
        yield _finding("failed", words, trace)
        return
    for rank in calm.ranks:
        # A program that stops when it is good enough ends at another step each time.
        ends = {max(steps, default=0) for steps in calm.steps_by_run(rank)}
        last_step = max((event.step or 0 for event in trace.steps(rank)), default=0)
        if len(ends) == 1 and last_step < (end := ends.pop()) - _count_unreported_steps(
            trace, calm, rank
        ):
            words = f"{_rank_words(rank, calm)}the job succeeded, but the last step it reported is "
            yield _finding("unfinished", f"{words}{last_step} of {end}", trace)
    if missing := [name for name in calm.last if name not in trace.last]:
        words = f"the job succeeded, but did not print its result: {', '.join(missing[:5])}"
        yield _finding("unfinished", words, trace)


def _rank_words(rank: int, calm: Calm) -> str:
    """The beginning of a sentence about a rank."""
    return "" if rank == min(calm.ranks) else f"rank {rank}: "


def _stride(calm: Calm, rank: int) -> int:
    """The most steps between two that a calm run's rank reports."""
    return max((later - earlier for earlier, later in pairwise(calm.steps_of(rank))), default=1)


def _count_unreported_steps(trace: Trace, calm: Calm, rank: int) -> int:
    """How many steps may have been done after the last that a rank reported: as many as lie between
    two of its reports, for it and for each attempt since, whose process may have been killed before
    its report.
    """
    last = max((event.attempt for event in trace.steps(rank)), default=0)
    stride = _stride(calm, rank) if calm.is_regular(rank) else 1
    return stride - 1 + stride * max(0, trace.attempts - max(1, last))


def _judge_hangs(trace: Trace) -> Iterator[Finding]:
    """Only `limits.stall_seconds` ended an attempt that hung. After a half-open connection this is
    expected, because a program cannot notice it.
    """
    for attempt, (seconds, silent) in trace.stalled.items():
        before = _fault_before(trace, seconds)
        if before is None or before.fault.kind != "half-open":
            words = (
                f"attempt {attempt} hung until it was ended as stalled, which takes "
                "limits.stall_seconds on a cluster"
            )
            words += f"; silent first: {silent}" if silent else ""
            yield _finding("hang", words, trace, seconds)


def _judge_steps(trace: Trace, calm: Calm, rank: int) -> Iterator[Finding]:
    if not calm.is_regular(rank):
        return
    whose, steps = _rank_words(rank, calm), trace.steps(rank)
    last, stride = max(calm.steps_of(rank)), _stride(calm, rank)
    for event in steps:
        if (event.step or 0) >= last + stride:
            words = (
                f"{whose}it trained on to step {event.step}; undisturbed runs end with step {last}"
            )
            yield _finding("too many steps", words, trace, event.seconds)
            break
    for earlier, later in pairwise(steps):
        if earlier.attempt == later.attempt and (later.step or 0) <= (earlier.step or 0):
            words = f"{whose}step {later.step} was done again within attempt {later.attempt}"
            yield _finding("doubled steps", words, trace, later.seconds)
            break
    if trace.succeeded and len(lost := _list_lost(trace, calm, rank)) > 0:
        words = f"{whose}steps were left out: no attempt reported {_shorten(lost)}"
        moment = next(
            (event.seconds for event in steps if (event.step or 0) > lost[0]), trace.seconds
        )
        yield _finding("lost steps", words, trace, moment)


def _list_lost(trace: Trace, calm: Calm, rank: int) -> tuple[int, ...]:
    """Returns the steps that no attempt reported. After the end of an attempt, as many may be
    missing as lie between two reports of a calm run: the program may have saved them, and been
    killed before its report.
    """
    if not calm.is_regular(rank):
        return ()
    order, steps, stride = calm.steps_of(rank), trace.steps(rank), _stride(calm, rank)
    reported_steps = {event.step or 0 for event in steps}
    lost: list[int] = []
    attempt, before, furthest = 1, order[0] - stride, order[0] - stride
    for event in steps:
        ends, step = event.attempt - attempt, event.step or 0
        if ends:
            attempt, before = event.attempt, furthest
        if step - before > stride * (1 + ends):
            missing = [
                other for other in order if before < other < step and other not in reported_steps
            ]
            lost += missing[: len(missing) - ends]
        before, furthest = step, max(furthest, step)
    return tuple(dict.fromkeys(lost))


def _judge_values(trace: Trace, calm: Calm) -> Iterator[Finding]:
    reported = ((event, *metric) for event in trace.events for metric in event.metrics.items())
    for event, name, value in reported:
        between = calm.compared.get((event.rank, name), {}).get(event.step or 0)
        if between is not None and not fits(value, between, calm.spreads[event.rank, name]):
            words = (
                f"{_rank_words(event.rank, calm)}{name} at step {event.step} is {value:g} in "
                f"attempt {event.attempt}; undisturbed runs have {describe(*between)}"
            )
            yield _finding("other values", words, trace, event.seconds)
            break
    if trace.succeeded:
        for name, (least, most) in calm.last.items():
            result = trace.last.get(name)
            if result is not None and not fits(result, (least, most), most - least):
                usual = describe(least, most)
                words = f"{name} is {result:g} at the end; undisturbed runs have {usual}"
                yield _finding("other result", words, trace)
                break


def _judge_files(trace: Trace) -> Iterator[Finding]:
    if trace.outside:
        words = (
            f"it reads {trace.outside[0]}, which an earlier attempt wrote there: that place is "
            "lost with the pod; write below output/"
        )
        yield _finding("outside", words, trace)
    elif trace.succeeded and trace.elsewhere and not trace.files:
        words = f"but wrote {trace.elsewhere[0]}, which is lost with the pod"
        yield _finding("outside", f"it left no file below output/, {words}", trace)


def _judge_output(trace: Trace, calm: Calm) -> Iterator[Finding]:
    """Compares what lies in output/ with what calm runs left there."""
    if not trace.succeeded:
        return
    if missing := [name for name in calm.files if name not in trace.files]:
        words = f"output/ lacks {_shorten(missing)}, which undisturbed runs leave"
        yield _finding("missing files", words, trace)
    for name, files in calm.files.items():
        if words := describe_difference(trace.files[name], files):
            yield _finding("other files", f"output/{name} {words}", trace)


def _judge_faults(trace: Trace, calm: Calm) -> Iterator[Finding]:
    if trace.came or not trace.inflicted:
        return
    last, saves = max(calm.steps, default=0), calm.opportunities.saves
    words = (
        "none of its faults came, so it shows nothing; the last step of undisturbed runs is "
        f"{last}, and they save {saves} files"
    )
    yield _finding("no fault", words, trace)


def _work_lost(trace: Trace) -> dict[str, int]:
    """Counts the steps done again, each for the last fault before it was."""
    done: set[int] = set()
    counts: dict[str, int] = {}
    for event in trace.steps():
        step = event.step or 0
        if step in done and (fault := _fault_before(trace, event.seconds)):
            counts[str(fault.fault)] = counts.get(str(fault.fault), 0) + 1
        done.add(step)
    return counts


def _finding(symptom: str, sentence: str, trace: Trace, at: float | None = None) -> Finding:
    """`at`: when it was seen; None: at the run's end."""
    seconds = trace.seconds if at is None else at
    before = _fault_before(trace, seconds)
    moments = [float(line.split(maxsplit=1)[0]) for line in trace.lines]
    place = next((row for row, moment in enumerate(moments) if moment >= seconds), len(moments))
    around = trace.lines[max(0, place - _AROUND) : place + _AROUND // 2]
    if before is not None:
        came = [line for line in trace.lines if line.endswith(f"fault: {before.fault}")]
        around = [line for line in came if line not in around] + around
    return Finding(symptom, sentence, before.fault if before else None, tuple(around))


def _fault_before(trace: Trace, seconds: float) -> InflictedFault | None:
    return next((fault for came, fault in reversed(trace.came) if came <= seconds), None)


def _shorten(items: Sequence[object]) -> str:
    first = ", ".join(map(str, items[:5]))
    return first if len(items) <= 5 else f"{first} and {len(items) - 5} more"

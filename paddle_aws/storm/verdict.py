"""The verdict on a run: how it differs from the calm ones. It says what was seen, and guesses no
cause.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
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
    def values(self) -> dict[tuple[int, int, str], tuple[float, float]]:
        """The least and the greatest of each metric, by rank and step."""
        values: dict[tuple[int, int, str], list[float]] = {}
        for trace in self.traces:
            for event in trace.events:
                for name, value in event.metrics.items():
                    if not _OF_RUN.fullmatch(name):
                        values.setdefault((event.rank, event.step or 0, name), []).append(value)
        return {key: range_of(numbers) for key, numbers in values.items()}

    @cached_property
    def compared(self) -> set[tuple[int, str]]:
        """The metrics, by rank, that another run must have as well."""
        return {(rank, name) for rank, _, name in self.values} - {
            (rank, name)
            for (rank, _, name), between in self.values.items()
            if not _is_comparable(name, *between)
        }

    @property
    def too_different(self) -> list[str]:
        """Names of what describes the model and is not compared, because the runs differ in it."""
        names = {name for trace in self.traces for name in trace.last} - set(self.last)
        every = {(rank, name) for rank, _, name in self.values}
        names |= {f"{name} at steps" for _, name in every - self.compared}
        return sorted(name for name in names if _QUALITY.search(name) and not _OF_RUN.match(name))

    @cached_property
    def spreads(self) -> dict[tuple[int, str], float]:
        """The greatest difference between runs, by rank and metric."""
        spreads: dict[tuple[int, str], float] = {}
        for (rank, _, name), (least, most) in self.values.items():
            spread = most - least if isfinite(most - least) else 0.0
            spreads[rank, name] = max(spreads.get((rank, name), 0.0), spread)
        return spreads

    @cached_property
    def last(self) -> dict[str, tuple[float, float]]:
        """The range of each comparable number in the runs' last lines."""
        ranges = {
            name: range_of([trace.last[name] for trace in self.traces])
            for name in (self.traces[0].last if self.traces else ())
            if all(name in trace.last for trace in self.traces)
        }
        return {
            name: between
            for name, between in ranges.items()
            if not _OF_RUN.fullmatch(name) and _is_comparable(name, *between)
        }

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
        keys = [key for key in self.values if (key[0], key[2]) in self.compared]
        ranges = (*(self.values[key] for key in keys), *self.last.values())
        return all(same(*between) for between in ranges)

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
        *_judge_end(trace, calm),
        *_judge_hangs(trace),
        *next(filter(None, (_judge_steps(trace, calm, rank) for rank in calm.ranks)), []),
        *_judge_values(trace, calm),
        *_judge_files(trace, calm),
        *_judge_output(trace, calm),
        *(_judge_faults(trace, calm) if named else ()),
    ]
    lost = sorted({step for rank in calm.ranks for step in _list_lost(trace, calm, rank)})
    steps = [event.step for event in trace.steps()]
    return Verdict(tuple(findings), len(steps) - len(set(steps)), tuple(lost), _work_lost(trace))


def _judge_end(trace: Trace, calm: Calm) -> list[Finding]:
    if trace.silent:
        words = "it did not end: nothing happened any more, and it was ended"
        return [_finding("hang", words, trace, trace.seconds)]
    if not trace.succeeded:
        words = f"the job failed: {trace.reason}"
        last = _fault_before(trace, trace.seconds)
        if last is not None and last.fault.kind == "damage-checkpoint":
            words += f"; the checkpoint that the storm damaged: {last.effect}"
        return [_finding("failed", words, trace, trace.seconds)]
    for rank in calm.ranks:
        # A program that stops when it is good enough ends at another step each time.
        ends = {max(steps, default=0) for steps in calm.steps_by_run(rank)}
        last_step = max((event.step or 0 for event in trace.steps(rank)), default=0)
        if len(ends) == 1 and last_step < (end := ends.pop()) - _count_unreported_steps(
            trace, calm, rank
        ):
            words = f"{_rank_words(rank, calm)}the job succeeded, but the last step it reported is "
            return [_finding("unfinished", f"{words}{last_step} of {end}", trace, trace.seconds)]
    if missing := [name for name in calm.last if name not in trace.last]:
        words = f"the job succeeded, but did not print its result: {', '.join(missing[:5])}"
        return [_finding("unfinished", words, trace, trace.seconds)]
    return []


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


def _judge_hangs(trace: Trace) -> list[Finding]:
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
            return [_finding("hang", words, trace, seconds)]
    return []


def _judge_steps(trace: Trace, calm: Calm, rank: int) -> list[Finding]:
    findings: list[Finding] = []
    if not calm.is_regular(rank):
        return findings
    whose, steps = _rank_words(rank, calm), trace.steps(rank)
    last, stride = max(calm.steps_of(rank)), _stride(calm, rank)
    for event in steps:
        if (event.step or 0) >= last + stride:
            words = (
                f"{whose}it trained on to step {event.step}; undisturbed runs end with step {last}"
            )
            findings.append(_finding("too many steps", words, trace, event.seconds))
            break
    for earlier, later in pairwise(steps):
        if earlier.attempt == later.attempt and (later.step or 0) <= (earlier.step or 0):
            words = f"{whose}step {later.step} was done again within attempt {later.attempt}"
            findings.append(_finding("doubled steps", words, trace, later.seconds))
            break
    if trace.succeeded and len(lost := _list_lost(trace, calm, rank)) > 0:
        words = f"{whose}steps were left out: no attempt reported {_shorten_steps(lost)}"
        moment = next(
            (event.seconds for event in steps if (event.step or 0) > lost[0]), trace.seconds
        )
        findings.append(_finding("lost steps", words, trace, moment))
    return findings


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


def _judge_values(trace: Trace, calm: Calm) -> list[Finding]:
    findings = []
    for event in trace.events:
        for name, value in event.metrics.items():
            between = calm.values.get((event.rank, event.step or 0, name))
            if (event.rank, name) not in calm.compared:
                continue
            if between is None or fits(value, between, calm.spreads[event.rank, name]):
                continue
            words = (
                f"{_rank_words(event.rank, calm)}{name} at step {event.step} is {value:g} in "
                f"attempt {event.attempt}; undisturbed runs have {describe(*between)}"
            )
            findings.append(_finding("other values", words, trace, event.seconds))
            break
        if findings:
            break
    if trace.succeeded:
        for name, (least, most) in calm.last.items():
            result = trace.last.get(name)
            if result is not None and not fits(result, (least, most), most - least):
                usual = describe(least, most)
                words = f"{name} is {result:g} at the end; undisturbed runs have {usual}"
                findings.append(_finding("other result", words, trace, trace.seconds))
                break
    return findings


def _judge_files(trace: Trace, calm: Calm) -> list[Finding]:
    if trace.outside:
        words = (
            f"it reads {trace.outside[0]}, which an earlier attempt wrote there: that place is "
            "lost with the pod; write below output/"
        )
    elif trace.succeeded and trace.elsewhere and not trace.files:
        file = trace.elsewhere[0]
        words = f"it left no file below output/, but wrote {file}, which is lost with the pod"
    else:
        return []
    return [_finding("outside", words, trace, trace.seconds)]


def _judge_output(trace: Trace, calm: Calm) -> list[Finding]:
    """Compares what lies in output/ with what calm runs left there."""
    if not trace.succeeded:
        return []
    if missing := [name for name in calm.files if name not in trace.files]:
        words = (
            f"output/ lacks {', '.join(missing[:5])}"
            f"{f' and {len(missing) - 5} more' if len(missing) > 5 else ''}, which undisturbed "
            "runs leave"
        )
        return [_finding("missing files", words, trace, trace.seconds)]
    for name, files in calm.files.items():
        if words := describe_difference(trace.files[name], files):
            words = f"output/{name} {words}"
            return [_finding("other files", words, trace, trace.seconds)]
    return []


def _judge_faults(trace: Trace, calm: Calm) -> list[Finding]:
    if not trace.inflicted or any(fault.seconds is not None for fault in trace.inflicted):
        return []
    last, saves = max(calm.steps, default=0), calm.opportunities.saves
    words = (
        "none of its faults came, so it shows nothing; the last step of undisturbed runs is "
        f"{last}, and they save {saves} files"
    )
    return [_finding("no fault", words, trace, trace.seconds)]


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


def _finding(symptom: str, sentence: str, trace: Trace, seconds: float) -> Finding:
    before = _fault_before(trace, seconds)
    moments = [float(line.split(maxsplit=1)[0]) for line in trace.lines]
    place = next((at for at, moment in enumerate(moments) if moment >= seconds), len(moments))
    around = trace.lines[max(0, place - _AROUND) : place + _AROUND // 2]
    if before is not None:
        came = [line for line in trace.lines if line.endswith(f"fault: {before.fault}")]
        around = [line for line in came if line not in around] + around
    return Finding(symptom, sentence, before.fault if before else None, tuple(around))


def _fault_before(trace: Trace, seconds: float) -> InflictedFault | None:
    before = [
        inflicted
        for inflicted in trace.inflicted
        if inflicted.seconds is not None and inflicted.seconds <= seconds
    ]
    return before[-1] if before else None


def _shorten_steps(steps: Sequence[int]) -> str:
    first = ", ".join(map(str, steps[:5]))
    return first if len(steps) <= 5 else f"{first} and {len(steps) - 5} more"

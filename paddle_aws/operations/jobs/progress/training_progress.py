"""A training's progress, from trainer 0's output; where its time goes and who is slow, from the
output of trainer 0's agent.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from paddle_node.volume import goodput, pass_metrics

from paddle_aws.operations.cluster.cluster_api import ApiError, ClusterApi
from paddle_aws.operations.jobs.objects.job_objects import pods
from paddle_aws.operations.jobs.objects.pod_state import PodState
from paddle_aws.operations.screen import span

TAIL = "1000"
"""Lines of trainer 0's log to search: it reports its progress every few seconds, whatever else it
prints.
"""


@dataclass(frozen=True)
class Goodput:
    """The share of the pods' time that was spent on training, until now."""

    percent: int
    seconds: int
    """A pod's total seconds."""
    parts: str
    slow: str = ""
    """The trainers that take more than half as long again as the median, with their nodes."""

    @classmethod
    def parse(cls, line: str) -> Self | None:
        """Parses a line of trainer 0's log; None if the line does not report goodput."""
        report = goodput.Goodput.parse(line)
        if report is None:
            return None
        percent, seconds = round(100 * report.share), round(report.total)
        return cls(percent, seconds, report.parts, ", ".join(report.slow))

    def __str__(self) -> str:
        return f"{self.percent} % of {span(self.seconds)}: {self.parts} (seconds)"


@dataclass(frozen=True)
class TrainingProgress:
    """Trainer 0's progress, which stands for all: another trainer may be behind, or ahead."""

    pass_number: int
    passes: int
    attempt: int
    step: int | None
    """The step in the pass; None if the pass is finished."""
    loss: float
    """The mean of the pass so far."""
    records_per_second: float
    """The rate of all trainers together."""
    seconds_left: float | None
    """None if nobody has counted the records."""
    reported: str = ""
    """The time of the report, as Kubernetes writes it."""

    @property
    def told(self) -> str:
        """The old name of `reported`."""
        return self.reported

    @classmethod
    def parse(cls, line: str, reported: str = "") -> Self | None:
        """Parses a line of trainer 0's log; None if the line does not report progress."""
        facts = pass_metrics.parse_line(line)
        if not facts.keys() >= {
            "pass",
            "passes",
            "attempt",
            "trainers",
            "loss",
            "records",
            "seconds",
        }:
            return None
        seconds, records = max(facts["seconds"], 0.001), max(facts["records"], 1)
        size = facts.get("shard", records)
        to_come = max((facts["passes"] - facts["pass"]) * size - records, 0)
        return cls(
            pass_number=int(facts["pass"]),
            passes=int(facts["passes"]),
            attempt=int(facts["attempt"]),
            step=int(facts["step"]) if "step" in facts else None,
            loss=facts["loss"],
            records_per_second=round(facts["trainers"] * records / seconds, 1),
            seconds_left=round(to_come / records * seconds, 1) if size else None,
            reported=reported,
        )

    def __str__(self) -> str:
        step = "through" if self.step is None else f"step {self.step:,}"
        left = "" if self.seconds_left is None else f", {span(self.seconds_left)} left"
        speed = f"{self.records_per_second:,.0f} records a second"
        return (
            f"pass {self.pass_number} (the last is {self.passes - 1}), {step}, loss "
            f"{self.loss:.4f}, {speed}{left}"
        )


def read_reports(
    cluster: ClusterApi, namespace: str, pod_states: Iterable[PodState]
) -> tuple[TrainingProgress | None, Goodput | None]:
    """Returns the last report of trainer 0's running pod, with one request; None if none runs, or
    its program reports nothing.
    """
    running = [pod for pod in pod_states if pod.phase == "running"]
    return parse_log(read_log(cluster, namespace, running))


def read_log(
    cluster: ClusterApi, namespace: str, pod_states: Iterable[PodState]
) -> list[tuple[str, str]]:
    """Returns the last lines of trainer 0's newest pod, each with its time, with one request; none
    if there is no such pod, or it has no log.
    """
    first = [
        pod.name
        for pod in pod_states
        if (pod.component, pod.rank) == ("trainer", 0) and pod.phase != "waiting"
    ]
    # A container that has just restarted has no log yet.
    with suppress(ApiError, IndexError):
        log = cluster.request(
            "GET",
            f"{pods(namespace)}/{first[-1]}/log",
            query={"timestamps": "true", "tailLines": TAIL},
        )
        lines = log.data.decode(errors="replace").splitlines()
        return [(moment, text) for moment, _, text in (line.partition(" ") for line in lines)]
    return []


def parse_log(lines: Iterable[tuple[str, str]]) -> tuple[TrainingProgress | None, Goodput | None]:
    """Returns the last reports in trainer 0's log; each line comes with its time."""
    progress, report = None, None
    for moment, text in reversed(list(lines)):
        progress = progress or TrainingProgress.parse(text, moment)
        report = report or Goodput.parse(text)
    return progress, report

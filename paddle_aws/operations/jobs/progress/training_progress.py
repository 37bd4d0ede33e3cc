"""A training's progress, where its time goes and who is slow, from the output of trainer 0's
agent.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from paddle_node.volume import goodput
from paddle_node.volume.progress import Progress

from paddle_aws.operations.cluster.cluster_api import ApiError, ClusterApi
from paddle_aws.operations.jobs.objects.job_objects import pods
from paddle_aws.operations.jobs.objects.pod_state import PodState
from paddle_aws.operations.screen import span

TrainingProgress = StepProgress = Progress
"""Names that `paddle_aws` promises."""
TAIL = "1000"
"""Lines of trainer 0's log to search: its agent reports the progress every few seconds."""


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


def read_reports(
    cluster: ClusterApi, namespace: str, pod_states: Iterable[PodState]
) -> tuple[Progress | None, Goodput | None]:
    """Returns the last reports in the log of trainer 0's newest pod, with one request; None if
    there is no such pod, it has no log, or its program reports nothing.
    """
    begun = [pod for pod in pod_states if pod.phase != "waiting"]
    first = [pod.name for pod in begun if (pod.component, pod.rank) == ("trainer", 0)]
    # A container that has just restarted has no log yet.
    with suppress(ApiError, IndexError):
        path = f"{pods(namespace)}/{first[-1]}/log"
        log = cluster.request("GET", path, query={"tailLines": TAIL})
        return parse_log(log.data.decode(errors="replace").splitlines())
    return None, None


def parse_log(lines: Iterable[str]) -> tuple[Progress | None, Goodput | None]:
    """Returns the last reports in trainer 0's log."""
    progress, report = None, None
    for text in reversed(list(lines)):
        progress = progress or Progress.parse(text)
        report = report or Goodput.parse(text)
    return progress, report

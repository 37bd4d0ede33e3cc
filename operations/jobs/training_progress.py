"""How far a training is, by what its trainer 0 prints, and where its time goes and who is slow, by what its agent prints."""

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from paddle_node.training import pass_metrics

from operations.cluster.cluster import ApiError, Cluster
from operations.cluster.pod_words import PodState
from operations.jobs.job_objects import pods
from operations.screen import span

TAIL = "1000"
"""Lines of its log that are looked through: it tells every few seconds how far it is, whatever it prints beside."""
_GOODPUT = re.compile(r"\[agent 0\] goodput (\d+)% of (\d+) s: ([^;]*)(?:; slow: (.+))?")


@dataclass(frozen=True)
class Goodput:
    """The share of the pods' time that was training, until now."""

    percent: int
    seconds: int
    """Of a pod, in all."""
    parts: str
    slow: str = ""
    """The trainers that take half as long again as the median, with their nodes."""

    @classmethod
    def heard(cls, line: str) -> Self | None:
        """From a line of trainer 0's log; None where it says nothing of it."""
        found = _GOODPUT.search(line)
        return cls(int(found[1]), int(found[2]), found[3], found[4] or "") if found else None

    def __str__(self) -> str:
        return f"{self.percent} % of {span(self.seconds)}: {self.parts} (seconds)"


@dataclass(frozen=True)
class TrainingProgress:
    """Of trainer 0, who speaks for all: another one may be behind it, or ahead."""

    pass_number: int
    passes: int
    attempt: int
    step: int | None
    """In the pass; None: it is through."""
    loss: float
    """Mean of the pass so far."""
    records_per_second: float
    """Of all trainers."""
    seconds_left: float | None
    """None: nobody has counted the records."""
    told: str = ""
    """When, as Kubernetes writes it."""

    @classmethod
    def heard(cls, line: str, told: str = "") -> Self | None:
        """From a line of trainer 0's log; None where it says nothing of it."""
        facts = pass_metrics.parsed(line)
        if not facts.keys() >= {"pass", "passes", "attempt", "trainers", "loss", "records", "seconds"}:
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
            told=told,
        )

    def __str__(self) -> str:
        step = "through" if self.step is None else f"step {self.step:,}"
        left = "" if self.seconds_left is None else f", {span(self.seconds_left)} left"
        speed = f"{self.records_per_second:,.0f} records a second"
        return f"pass {self.pass_number} (the last is {self.passes - 1}), {step}, loss {self.loss:.4f}, {speed}{left}"


def of_pods(cluster: Cluster, namespace: str, found: Iterable[PodState]) -> tuple[TrainingProgress | None, Goodput | None]:
    """What the running pod of trainer 0 told last, by one request; None where none runs, or its program tells nothing."""
    progress, goodput = None, None
    first = [pod.name for pod in found if (pod.component, pod.rank, pod.phase) == ("trainer", 0, "running")]
    # A container that was just restarted has no log yet.
    with suppress(ApiError, IndexError):
        log = cluster.request("GET", f"{pods(namespace)}/{first[-1]}/log", query={"timestamps": "true", "tailLines": TAIL})
        for line in reversed(log.data.decode(errors="replace").splitlines()):
            told, _, said = line.partition(" ")
            progress, goodput = progress or TrainingProgress.heard(said, told), goodput or Goodput.heard(said)
    return progress, goodput

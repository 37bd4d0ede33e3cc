"""How far a training is, by what its trainer 0 prints: pass, step, loss, speed, time left."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from paddle_node import pass_metrics

from operations.cluster import ApiError, Cluster
from operations.job_objects import pods
from operations.pod_words import PodState
from operations.screen import age, span

TAIL = "1000"
"""Lines of the log that are looked through: trainer 0 tells every few seconds how far it is, whatever it prints beside."""


@dataclass(frozen=True)
class TrainingProgress:
    """Trainer 0 speaks for all: trainers with other shards may be behind it, or ahead."""

    pass_number: int
    last_pass: int
    attempt: int
    step: int | None
    """In the pass; None: it is through."""
    loss: float
    """Mean of the pass so far."""
    records_per_second: float | None
    """Of all trainers."""
    seconds_left: float | None
    told: str
    """When, as Kubernetes writes it."""

    @classmethod
    def heard(cls, text: str, told: str) -> TrainingProgress | None:
        """From a line of trainer 0's log; None where it says nothing of it."""
        facts = pass_metrics.heard(text)
        if not facts.keys() >= {"pass", "passes", "attempt", "trainers", "loss", "records", "seconds"}:
            return None
        seconds, records = facts["seconds"], facts["records"]
        # Without its manifest a shard's size is known once a pass is through.
        size = facts.get("shard", records)
        to_come = (facts["passes"] - facts["pass"]) * size - records
        return cls(
            pass_number=int(facts["pass"]),
            last_pass=int(facts["passes"]) - 1,
            attempt=int(facts["attempt"]),
            step=int(facts["step"]) if "step" in facts else None,
            loss=facts["loss"],
            records_per_second=facts["trainers"] * records / seconds if seconds else None,
            seconds_left=seconds * max(to_come, 0) / records if size and records else None,
            told=told,
        )

    def __str__(self) -> str:
        words = [f"pass {self.pass_number} of 0 to {self.last_pass}"]
        words.append("through" if self.step is None else f"step {self.step:,}")
        words.append(f"loss {self.loss:.4f}")
        if self.records_per_second is not None:
            words.append(f"{self.records_per_second:,.0f} records a second")
        if self.seconds_left is not None:
            words.append(f"{span(self.seconds_left)} left")
        return ", ".join(words)

    @property
    def with_age(self) -> str:
        """The same, with how long ago it was told."""
        return f"{self} ({age(self.told)} ago)"


def of_pods(cluster: Cluster, namespace: str, found: Iterable[PodState]) -> TrainingProgress | None:
    """What the running pod of trainer 0 told last, by one request; None where none runs, or its program tells nothing."""
    first = [pod for pod in found if (pod.component, pod.rank, pod.phase) == ("trainer", 0, "running")]
    for pod in first[-1:]:
        query = {"timestamps": "true", "tailLines": TAIL}
        # A container that was just restarted has no log yet.
        with suppress(ApiError):
            text = cluster.request("GET", f"{pods(namespace)}/{pod.name}/log", query=query).decode(errors="replace")
            for line in reversed(text.splitlines()):
                told, _, said = line.partition(" ")
                if (progress := TrainingProgress.heard(said, told)) is not None:
                    return progress
    return None

"""What a trainer reports of its steps: metrics for people, progress to the rendezvous server."""

import time
from collections.abc import Mapping

from paddle_node.coordination import Session
from paddle_node.environment import PodEnvironment
from paddle_node.training.step_log import StepLog, TimeSpent, print_step
from paddle_node.volume import pass_metrics
from paddle_node.volume.passes import Position


class StepReports:
    """The reports of one trainer in one attempt."""

    def __init__(self, pod: PodEnvironment, session: Session, records: int, batch: int) -> None:
        """`records`: those of the shard, 0 if nobody has counted them."""
        self._pod, self._session, self._records, self._batch = pod, session, records, batch
        steps = pod.folder.steps(session.trainer_id, session.trainer_id)
        self._log = StepLog(steps, session.attempt)
        self.spent = TimeSpent(lambda: session.waited)
        self._made = 0
        """Steps of this process in this attempt."""
        self._kept: int | None = None
        """The last step that can no longer be lost, as `step_log` counts steps; None: no step was
        made yet.
        """

    def restart_clock(self) -> None:
        """Forgets the seconds until now: they belong to the start."""
        self.spent = TimeSpent(lambda: self._session.waited)

    def count_step(self) -> None:
        """Counts a step that was made."""
        self._made += 1

    def report(
        self,
        number: int,
        read: int,
        metrics: Mapping[str, float],
        at_once: bool = False,
        sealed: bool = False,
    ) -> None:
        """Reports how far the pass is. `sealed`: everything until here was saved."""
        step, spent = max(1, -(-read // self._batch)), self.spent.round_seconds()
        whole = number * -(-self._records // self._batch) + step
        if sealed or self._kept is None or self._kept > whole:
            self._kept = whole if sealed else whole - 1
        facts = {
            "pass": number,
            "passes": self._pod.passes,
            "pass_step": step,
            "records": read,
            "shard": self._records,
            "trainers": self._session.trainers,
            "spent": spent,
            "kept": self._kept,
        }
        self._log.add(metrics, whole, now=at_once, **facts)
        print_step(whole, metrics)
        self._session.progress(number, step, self._made, spent, at_once=at_once)

    def record_pass(self, number: int, position: Position, attempt: int, trainers: int) -> None:
        """Records a complete pass on the volume, and prints it."""
        metrics = {
            "pass": number,
            "attempt": attempt,
            "trainer": self._session.trainer_id,
            "trainers": trainers,
            "loss": round(position.total / position.trained, 6),
            "records": position.read,
            "skipped": position.read - position.trained,
            "seconds": round(position.seconds, 3),
            "cpu_seconds": round(position.cpu_seconds, 3),
            "time": round(time.time(), 3),
            "passes": self._pod.passes,
        }
        pass_metrics.append(self._pod.folder.metrics(self._session.trainer_id), metrics)
        print(pass_metrics.format_line(metrics), flush=True)

"""The numbers that a variable may have, and its default, for pods and job.yaml alike."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from paddle_node.contract.ports import CONTROL_PORT, FIRST_PORT, MOST_PROCESSES
from paddle_node.contract.variables import Variable

LEASE = 90.0
"""Seconds; longer than the 60 s for which an NFS client may trust its cache of a directory."""


@dataclass(frozen=True)
class Bounds:
    """The numbers that a variable may have."""

    default: float | None = None
    """The number of a missing or empty variable; None: the variable must be set."""
    least: float | None = None
    most: float | None = None
    above: float | None = None
    """The number must exceed this one."""
    below: float | None = None
    """The number must stay under this one."""

    def hold(self, number: float) -> bool:
        """Returns whether the number is allowed."""
        return (
            (self.least is None or number >= self.least)
            and (self.most is None or number <= self.most)
            and (self.above is None or number > self.above)
            and (self.below is None or number < self.below)
        )


_PORT = Bounds(least=1, most=65535)

BOUNDS: Mapping[Variable, Bounds] = {
    Variable.PORT: replace(_PORT, default=FIRST_PORT),
    Variable.PORTS_NUM: Bounds(default=2, least=1, most=100),
    Variable.PORTS_NUM_SPARSE: Bounds(default=2, least=0, most=100),
    Variable.CONTROL_PORT: replace(_PORT, default=CONTROL_PORT),
    Variable.METRICS_PORT: Bounds(default=0, least=0, most=65535),
    Variable.API_PORT: replace(_PORT, default=443),
    # The agents' protocol is measured up to 10,000 pods (benchmarks/scale.py).
    Variable.TRAINERS: Bounds(least=1, most=10_000),
    Variable.COMPLETION_INDEX: Bounds(least=0, most=10_000),
    Variable.TRAINER_ID: Bounds(default=0, least=0, most=10_000),
    Variable.WORLD: Bounds(default=0, least=0, most=10_000_000),
    Variable.THREADS: Bounds(default=1, least=1, most=1024),
    Variable.PROCESSES: Bounds(default=1, least=1, most=MOST_PROCESSES),
    Variable.GPUS: Bounds(default=0, least=0, most=MOST_PROCESSES),
    Variable.EFA: Bounds(default=0, least=0, most=32),
    Variable.PASSES: Bounds(default=10, least=1, most=99_999),
    Variable.KEEP_PASSES: Bounds(default=0, least=0, most=99_999),
    Variable.SEED: Bounds(default=0, least=0, below=2**31),
    Variable.ATTEMPTS: Bounds(default=3, least=1, most=1000),
    Variable.RETRIES: Bounds(default=6, least=0, most=1000),
    Variable.ATTEMPT: Bounds(default=1, least=1, below=2**63),
    Variable.SPLIT_COUNT: Bounds(least=1, most=10_000),
    Variable.SPLIT_PODS: Bounds(default=1, least=1, most=1000),
    Variable.HEADER: Bounds(default=0, least=0, most=1),
    Variable.HOLD_OUT: Bounds(default=0.0, least=0, below=1),
    Variable.STAGE_ROOM: Bounds(least=0, below=2**63),
    Variable.CHECKPOINT: Bounds(above=0),
    # A node group that scales up from zero starts its pods within this time.
    Variable.PEER_DEADLINE: Bounds(default=900, above=0),
    # Kubernetes' terminationGracePeriodSeconds is 30 unless the pod says otherwise.
    Variable.GRACE: Bounds(default=25, above=0),
    Variable.STALL: Bounds(default=900, above=0),
    # Another run waits as long for a holder that died.
    Variable.LEASE: Bounds(default=LEASE, above=0, most=3600),
}
"""The numbers that pods accept and, unless it states others, job.yaml. Seconds may be fractions."""

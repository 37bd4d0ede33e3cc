"""The folders and files of a job on the volume."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from paddle_node.contract import DATA_MANIFEST


@dataclass(frozen=True)
class JobFolder:
    """`<volume>/<job name>/`, the layout that all jobs, tools and people read."""

    root: Path
    manifest: Path | None = None
    """The data manifest of the run, once it is known; None: the newest one of the job's folder."""
    data: Path | None = None
    """The folder with this pod's data, once it is verified."""
    inputs: Mapping[str, Path] = field(default_factory=dict)
    """The file or folder of each input, once it is verified."""

    def shard(self, index: int) -> Path:
        """Shard `<i>/data`: 0-based, one per trainer id."""
        return self.root / str(index) / "data"

    def older_shard(self, index: int) -> Path:
        """`data/<i>`, another tutorial's layout: read if `shard` is absent."""
        return self.root / "data" / str(index)

    @property
    def held_out(self) -> Path:
        """Records kept from training for evaluation (ours)."""
        return self.root / "held-out" / "data"

    @property
    def data_manifest(self) -> Path:
        return self.manifest or self.root / DATA_MANIFEST

    @property
    def splits(self) -> Path:
        """One folder per split, complete once it has its own `SPLIT_MANIFEST` (ours)."""
        return self.root / "splits"

    @property
    def programs(self) -> Path:
        """Copies of training programs, each valid only with a record that was created exclusively
        (ours).
        """
        return self.root / "programs"

    def archive(self, digest: str) -> Path:
        """A program's archive, uploaded before the job starts; a pod trusts it only if its bytes
        have this SHA-256 (ours).
        """
        return self.programs / f"{digest}.tar"

    def program(self, train_config_dir: str) -> Path:
        return self.root / train_config_dir

    @property
    def output(self) -> Path:
        return self.root / "output"

    def node(self, trainer_id: int) -> Path:
        """Logs and metrics of one trainer id (never a Kubernetes node)."""
        return self.output / f"node_{trainer_id}"

    def server_log(self, trainer_id: int) -> Path:
        return self.node(trainer_id) / "server.log"

    def train_log(self, trainer_id: int) -> Path:
        return self.node(trainer_id) / "train.log"

    @property
    def run_state(self) -> Path:
        """The lease and the record of the attempts: durable facts, written only by the agent of
        trainer 0 (ours).
        """
        return self.output / "run"

    def steps(self, trainer_id: int, rank: int) -> Path:
        """What one process of the pod reports about its steps: {attempt, step, time, metrics, ...}
        per line (ours).
        """
        return self.node(trainer_id) / f"steps-{rank}.jsonl"

    def metrics(self, trainer_id: int) -> Path:
        """One JSON object per line: {pass, attempt, trainer, loss, records, seconds, time}
        (ours).
        """
        return self.node(trainer_id) / "metrics.jsonl"

    @property
    def attempts(self) -> Path:
        return self.output / "attempts"

    def attempt(self, run: str, number: int) -> Path:
        """What one attempt saves, and only it: its passes, its newest checkpoint, its model for
        inference; a command's `output` (ours).
        """
        return self.attempts / f"{run}-{number}"

    @property
    def set_aside(self) -> Path:
        """What commands of other programs, or on other data, have left (ours)."""
        return self.output / "set-aside"

    def pass_dir(self, number: int) -> Path:
        """Paddle 0.x writes here; otherwise a link for people, to the folder of the attempt that
        saved the pass.
        """
        return self.output / f"pass-{number:05d}"

    def done(self, number: int) -> Path:
        """Written last, after fsync: a pass without it is incomplete and never loaded."""
        return self.pass_dir(number) / "done"

"""Where a job's settings come from: a job file, or a mapping, and what overrides them."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from k8s_charts.spec import TrainingJob
from paddle_settings import layers, overrides

NO_FILE = "-"
"""Stands for the job file in a command line whose overrides are all settings."""


@dataclass(frozen=True)
class JobSource:
    """A job's settings before they are checked."""

    file: Path
    """The job file. Local paths in the settings are relative to its folder."""
    overrides: tuple[str, ...] = ()
    """`SETTING=VALUE`, in order."""

    @classmethod
    def from_job(cls, job: str | Path | Mapping[str, Any], more: Sequence[str] | None = ()) -> Self:
        """Accepts a job file, or settings, whose local paths are relative to the current folder."""
        if isinstance(job, Mapping):
            return cls(Path(NO_FILE), (*overrides.from_mapping(job), *(more or ())))
        return cls(Path(job), tuple(more or ()))

    def load(self, *, fetch: bool = False) -> TrainingJob:
        """Checks the settings as `TrainingJob.load` does. Raises SettingError."""
        file = None if self.file.name == NO_FILE else self.file
        layered = layers.Layers({}, [], []) if file is None else layers.load(file)
        settings = overrides.apply(layered.merged, self.overrides)
        layered.check_locks(TrainingJob, "job.yaml")
        layered.check_change("--set", settings)
        with layered.naming_files() if layered.files else nullcontext():
            return TrainingJob.parse(
                settings,
                self.file.parent,
                fetch=fetch,
                job_file=file,
                handed_down=layered.handed_down,
            )

    def words(self) -> list[str]:
        """Returns the overrides as words of a command line."""
        return [word for override in self.overrides for word in ("--set", override)]

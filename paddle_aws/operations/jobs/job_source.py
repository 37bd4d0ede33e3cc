"""What says which job is meant: its name, which needs no file, a job file (default: job.yaml), or a
mapping; and what overrides their settings.
"""

import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from k8s_charts.spec import TrainingJob
from paddle_aws.operations.errors import BadInput
from paddle_aws.operations.options import DEFAULT, DEFAULT_NAMESPACE, LABEL
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

    def command(self, *words: str, **options: object) -> list[str]:
        """Returns the command line on which a module of this project gets this job. An option that
        is None or False is left out.
        """
        # -P: nothing in the user's folder may take the place of this project's modules.
        command = [sys.executable, "-P", "-m", *words, "--job", str(self.file), *self.words()]
        for name, value in options.items():
            if value is not None and value is not False:
                command.append(f"--{name.replace('_', '-')}")
                command += [str(value)] if value is not True else []
        return command

    def words(self) -> list[str]:
        """Returns the overrides as words of a command line."""
        return [word for override in self.overrides for word in ("--set", override)]


@dataclass(frozen=True)
class JobReference:
    """The job that the argument means."""

    name: str
    namespace: str
    file: Path | None
    """The job file, if one was given."""


def resolve_job(argument: str, namespace: str | None) -> JobReference:
    """Reads the argument. Raises BadInput or SettingError with one sentence."""
    path = Path(argument)
    if path.suffix in (".yaml", ".yml") or path.is_file():
        if argument == DEFAULT and not path.exists():
            raise BadInput("JOB is missing: name the job, or a job file, or go where job.yaml is")
        job = TrainingJob.load(path)
        if namespace is not None and namespace != job.namespace:
            raise BadInput(
                f"--namespace is {namespace}: {path} says {job.namespace}; leave one of them out"
            )
        return JobReference(job.name, job.namespace, path)
    if not LABEL.fullmatch(argument):
        raise BadInput(
            f"JOB is {argument!r}: that is neither a file nor a name (lower-case letters, digits "
            "and dashes)"
        )
    return JobReference(argument, namespace or DEFAULT_NAMESPACE, None)

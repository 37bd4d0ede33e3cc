"""The JOB argument of the commands: a job's name, which needs no file, or the job file that has it
(default: job.yaml).
"""

from dataclasses import dataclass
from pathlib import Path

from k8s_charts.spec import TrainingJob
from paddle_aws.operations.errors import BadInput
from paddle_aws.operations.options import DEFAULT, DEFAULT_NAMESPACE, LABEL


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

"""The JOB argument of the commands: a job's name, which needs no file, or the job file that has it
(default: job.yaml).
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from k8s_charts.spec import TrainingJob
from paddle_aws.operations.errors import BadInput
from paddle_aws.operations.screen import DEFAULT_NAMESPACE, LABEL

DEFAULT = "job.yaml"


def _here(incomplete: str) -> list[str]:
    """Completes in a shell the job files here and the jobs that they name. Asks no cluster: Tab has
    to be quick.
    """
    found: list[str] = []
    for path in sorted(Path().glob("*.y*ml")):
        text = path.read_text(errors="replace")
        if re.search(r"^(data|trainers|program|command):", text, re.MULTILINE):
            found += [str(path), *re.findall(r"^name: *([a-z0-9-]+)", text, re.MULTILINE)]
    return [one for one in found if one.startswith(incomplete)]


JobArgument = Annotated[
    str,
    typer.Argument(metavar="JOB", help="The job's name, or its job file.", autocompletion=_here),
]

OptionalJobArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="JOB",
        help="The job's name, or its job file. Default: all jobs.",
        autocompletion=_here,
        show_default=False,
    ),
]


@dataclass(frozen=True)
class Named:
    """The job that the argument means."""

    name: str
    namespace: str
    file: Path | None
    """The job file, if one was given."""


def named(argument: str, namespace: str | None) -> Named:
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
        return Named(job.name, job.namespace, path)
    if not LABEL.fullmatch(argument):
        raise BadInput(
            f"JOB is {argument!r}: that is neither a file nor a name (lower-case letters, digits "
            "and dashes)"
        )
    return Named(argument, namespace or DEFAULT_NAMESPACE, None)

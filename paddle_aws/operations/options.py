"""The options and arguments that several commands take, and their defaults."""

import re
from pathlib import Path
from typing import Annotated

import typer

from paddle_settings.shared_names import NAMESPACE

Config = Annotated[Path, typer.Argument(metavar="CLUSTER", help="The cluster's settings.")]
CLUSTER = Path("cluster.yaml")
JobFile = Annotated[Path, typer.Argument(metavar="JOB", help="The job file.")]
JOB_FILE = Path("job.yaml")
DEFAULT = "job.yaml"
"""The JOB argument of commands that also take a job's name."""
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SETTING=VALUE",
        help="Override a setting of the job file, such as trainers=4 or data.source=b.tsv; "
        "'command+=--lr 0.01' appends. Repeat it for several.",
    ),
]
Outputs = Annotated[Path, typer.Option(help="What `cdk deploy --outputs-file` wrote.")]
OUTPUTS = Path("outputs.json")
ImageFile = Annotated[Path, typer.Option(help="What `make push` wrote.")]
IMAGE_FILE = Path("image.json")
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, for programs.")]
LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
"""A Kubernetes name, such as a namespace's or a job's."""


def _namespace(text: str | None) -> str | None:
    if text is not None and not LABEL.fullmatch(text):
        raise typer.BadParameter(
            f"{text} is not a namespace: lower-case letters, digits and dashes are allowed"
        )
    return text


Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        callback=_namespace,
        help="Kubernetes namespace. Default: the job file's, else paddle.",
    ),
]
Context = Annotated[
    str | None, typer.Option(help="Context of the kubeconfig. Default: the current one.")
]
DEFAULT_NAMESPACE = NAMESPACE


def job_arguments(name: str, namespace: str) -> str:
    """Returns a job's arguments for the commands that messages suggest; these commands work from
    any folder.
    """
    return name if namespace == DEFAULT_NAMESPACE else f"{name} -n {namespace}"


def _complete_job(incomplete: str) -> list[str]:
    """Completes in a shell the job files here and the jobs that they name. Asks no cluster: Tab has
    to be quick.
    """
    words: list[str] = []
    for path in sorted(Path().glob("*.y*ml")):
        text = path.read_text(errors="replace")
        if re.search(r"^(data|trainers|program|command):", text, re.MULTILINE):
            words += [str(path), *re.findall(r"^name: *([a-z0-9-]+)", text, re.MULTILINE)]
    return [word for word in words if word.startswith(incomplete)]


JobArgument = Annotated[
    str,
    typer.Argument(
        metavar="JOB", help="The job's name, or its job file.", autocompletion=_complete_job
    ),
]
OptionalJobArguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="JOB...",
        help="The job's name, or its job file. Default: all jobs.",
        autocompletion=_complete_job,
        show_default=False,
    ),
]
OfRehearsal = Annotated[
    bool | None,
    typer.Option(
        "--rehearsal/--no-rehearsal",
        help="The last rehearsal in this folder, or the cluster's job. Default: the rehearsal, if "
        "one ran last here.",
        show_default=False,
    ),
]
NoTry = Annotated[
    bool, typer.Option("--no-try", help="Skip the trial of the program on its first records.")
]
Wait = Annotated[
    bool, typer.Option("--wait", help="Wait for the end; exit code 1 if the job fails.")
]
Follow = Annotated[
    bool, typer.Option("--follow", "-f", help="Show each pass when it is trained, until the end.")
]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose", "-v", help="With --follow: show the complete logs of all ranks instead."
    ),
]
Out = Annotated[Path, typer.Option(help="The file to write.")]

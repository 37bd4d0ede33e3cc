"""The console script `paddle-aws`. Each command is a function in a module of its own, registered here."""

import inspect
import io
import sys
from collections.abc import Callable
from importlib.metadata import version as installed
from typing import Annotated

import typer

from operations.commands.bootstrap import bootstrap
from operations.commands.cancel import cancel
from operations.commands.cost import cost
from operations.commands.delete import delete
from operations.commands.diff import diff
from operations.commands.doctor import doctor
from operations.commands.evaluate import evaluate
from operations.commands.kubeconfig import eks_token, kubeconfig
from operations.commands.leftovers import leftovers
from operations.commands.listing import list_jobs
from operations.commands.lock import add_ons
from operations.commands.lock_distribution import distribution
from operations.commands.logs import logs
from operations.commands.manifests import manifests
from operations.commands.prices import prices
from operations.commands.protect import protect
from operations.commands.results import results
from operations.commands.resume import resume
from operations.commands.status import status
from operations.commands.submit import submit
from operations.commands.trial import try_program
from operations.commands.upload import upload
from operations.commands.wait import wait
from operations.screen import colours

app = typer.Typer(name="paddle-aws", no_args_is_help=True, pretty_exceptions_enable=False)
COMMANDS: tuple[Callable[..., None], ...] = (
    *(try_program, manifests, submit, status, list_jobs, logs, wait, cancel, delete, results, evaluate, resume),
    *(upload, kubeconfig, bootstrap, doctor, diff, protect, leftovers, cost),
)
NAMES = {list_jobs: "list", try_program: "try"}
"""Python's words."""


def register(group: typer.Typer, one: Callable[..., None], name: str | None = None) -> None:
    """Adds a command; the paragraphs of its docstring flow to the terminal's width, whatever the source's is."""
    text = inspect.cleandoc(one.__doc__ or "").split("\n\n")
    group.command(name, help="\n\n".join(" ".join(part.split()) for part in text))(one)


for one in COMMANDS:
    register(app, one, NAMES.get(one))
lock = typer.Typer(
    name="lock",
    help="Read versions, hashes and prices at their source into a dated file below locks/. Nothing is known before.",
    no_args_is_help=True,
)
for one in (add_ons, distribution, prices):
    register(lock, one)
app.add_typer(lock)
app.command("eks-token", hidden=True)(eks_token)


def _say_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"paddle-aws {installed('paddle-aws')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Train PaddlePaddle jobs on a cluster that `cdk deploy` made."""


def main() -> None:
    """Entry point of the console script."""
    for stream in (sys.stdout, sys.stderr):
        # A program's log may hold what the terminal's encoding has not: a question mark is better than an end.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    if colours() is None:
        from typer import rich_utils

        rich_utils.COLOR_SYSTEM = None
    app()


if __name__ == "__main__":
    main()

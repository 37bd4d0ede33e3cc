"""The console script `paddle-aws`. Each command is a function in a module of its own, registered here."""

from __future__ import annotations

import inspect
import io
import sys
from collections.abc import Callable

import typer

from operations.cancel import cancel
from operations.cost import cost
from operations.delete import delete
from operations.doctor import doctor
from operations.evaluate import evaluate
from operations.kubeconfig import eks_token, kubeconfig
from operations.leftovers import leftovers
from operations.listing import list_jobs
from operations.lock import add_ons, prices
from operations.lock_distribution import distribution
from operations.logs import logs
from operations.manifests import manifests
from operations.results import results
from operations.resume import resume
from operations.status import status
from operations.submit import submit
from operations.upload import upload
from operations.wait import wait

app = typer.Typer(
    name="paddle-aws",
    help="Train PaddlePaddle jobs on a cluster that `cdk deploy` made.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
COMMANDS: tuple[Callable[..., None], ...] = (
    *(manifests, submit, status, list_jobs, logs, wait, cancel, delete, results, evaluate, resume),
    *(upload, kubeconfig, doctor, leftovers, cost),
)
for one in COMMANDS:
    app.command("list" if one is list_jobs else None)(one)
lock = typer.Typer(
    name="lock",
    help="Read versions, hashes and prices at their source into a dated file below locks/. Nothing is known before.",
    no_args_is_help=True,
)
lock.command("add-ons")(add_ons)
lock.command()(distribution)
lock.command()(prices)
app.add_typer(lock)
app.command("eks-token", hidden=True)(eks_token)


def flow(group: typer.Typer) -> None:
    """Gives the commands their help, from their docstrings: paragraphs flow to the terminal's width, whatever the source's is."""
    for command in group.registered_commands:
        if command.help is None and command.callback is not None:
            text = inspect.cleandoc(command.callback.__doc__ or "")
            command.help = "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))
    for inner in group.registered_groups:
        if inner.typer_instance is not None:
            flow(inner.typer_instance)


flow(app)


def main() -> None:
    """Entry point of the console script."""
    for stream in (sys.stdout, sys.stderr):
        # A program's log may hold what the terminal's encoding has not: a question mark is better than an end.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    app()


if __name__ == "__main__":
    main()

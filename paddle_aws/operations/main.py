"""The console script `paddle-aws`. Registers the commands, each the function named like its module
in operations/commands.
"""

import inspect
import io
import os
import sys
from importlib import import_module
from importlib.metadata import version as installed
from typing import Annotated

import typer

from paddle_aws.operations.screen import colours

app = typer.Typer(name="paddle-aws", no_args_is_help=True, pretty_exceptions_enable=False)
COMMANDS = (
    "trial", "rehearse", "storm", "manifests", "submit", "status", "listing", "logs", "wait",
    "cancel", "delete", "results", "board", "evaluate", "resume", "upload", "kubeconfig",
    "bootstrap", "setup", "doctor", "diff", "protect", "leftovers", "cost",
)  # fmt: skip
LOCKS = ("lock", "lock_distribution", "prices")
NAMES = {"trial": "try", "listing": "list", "lock": "add-ons", "lock_distribution": "distribution"}
"""Commands whose names differ from those of their module and function."""


def register(group: typer.Typer, name: str) -> None:
    """Adds a command. Unwraps the paragraphs of its docstring, so that they fill the terminal's
    width.
    """
    command = getattr(import_module(f"paddle_aws.operations.commands.{name}"), name)
    text = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    group.command(NAMES.get(name), help="\n\n".join(" ".join(part.split()) for part in text))(
        command
    )


for name in COMMANDS:
    register(app, name)
lock = typer.Typer(
    name="lock",
    help="Read versions, hashes and prices at their source, and write them to a dated file below "
    "locks/.",
    no_args_is_help=True,
)
for name in LOCKS:
    register(lock, name)
app.add_typer(lock)


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(f"paddle-aws {installed('paddle-aws')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_say_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Train PaddlePaddle jobs on a cluster that `cdk deploy` made."""


def main() -> None:
    """Entry point of the console script."""
    for stream in (sys.stdout, sys.stderr):
        # A program's log may hold characters that the terminal's encoding lacks: a question mark is
        # better than a crash.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    if colours() is None:
        from typer import rich_utils

        rich_utils.COLOR_SYSTEM = None
    try:
        app()
    finally:
        try:
            sys.stdout.flush()
        except BrokenPipeError:  # `paddle-aws status | head`: nobody reads the rest.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()

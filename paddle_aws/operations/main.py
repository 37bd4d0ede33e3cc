"""The console script `paddle-aws`. Registers the commands, each the function named like its module
in operations/commands.
"""

import inspect
import io
import os
import sys
from importlib import import_module
from importlib.metadata import version as installed
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from paddle_aws.operations.errors import cli_errors
from paddle_aws.operations.screen import colours, echo

COMMANDS = {
    "Jobs": (
        "manifests", "submit", "status", "listing", "logs", "wait", "cancel", "resume", "delete",
        "results", "board", "evaluate", "upload",
    ),
    "This machine": ("trial", "rehearse", "storm"),
    "Cluster": ("kubeconfig", "setup", "diff", "protect"),
    "Account": ("bootstrap", "doctor", "leftovers", "cost", "acceptance"),
}  # fmt: skip
"""The modules of the commands, by their group in the help."""
HINTS = {
    "run": "`paddle-aws submit` runs a job on the cluster, `paddle-aws rehearse` on this machine",
    "deploy": "`cdk deploy --all --outputs-file outputs.json` deploys the cluster",
    "ps": "`paddle-aws list` shows all jobs, `paddle-aws status` the pods of one",
    "get": "`paddle-aws results` fetches what a job wrote, `paddle-aws list` shows all jobs",
}
"""Commands of other tools, and what does the same here."""

USAGE: Any = typer.BadParameter.__base__
"""UsageError of click, or of the copy of it that newer releases of Typer have."""


class Commands(TyperGroup):
    """The commands; names what another tool's command is called here."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if hint := HINTS.get(args[0]):
            typer.echo(f"{args[0]} is not a command of paddle-aws: {hint}", err=True)
            raise typer.Exit(2)
        return super().resolve_command(ctx, args)

    def main(self, *args: Any, **more: Any) -> Any:
        """Runs a command and ends the process. One sentence says what is wrong with an option or an
        argument; Typer's own box is none.
        """
        try:
            sys.exit(super().main(*args, **more | {"standalone_mode": False}))
        except typer.Abort:
            typer.echo("Aborted.", err=True)
            sys.exit(1)
        except USAGE as error:
            if message := error.format_message():
                command = error.ctx.command_path if error.ctx else "paddle-aws"
                message = message[0].lower() + message[1:].rstrip(".")
                typer.echo(
                    f"{command}: {message}; `{command} --help` shows what is allowed", err=True
                )
            sys.exit(error.exit_code)


app = typer.Typer(
    name="paddle-aws", cls=Commands, no_args_is_help=True, pretty_exceptions_enable=False
)
LOCKS = ("lock", "lock_distribution", "prices")
NAMES = {"trial": "try", "listing": "list", "lock": "add-ons", "lock_distribution": "distribution"}
"""Commands whose names differ from those of their module and function."""


def register(group: typer.Typer, name: str, panel: str | None = None) -> None:
    """Adds a command to a group of the help; its errors become sentences. Unwraps the paragraphs of
    its docstring, so that they fill the terminal's width.
    """
    command = getattr(import_module(f"paddle_aws.operations.commands.{name}"), name)
    text = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    words = "\n\n".join(" ".join(part.split()) for part in text)
    group.command(NAMES.get(name), help=words, rich_help_panel=panel)(cli_errors()(command))


for panel, modules in COMMANDS.items():
    for name in modules:
        register(app, name, panel)
lock = typer.Typer(
    name="lock",
    help="Read versions, hashes and prices at their source, and write them to a dated file below "
    "locks/.",
    no_args_is_help=True,
)
for name in LOCKS:
    register(lock, name)
app.add_typer(lock, rich_help_panel="Account")


def _say_version(asked: bool) -> None:
    if asked:
        echo(f"paddle-aws {installed('paddle-aws')}")
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

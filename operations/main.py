"""The console script `paddle-aws`. Each command is a function in a module of its own, registered here."""

from __future__ import annotations

import typer

from operations.manifests import manifests

app = typer.Typer(
    name="paddle-aws",
    help="Train PaddlePaddle jobs on a cluster that `cdk deploy` made.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(manifests)


@app.callback()
def _commands() -> None:
    """Keeps `manifests` a sub-command while it is the only one."""


def main() -> None:
    """Entry point of the console script."""
    app()


if __name__ == "__main__":
    main()

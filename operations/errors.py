"""Bad input of a user: one sentence on stderr and exit code 2, never a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from k8s_charts.errors import JobError

BAD_INPUT = 2


@contextmanager
def explained() -> Iterator[None]:
    """Turns the errors that our readers of settings raise into their sentence and exit code 2."""
    try:
        yield
    except JobError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(BAD_INPUT) from None

"""The commands' help, from their docstrings: paragraphs flow to the terminal's width, whatever the source's is."""

from __future__ import annotations

import inspect

import typer


def flow(app: typer.Typer) -> None:
    """Gives every command of an app, and of its groups, its help."""
    for command in app.registered_commands:
        if command.help is None and command.callback is not None:
            command.help = paragraphs(command.callback.__doc__ or "")
    for group in app.registered_groups:
        if group.typer_instance is not None:
            flow(group.typer_instance)


def paragraphs(text: str) -> str:
    """Each paragraph on one line."""
    return "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(text).split("\n\n"))

"""`paddle-aws lock`: the group of commands that read a number at its source. Each is a function in a module of its own."""

from __future__ import annotations

import typer

from operations.lock_add_ons import add_ons
from operations.lock_distribution import distribution
from operations.lock_prices import prices

lock = typer.Typer(
    help="Read versions, hashes and prices at their source into a dated file below locks/. Nothing is known before.",
    no_args_is_help=True,
)
lock.command("add-ons")(add_ons)
lock.command()(distribution)
lock.command()(prices)

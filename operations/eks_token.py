"""`paddle-aws eks-token`: what a kubeconfig calls for a token where the aws CLI is not installed; nobody types it."""

from __future__ import annotations

from typing import Annotated

import typer

from operations.errors import explained


def eks_token(
    name: Annotated[str, typer.Argument(help="The cluster's name.")], region: Annotated[str, typer.Argument(help="Its region.")]
) -> None:
    """Print a token for kubectl, as `aws eks get-token` does."""
    with explained():
        from operations import eks

        typer.echo(eks.token(name, region))

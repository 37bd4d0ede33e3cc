"""`paddle-aws kubeconfig`: the deployed cluster's entry for kubectl and for these commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from operations.errors import explained
from operations.screen import say


def kubeconfig(
    config: Annotated[Path, typer.Argument(metavar="[CLUSTER]", help="The cluster's settings.")] = Path("cluster.yaml"),
    file: Annotated[Path | None, typer.Option(help="Default: $KUBECONFIG's first file, else ~/.kube/config.")] = None,
    alias: Annotated[str | None, typer.Option(help="The context's name. Default: the cluster's ARN.")] = None,
) -> None:
    """Write the deployed cluster into the kubeconfig, as `aws eks update-kubeconfig` does, and make it the current one.

    Other entries stay. No credential is written: a program gives a token for each use, aws where it is installed, else
    paddle-aws itself.

    Example: paddle-aws kubeconfig --alias paddle
    """
    with explained():
        from operations import eks
        from operations.cluster import kubeconfig as default
        from stacks.cluster_spec import ClusterSpec

        spec = ClusterSpec.load(config)
        found = eks.describe(spec.cluster_name, spec.region)
        path = file or Path(default().split(":")[0])
        context = eks.write_kubeconfig(path, found, spec.region, alias)
        say(f"{path} has the context {context}, and it is the current one")
        if not found.public:
            say("its endpoint is private: it is reached from its VPC, or by a port forward (docs/aws.md)")


def eks_token(
    name: Annotated[str, typer.Argument(help="The cluster's name.")], region: Annotated[str, typer.Argument(help="Its region.")]
) -> None:
    """Print a token for kubectl, as `aws eks get-token` does."""
    with explained():
        from operations import eks

        typer.echo(eks.token(name, region))

"""`paddle-aws kubeconfig`: the deployed cluster's entry for kubectl and for these commands."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from paddle_aws.operations.account.access import tunnel as tunnels
from paddle_aws.operations.account.access.entries import Team, eks_entry, team_entry
from paddle_aws.operations.account.aws import load_deployable
from paddle_aws.operations.cluster import cluster_api, kubeconfig_file
from paddle_aws.operations.cluster.kubeconfig_file import Entry
from paddle_aws.operations.errors import BadInput, cli_errors
from paddle_aws.operations.options import CLUSTER, Config
from paddle_aws.operations.screen import say
from paddle_aws.stacks.cluster_spec import ClusterSpec


def kubeconfig(
    config: Config = CLUSTER,
    file: Annotated[
        Path | None, typer.Option(help="Default: $KUBECONFIG's first file, else ~/.kube/config.")
    ] = None,
    alias: Annotated[
        str | None,
        typer.Option(help="The context's name. Default: the cluster's ARN, or its name."),
    ] = None,
    team: Annotated[
        Team | None,
        typer.Option(
            help="Whose rights in the cluster. Default: your own, if cluster.yaml names you; else "
            "operator."
        ),
    ] = None,
    tunnel: Annotated[
        bool,
        typer.Option(
            "--tunnel",
            help="Keep a tunnel open (Session Manager), which the entry then uses.",
        ),
    ] = False,
    port: Annotated[
        int, typer.Option(min=1, max=65535, help="The tunnel's port on this machine.")
    ] = 8443,
) -> None:
    """Write the deployed cluster into the kubeconfig, as `aws eks update-kubeconfig` does, and make
    it the current one.

    Other entries stay. For EKS it writes no credential: the aws CLI gives a token for each use, of
    the team's role, which you must be allowed to take. The credential of a self-managed cluster
    comes from Secrets Manager; only you can read the file.

    To reach a private endpoint, use --tunnel, which stays open until Ctrl-C, and work in another
    terminal.

    Example: paddle-aws kubeconfig --team trainer

    Example: paddle-aws kubeconfig --tunnel
    """
    with cli_errors(
        "the tunnel is closed" if tunnel else "interrupted: the kubeconfig is as it was"
    ):
        spec = load_deployable(config)
        entry, public = _entry(spec, team)
        path = file or Path(cluster_api.kubeconfig().split(":")[0])
        if tunnel and not spec.cluster.has_tunnel:
            private = "private: set cluster.tunnel true and deploy"
            endpoint = "public" if public else private
            raise BadInput(f"cluster {spec.name} has no tunnel: its endpoint is {endpoint}")
        if not tunnel:
            context = kubeconfig_file.merge(path, entry, alias)
            say(f"{path} has the context {context}, and it is the current one")
            if not public:
                say(
                    "its endpoint is private: reach it from its VPC, or with `paddle-aws "
                    "kubeconfig --tunnel`"
                )
            return
        _hold_tunnel(spec, entry, path, alias, port)


def _entry(spec: ClusterSpec, team: Team | None) -> tuple[Entry, bool]:
    """Returns the cluster's entry, and whether its endpoint is public."""
    if spec.cluster.self_managed:
        entry = team_entry(spec.name, spec.region, team or "operator")
        return entry, bool(spec.cluster.public_access_from)
    if shutil.which("aws") is None:
        say("the aws CLI is not on PATH, and gives kubectl and paddle-aws their tokens: install it")
    return eks_entry(spec, team)


def _hold_tunnel(spec: ClusterSpec, entry: Entry, path: Path, alias: str | None, port: int) -> None:
    target = entry.cluster | {"server": f"https://127.0.0.1:{port}"}
    if not spec.cluster.self_managed:
        # EKS's certificate is valid only for its own name; ours is also valid for 127.0.0.1.
        target["tls-server-name"] = str(urlsplit(entry.cluster["server"]).hostname)

    def announce() -> None:
        context = kubeconfig_file.merge(path, replace(entry, cluster=target), alias)
        say(
            f"{path} has the context {context}, which leads through this tunnel "
            f"(127.0.0.1:{port}); Ctrl-C closes it"
        )

    tunnels.forward_port(spec.tunnel_document, spec.region, port, announce)
    say("the tunnel is closed")

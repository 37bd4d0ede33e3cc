"""`paddle-aws lock distribution`: reads which files and images a self-managed cluster runs from
their publishers' lists.

Promises: locks/distribution.json changes only after the command has read everything that it names,
and has downloaded each file with the SHA-256 of the release's own list. The files are in
.cache/distribution/<version>/, ready for the bucket.
"""

import re
from typing import Annotated

import typer

from paddle_aws.operations.errors import BadInput, cli_errors
from paddle_aws.operations.options import CLUSTER, Config
from paddle_aws.stacks.cluster_spec import load_cluster
from paddle_aws.stacks.distribution_lock import VERSION
from paddle_settings.addresses import hide_secrets

CHANNELS = "https://update.k3s.io/v1-release/channels"
RELEASES = "https://github.com/k3s-io/k3s/releases/download"
CHARTS = "https://kubernetes-sigs.github.io/aws-efs-csi-driver"


@cli_errors("interrupted: the lock is unchanged, and downloaded files are used again")
def lock_distribution(
    config: Config = CLUSTER,
    version: Annotated[
        str | None,
        typer.Option(
            help="A k3s release, such as v1.35.2+k3s1. Default: the newest of the cluster's "
            "Kubernetes version."
        ),
    ] = None,
    fetch_only: Annotated[
        bool,
        typer.Option(
            "--fetch-only",
            help="Download the files that the existing lock names, for another machine; the lock "
            "stays as it is.",
        ),
    ] = False,
    channels: Annotated[
        str, typer.Option(help="Where k3s's release channels are, or a mirror.")
    ] = CHANNELS,
    releases: Annotated[
        str, typer.Option(help="Where k3s's releases are, or a mirror.")
    ] = RELEASES,
    charts: Annotated[
        str, typer.Option(help="The EFS driver's Helm repository, or a mirror.")
    ] = CHARTS,
) -> None:
    """Read the files and images of a self-managed cluster's Kubernetes (k3s) at their source, and
    download the files.

    Needs no AWS credentials. Files that are there already are not downloaded again.

    Example: paddle-aws lock distribution --version v1.35.2+k3s1
    """
    # Imported here: requests takes a tenth of a second to load.
    from paddle_aws.operations.account.locks import distribution

    spec = load_cluster(config)
    if fetch_only:
        distribution.fetch(spec)
        return
    for option, address in (("channels", channels), ("releases", releases), ("charts", charts)):
        if (allowed := hide_secrets(address)) != address:
            raise BadInput(
                f"--{option} is {allowed}: no user, password or query is allowed, as the "
                "lock names the address"
            )
    kubernetes = spec.cluster.version
    channel = f"{channels.rstrip('/')}/v{kubernetes}"
    version = distribution.newest(channel) if version is None else version
    if not re.fullmatch(VERSION, version):
        raise BadInput(
            f"--version is {version}: a k3s release such as v{kubernetes}.2+k3s1 is allowed"
        )
    if "version" in spec.cluster.model_fields_set and not version.startswith(f"v{kubernetes}."):
        raise BadInput(
            f"--version {version} is not Kubernetes {kubernetes}, which {config} asks for: "
            "change one of the two"
        )
    distribution.lock(spec, version, channel, releases, charts)

"""`paddle-aws lock distribution`: reads which files and images a self-managed cluster runs from
their publishers' lists.

Promises: locks/distribution.json changes only after the command has read everything that it names,
and has downloaded each file with the SHA-256 of the release's own list. The files are in
.cache/distribution/<version>/, ready for the bucket.
"""

import re
from typing import Annotated, Any
from urllib.parse import quote, unquote

import typer

from paddle_aws.operations.account.locks.distribution import read_images, read_sums
from paddle_aws.operations.account.locks.lock_file import write
from paddle_aws.operations.errors import BadInput, Failed, cli_errors
from paddle_aws.operations.options import CLUSTER, Config
from paddle_aws.operations.screen import say
from paddle_aws.stacks.cluster_spec import ClusterSpec, load_cluster
from paddle_aws.stacks.distribution_lock import FILES, VERSION, DistributionLock
from paddle_settings.addresses import hide_secrets

CHANNELS = "https://update.k3s.io/v1-release/channels"
RELEASES = "https://github.com/k3s-io/k3s/releases/download"
CHARTS = "https://kubernetes-sigs.github.io/aws-efs-csi-driver"

SUMS = "sha256sum-amd64.txt"


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
    with cli_errors("interrupted: the lock is unchanged, and downloaded files are used again"):
        spec = load_cluster(config)
        if fetch_only:
            _fetch(spec)
            return
        for option, address in (("channels", channels), ("releases", releases), ("charts", charts)):
            if (allowed := hide_secrets(address)) != address:
                raise BadInput(
                    f"--{option} is {allowed}: no user, password or query is allowed, as the "
                    "lock names the address"
                )
        kubernetes = spec.cluster.version
        channel = f"{channels.rstrip('/')}/v{kubernetes}"
        version = _newest(channel) if version is None else version
        if not re.fullmatch(VERSION, version):
            raise BadInput(
                f"--version is {version}: a k3s release such as v{kubernetes}.2+k3s1 is allowed"
            )
        if "version" in spec.cluster.model_fields_set and not version.startswith(f"v{kubernetes}."):
            raise BadInput(
                f"--version {version} is not Kubernetes {kubernetes}, which {config} asks for: "
                "change one of the two"
            )
        _lock(spec, version, channel, releases, charts)


def _fetch(spec: ClusterSpec) -> None:
    """Downloads what the existing lock names."""
    # Imported here: requests takes a tenth of a second to load.
    from paddle_aws.operations.account.download import download

    place = spec.cluster.distribution
    lock = DistributionLock.load(place.lock_path)
    folder = lock.folder(place.files_path)
    for name in FILES:
        download(lock.files[name].url, folder / name, lock.files[name].sha256)
    say(f"{', '.join(FILES)} of {lock.version} are in {folder}")


def _newest(channel: str) -> str:
    """Returns the release that a channel leads to."""
    from paddle_aws.operations.account.download import redirection

    leads = redirection(channel)
    version = unquote(leads.rstrip("/").rpartition("/")[2])
    if not re.fullmatch(VERSION, version):
        raise Failed(
            f"{channel} leads to {hide_secrets(leads)}, which is not a k3s release: "
            "name one by --version"
        )
    return version


def _lock(spec: ClusterSpec, version: str, channel: str, releases: str, charts: str) -> None:
    """Downloads a release's files, and locks them and the images of the EFS driver."""
    from paddle_aws.operations.account.download import content, download

    place = spec.cluster.distribution
    out, folder = place.lock_path, place.files_path / version
    release = f"{releases.rstrip('/')}/{quote(version)}"
    sums = read_sums(content(f"{release}/{SUMS}").decode(), f"{release}/{SUMS}", FILES)
    chart, images = read_images(charts)
    files: dict[str, dict[str, Any]] = {}
    for name in FILES:
        say(f"{release}/{name}")
        download(f"{release}/{name}", folder / name, sums[name])
        files[name] = {
            "url": f"{release}/{name}",
            "sha256": sums[name],
            "size": (folder / name).stat().st_size,
        }
    source = f"{channel}; {release}/{SUMS}; {chart}"
    write(
        out, source, {"distribution": "k3s", "version": version, "files": files, "images": images}
    )
    # The stacks will read what was written: this checks that they can.
    DistributionLock.load(out)
    say(
        f"k3s {version} and {len(images)} images of {chart} are in {out}; the files are in {folder}"
    )

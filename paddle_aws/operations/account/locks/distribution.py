"""The files and images that a self-managed cluster runs, from their publishers' lists."""

import hashlib
import io
import re
import tarfile
from urllib.parse import quote, unquote, urljoin

import yaml

from paddle_aws.operations.account.download import content, download, redirection
from paddle_aws.operations.account.locks.lock_file import write
from paddle_aws.operations.errors import Failed
from paddle_aws.operations.screen import say
from paddle_aws.stacks.cluster_spec import ClusterSpec
from paddle_aws.stacks.distribution_lock import FILES, VERSION, DistributionLock
from paddle_settings.addresses import hide_secrets

SUMS = "sha256sum-amd64.txt"
CHART = "aws-efs-csi-driver"
# Where the chart's values name the images of the driver's node part (JMESPath).
IMAGES = {
    "efs-csi-driver": "image",
    "node-driver-registrar": "sidecars.nodeDriverRegistrar.image",
    "liveness-probe": "sidecars.livenessProbe.image",
}


def fetch(spec: ClusterSpec) -> None:
    """Downloads what the existing lock names."""
    place = spec.cluster.distribution
    lock = DistributionLock.load(place.lock_path)
    folder = lock.folder(place.files_path)
    for name in FILES:
        download(lock.files[name].url, folder / name, lock.files[name].sha256)
    say(f"{', '.join(FILES)} of {lock.version} are in {folder}")


def newest(channel: str) -> str:
    """Returns the release that a channel leads to."""
    leads = redirection(channel)
    version = unquote(leads.rstrip("/").rpartition("/")[2])
    if not re.fullmatch(VERSION, version):
        raise Failed(
            f"{channel} leads to {hide_secrets(leads)}, which is not a k3s release: "
            "name one by --version"
        )
    return version


def lock(spec: ClusterSpec, version: str, channel: str, releases: str, charts: str) -> None:
    """Downloads a release's files, and locks them and the images of the EFS driver."""
    place = spec.cluster.distribution
    out, folder = place.lock_path, place.files_path / version
    release = f"{releases.rstrip('/')}/{quote(version)}"
    sums = _read_sums(f"{release}/{SUMS}")
    chart, images = _read_images(charts)
    files = {}
    for name in FILES:
        url, file = f"{release}/{name}", folder / name
        say(url)
        download(url, file, sums[name])
        files[name] = {"url": url, "sha256": sums[name], "size": file.stat().st_size}
    source = f"{channel}; {release}/{SUMS}; {chart}"
    locked = {"distribution": "k3s", "version": version, "files": files, "images": images}
    write(out, source, locked)
    # The stacks will read what was written: this checks that they can.
    DistributionLock.load(out)
    say(
        f"k3s {version} and {len(images)} images of {chart} are in {out}; the files are in {folder}"
    )


def _read_sums(url: str) -> dict[str, str]:
    """Returns the SHA-256 by file name; sha256sum marks binary mode with a `*` before the name."""
    lines = re.findall(r"^([0-9a-f]{64})\s+(\S+)$", content(url).decode(), re.MULTILINE)
    digests = {name.lstrip("*"): digest for digest, name in lines}
    if absent := [name for name in FILES if name not in digests]:
        raise Failed(f"{url} lists no {', '.join(absent)}: choose another release by --version")
    return digests


def _read_images(charts: str) -> tuple[str, dict[str, str]]:
    """Returns the newest chart's address, and the images that its values name."""
    # Imported here: not every command has jmespath.
    from jmespath import search

    index = f"{charts.rstrip('/')}/index.yaml"
    try:
        listing = yaml.load(content(index), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        released = [
            release
            for release in listing["entries"][CHART]
            if re.fullmatch(r"\d+\.\d+\.\d+", str(release["version"]))
        ]
        newest = max(released, key=lambda release: tuple(map(int, release["version"].split("."))))
        address = urljoin(index, newest["urls"][0])
        packed, url = content(address), hide_secrets(address)
        if hashlib.sha256(packed).hexdigest() != newest["digest"]:
            raise Failed(
                f"{url} does not have the SHA-256 that {index} lists ({newest['digest']}): "
                "nothing was changed"
            )
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            values = yaml.safe_load(archive.extractfile(f"{CHART}/values.yaml"))  # type: ignore[arg-type]
        parts = {name: search(f"{path}.[repository, tag]", values) for name, path in IMAGES.items()}
        return url, {name: ":".join(part) for name, part in parts.items()}
    except (yaml.YAMLError, tarfile.TarError, LookupError, TypeError, ValueError, AttributeError):
        raise Failed(
            f"{index} offers no release of {CHART} whose images can be read: name another by "
            "--charts"
        ) from None

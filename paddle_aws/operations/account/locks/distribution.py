"""The files and images that a self-managed cluster runs, from their publishers' lists."""

import hashlib
import io
import re
import tarfile
from urllib.parse import urljoin

import yaml

from paddle_aws.operations.errors import Failed
from paddle_settings.addresses import hide_secrets

CHART = "aws-efs-csi-driver"
# Where the chart's values name the images of the driver's node part (JMESPath).
IMAGES = {
    "efs-csi-driver": "image",
    "node-driver-registrar": "sidecars.nodeDriverRegistrar.image",
    "liveness-probe": "sidecars.livenessProbe.image",
}


def read_sums(listing: str, url: str, names: tuple[str, ...]) -> dict[str, str]:
    """Returns the SHA-256 by file name; sha256sum marks binary mode with a `*` before the name."""
    digests = {
        name.lstrip("*"): digest
        for digest, name in re.findall(r"^([0-9a-f]{64})\s+(\S+)$", listing, re.MULTILINE)
    }
    if absent := [name for name in names if name not in digests]:
        raise Failed(f"{url} lists no {', '.join(absent)}: choose another release by --version")
    return digests


def read_images(charts: str) -> tuple[str, dict[str, str]]:
    """Returns the newest chart's address, and the images that its values name."""
    # Imported here: not every command has jmespath, and requests takes a tenth of a second to load.
    from jmespath import search

    from paddle_aws.operations.account.download import content

    index = f"{charts.rstrip('/')}/index.yaml"
    try:
        entries = yaml.load(content(index), getattr(yaml, "CSafeLoader", yaml.SafeLoader))[
            "entries"
        ][CHART]
        released = [
            release
            for release in entries
            if re.fullmatch(r"\d+\.\d+\.\d+", str(release["version"]))
        ]
        newest = max(released, key=lambda release: tuple(map(int, release["version"].split("."))))
        packed, url = (
            content(urljoin(index, newest["urls"][0])),
            hide_secrets(urljoin(index, newest["urls"][0])),
        )
        if hashlib.sha256(packed).hexdigest() != newest["digest"]:
            raise Failed(
                f"{url} does not have the SHA-256 that {index} lists ({newest['digest']}): "
                "nothing was changed"
            )
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            values = yaml.safe_load(archive.extractfile(f"{CHART}/values.yaml"))  # type: ignore[arg-type]
        parts = {name: search(f"{path}.[repository, tag]", values) for name, path in IMAGES.items()}
        return url, {name: ":".join(part) for name, part in parts.items()}
    except (
        yaml.YAMLError,
        tarfile.TarError,
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
    ) as error:
        raise Failed(
            f"{index} offers no release of {CHART} whose images can be read: name another by "
            "--charts"
        ) from error

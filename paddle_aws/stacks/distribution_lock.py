"""The lock file of a self-managed cluster's Kubernetes distribution: the files that its machines
download, and where this machine keeps them.

The files have up to 200 MB and are not hashed here: each machine checks what it downloads. Imports
no aws_cdk.
"""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Annotated

from pydantic import Field

from paddle_settings.model import SettingError, Settings, read

COMMAND = "paddle-aws lock distribution"

FILES = ("k3s", "k3s-airgap-images-amd64.tar.zst")
IMAGES = ("efs-csi-driver", "node-driver-registrar", "liveness-probe")

VERSION = r"^v1\.\d{1,3}\.\d{1,3}\+k3s\d{1,3}$"


class LockedFile(Settings):
    """A file of the release as its publisher lists it."""

    url: str = Field(pattern=r"^https?://\S+$")
    """Where it was read."""
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    """Its SHA-256 in the publisher's list."""
    size: int = Field(gt=0)
    """Its size in bytes."""


class DistributionLock(Settings):
    """locks/distribution.json."""

    read: Annotated[datetime.date, Field(strict=False)]
    """The day on which it was read."""
    source: str
    """Where."""
    distribution: Annotated[str, Field(pattern=r"^k3s$")]
    """The distribution's name."""
    version: str = Field(pattern=VERSION)
    """Its version, such as v1.35.2+k3s1."""
    files: dict[str, LockedFile]
    """The release's files by name."""
    images: dict[
        str, Annotated[str, Field(pattern=r"^[a-z0-9][\w./-]*(:[\w.-]+)?(@sha256:[0-9a-f]{64})?$")]
    ]
    """References of the images of the EFS driver's node part."""

    @classmethod
    def load(cls, path: Path) -> DistributionLock:
        """Returns the lock at `path`. Raises SettingError, one sentence per fault, if it is missing
        or unusable.
        """
        if not path.exists():
            raise SettingError(
                f"{path} is missing: the versions and hashes of a self-managed cluster are read "
                f"at their source, run `{COMMAND}`"
            )
        lock = read(cls, path)
        for kind, needed, locked in (("file", FILES, lock.files), ("image", IMAGES, lock.images)):
            absent = [name for name in needed if name not in locked]
            if absent:
                raise SettingError(
                    f"{path} has no {kind} {', '.join(absent)}: run `{COMMAND}` again"
                )
        return lock

    @property
    def kubernetes(self) -> str:
        """The Kubernetes version, such as "1.35"."""
        return ".".join(self.version.removeprefix("v").split(".")[:2])

    def check_version(self, version: str, path: Path) -> None:
        """Raises SettingError if the lock is for another Kubernetes version than `version`, such as
        "1.35".
        """
        if self.kubernetes != version:
            raise SettingError(
                f'cluster.version is "{version}", but {path} holds {self.version}: '
                f'run `{COMMAND}`, or set the version to "{self.kubernetes}"'
            )

    def folder(self, cache: Path) -> Path:
        """Returns the folder of this version's files in the cache."""
        return cache / self.version

    def verified_files(self, cache: Path) -> list[tuple[str, Path, str]]:
        """Returns name, absolute path and SHA-256 of each cached file. Raises SettingError if one
        is missing or incomplete.
        """
        files = []
        for name in FILES:
            locked, path = self.files[name], (self.folder(cache) / name).absolute()
            size = path.stat().st_size if path.is_file() else None
            if size != locked.size:
                state = (
                    "is not on this machine"
                    if size is None
                    else f"has {size:,} bytes instead of {locked.size:,}"
                )
                raise SettingError(
                    f"{self.folder(cache) / name} {state}: run `{COMMAND} --fetch-only`"
                )
            files.append((name, path, locked.sha256))
        return files

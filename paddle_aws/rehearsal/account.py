"""The account of a rehearsal: it gives the job its manifests, its data and its pods' AWS
credentials. It is deployed into the emulator (deployed_account.py) or missing (local_account.py).
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from paddle_aws.rehearsal.folder import RehearsalFolder
from paddle_aws.rehearsal.screen import Screen


class Resource(NamedTuple):
    """One resource in the account: its service, its type within that service, and its
    identifier.
    """

    service: str
    type: str
    id: str

    def __str__(self) -> str:
        return f"{self.service} {self.type} {self.id}"


Inventory = frozenset[Resource]
"""What exists in the account at one time, in every service of the emulator, not only in those that
the app is known to use. A key that is pending deletion counts as gone, because AWS deletes no key
at once (7 to 30 days).
"""

_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")


class Account(AbstractContextManager["Account"], ABC):
    """The account of one rehearsal; it exists inside a `with` block."""

    image: str
    """The name of this project's image in the written manifests."""

    def __exit__(self, *error: object) -> None:
        """Ends what the account started, if it starts anything."""

    def deploy(self, folder: RehearsalFolder, screen: Screen) -> None:
        """Deploys the cluster, if this account can deploy."""

    @abstractmethod
    def write_manifests(self, folder: RehearsalFolder) -> list[Path]:
        """Writes the job's manifests for this account; returns the files."""

    @abstractmethod
    def upload(self, file: Path, address: str, links: Path) -> Path | None:
        """Puts a file at `address` (s3://bucket/key). Without a bucket, it makes the folder `links`
        with links to the file, or to a folder's files, and returns the one that the data job reads.
        """

    @abstractmethod
    def identity(self, namespace: str, account: str) -> Mapping[str, str]:
        """Returns the variables for the pods of a service account: its AWS credentials."""

    def destroy(self, screen: Screen) -> tuple[Resource, ...]:
        """Destroys the deployed stacks; returns the resources that are meant to stay."""
        return ()


def proxy_settings() -> dict[str, str]:
    """Returns this machine's proxy and certificate settings, which a pod needs to read data from an
    https:// address; never a proxy for the emulator, which is on this machine.
    """
    names = (*_PROXIES, *map(str.lower, _PROXIES), *_CERTIFICATES)
    return {name: os.environ[name] for name in names if name in os.environ} | proxy_exceptions()


def proxy_exceptions() -> dict[str, str]:
    """Returns the caller's proxy exceptions, and this machine."""
    given = {name: os.environ.get(name) for name in ("NO_PROXY", "no_proxy")}
    here = "127.0.0.1,localhost"
    return {name: f"{value},{here}" if value else here for name, value in given.items()}

"""Where a rehearsal's job gets its manifests, its bucket and its pods' AWS credentials from: an
account, deployed into the emulator (deployed_account.py) or missing (local_account.py).
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from paddle_aws.rehearsal.inventory import Resource
from paddle_aws.rehearsal.screen import Screen
from paddle_aws.rehearsal.state import State

_WAY_OUT = (
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "http_proxy",
    "https_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
)


class Account(AbstractContextManager["Account"], ABC):
    """One rehearsal's account, while a `with` block lasts."""

    image: str
    """This project's image, as manifests name it once they are written."""

    @abstractmethod
    def deploy(self, state: State, screen: Screen) -> None:
        """Deploys the cluster, if there is anything to deploy to."""

    @abstractmethod
    def write_manifests(self, state: State) -> list[Path]:
        """Writes the job's manifests for this account; returns the files."""

    @abstractmethod
    def upload(self, file: Path, address: str) -> None:
        """Puts a file, or a folder's files, at `address` (s3://bucket/key)."""

    @abstractmethod
    def identity(self, namespace: str, account: str) -> Mapping[str, str]:
        """Returns the variables for the pods of a service account: its AWS credentials."""

    @abstractmethod
    def destroy(self, screen: Screen) -> tuple[Resource, ...]:
        """Destroys what was deployed; returns what is meant to stay."""


def proxy_settings() -> dict[str, str]:
    """Returns this machine's proxy and certificate settings: data may lie at an https:// address,
    which only pods with an identity read.
    """
    return {name: os.environ[name] for name in _WAY_OUT if name in os.environ}

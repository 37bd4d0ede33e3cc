"""cluster.yaml's `cluster`, of kind self-managed: a control plane of your own on one EC2 machine. Imports no aws_cdk."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import Field, field_validator

from stacks.network_settings import SshRanges
from stacks.settings import Refused, Settings

PROJECT = Path(__file__).parents[1]


class Distribution(Settings):
    """Which files the machines run: what `paddle-aws lock distribution` wrote."""

    lock: str = "locks/distribution.json"
    """The lock file, below the project's folder: version, source, SHA-256 of each file."""
    files: str = ".cache/distribution"
    """Where the files themselves lie, in a folder for each version."""

    @property
    def lock_path(self) -> Path:
        """The lock file."""
        return PROJECT / self.lock

    @property
    def files_path(self) -> Path:
        """The folder of all versions."""
        return PROJECT / self.files


class Snapshots(Settings):
    """Snapshots of etcd, which holds what the cluster knows, into the bucket below cluster/snapshots/."""

    schedule: str = "0 */6 * * *"
    """When, in UTC: five cron fields."""
    keep: int = Field(default=28, ge=1, le=1000)
    """How many of the newest are kept."""

    @field_validator("schedule")
    @classmethod
    def _schedule(cls, value: str) -> str:
        if not re.fullmatch(r"[\d*/,-]+( [\d*/,A-Za-z-]+){4}", value):
            raise Refused("", value, "allowed are five cron fields such as 0 */6 * * *")
        return value


class ClusterSsh(Settings):
    """SSH to the control plane, and to node groups without `ssh` of their own, beside Session Manager."""

    key_pair: str | None = Field(default=None, min_length=1, max_length=255)
    """Name of an EC2 key pair that is there already; unset: one is made, its private key kept in Parameter Store."""
    allowed_from: SshRanges
    """CIDRs that may connect to port 22."""

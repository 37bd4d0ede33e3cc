"""What the machines of a self-managed cluster run: an image of Amazon's, the distribution's files, our scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from constructs_lib.machine_files import MachineFile

IMAGE = "resolve:ssm:/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"
"""Amazon Linux 2023, which EC2 itself looks up when it launches a machine: no look-up at synth, and always the newest patch."""

SHARED_FILES = ("shared.sh", "ecr-credentials", "k3s", "k3s-airgap-images-amd64.tar.zst")
"""What every machine fetches; constructs_lib/bootstrap/README.md has the rest."""


@dataclass(frozen=True)
class Release:
    """What the machines run.

    Attributes:
        version: the distribution's, such as v1.35.2+k3s1.
        files: its files, and the scripts of constructs_lib/bootstrap.
        images: name: reference, of images that are not in its archive.
    """

    version: str
    files: Sequence[MachineFile]
    images: Mapping[str, str]

    def of(self, *names: str) -> list[MachineFile]:
        """The files of these names; ValueError names one that is not there."""
        known = {file.name: file for file in self.files}
        for name in names:
            if name not in known:
                raise ValueError(f"{name} is not among the release's files ({', '.join(sorted(known))})")
        return [known[name] for name in names]

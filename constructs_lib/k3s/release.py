"""What the machines of a self-managed cluster run: an image of Amazon's, the distribution's files, our scripts.

Machines fetch the files from the bucket that `cdk bootstrap` made, and check each by the SHA-256 in the template. Nothing is
hashed or copied at synth, and no secret is in user data (secrets are named by ARN).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aws_cdk import Aws, FileAssetPackaging, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct

BOOTSTRAP = Path(__file__).with_name("bootstrap")
"""What a machine of the self-managed cluster runs at boot; its README says which role takes which file."""


@dataclass(frozen=True)
class MachineFile:
    """One file.

    Attributes:
        name: what the machine calls it.
        path: where it lies on this machine.
        sha256: its checksum, hexadecimal.
    """

    name: str
    path: Path
    sha256: str

    @classmethod
    def small(cls, path: Path) -> MachineFile:
        """A file that is hashed here."""
        return cls(path.name, path, hashlib.sha256(path.read_bytes()).hexdigest())


class MachineFiles(Construct):
    """Files for the machines of one stack.

    Attributes:
        lines: one file a line: `<name> <s3 uri> <sha256>`.
    """

    def __init__(self, scope: Construct, id: str, *, files: Sequence[MachineFile]) -> None:
        super().__init__(scope, id)
        lines, self._arns = [], []
        for file in files:
            place = Stack.of(self).synthesizer.add_file_asset(
                # The checksum names the object: the same file is uploaded once, for however many stacks.
                source_hash=file.sha256,
                file_name=str(file.path.absolute()),
                packaging=FileAssetPackaging.FILE,
            )
            lines.append(f"{file.name} s3://{place.bucket_name}/{place.object_key} {file.sha256}")
            self._arns.append(f"arn:{Aws.PARTITION}:s3:::{place.bucket_name}/{place.object_key}")
        self.lines = "\n".join(lines)

    def may_read(self) -> iam.PolicyStatement:
        """Leave to read these files."""
        return iam.PolicyStatement(sid="Files", actions=["s3:GetObject"], resources=self._arns)


IMAGE = "resolve:ssm:/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"
"""Amazon Linux 2023, which EC2 itself looks up when it launches a machine: no look-up at synth, and always the newest patch."""

SHARED_FILES = ("shared.sh", "ecr-credentials", "k3s", "k3s-airgap-images-amd64.tar.zst")
"""What every machine fetches; constructs_lib/k3s/bootstrap/README.md has the rest."""


@dataclass(frozen=True)
class Release:
    """What the machines run.

    Attributes:
        version: the distribution's, such as v1.35.2+k3s1.
        files: its files, and the scripts of constructs_lib/k3s/bootstrap.
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


LIMIT = 16384
"""EC2's limit of user data, bytes."""


def boot_user_data(variables: Mapping[str, str]) -> ec2.UserData:
    """User data that gives a machine `variables` and goes on with constructs_lib/k3s/bootstrap/user-data.sh."""
    for name, value in variables.items():
        if "'" in value:
            raise ValueError(f"{name} is {value}: a machine's variable holds no single quote")
    lines = "\n".join(f"{name}='{value}'" for name, value in variables.items())
    rest = "\n".join(
        line
        for line in (BOOTSTRAP / "user-data.sh").read_text(encoding="utf-8").splitlines()
        if not line.lstrip().startswith("#") and line.strip()
    )
    return ec2.UserData.custom(
        "#!/bin/bash\n"
        "set -euo pipefail\n"
        "install -d -m 700 /etc/paddle-cluster\n"
        "cat > /etc/paddle-cluster/environment <<'END_OF_ENVIRONMENT'\n"
        f"{lines}\n"
        "END_OF_ENVIRONMENT\n"
        f"{rest}\n"
    )

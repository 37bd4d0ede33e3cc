"""Files that machines fetch when they boot: from the bucket that `cdk bootstrap` made, each checked by its SHA-256.

Promises: nothing is hashed or copied at synth (an archive of 200 MB costs what a line of text costs); a machine may read the
files it needs and no other object of that bucket; the checksum that it checks stands in the template.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aws_cdk import Aws, FileAssetPackaging, Stack
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

    Args:
        files: which.

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

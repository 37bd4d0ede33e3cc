"""What the machines of a self-managed cluster run: an Amazon image, the distribution's files, our
scripts.

Machines fetch the files from the bucket that `cdk bootstrap` made, and check each against the
SHA-256 in the template. Synth hashes and copies nothing large, and user data contains no secrets
(it names them by ARN).
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from aws_cdk import Aws, FileAssetPackaging, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct

from constructs_lib.ec2.machine import strip_comments, trust, write_files

BOOTSTRAP = Path(__file__).with_name("bootstrap")
"""What a machine of the self-managed cluster runs at boot. Its README explains how; files.json maps
roles to files.
"""


class MachineFile(NamedTuple):
    """One file: its path on this machine, and its checksum."""

    path: Path
    sha256: str


class MachineFiles(Construct):
    """Files for the machines of one stack.

    Args:
        files: each file by its path on the machine.

    Attributes:
        lines: one file per line: `<path> <s3 uri> <sha256>`.
    """

    def __init__(self, scope: Construct, id: str, *, files: Mapping[str, MachineFile]) -> None:
        super().__init__(scope, id)
        lines, self._arns = [], []
        for target, file in files.items():
            place = Stack.of(self).synthesizer.add_file_asset(
                # The checksum names the object: a file is uploaded once, however many stacks use
                # it.
                source_hash=file.sha256,
                file_name=str(file.path.absolute()),
                packaging=FileAssetPackaging.FILE,
            )
            lines.append(f"{target} s3://{place.bucket_name}/{place.object_key} {file.sha256}")
            self._arns.append(f"arn:{Aws.PARTITION}:s3:::{place.bucket_name}/{place.object_key}")
        self.lines = "\n".join(lines)

    def read_statement(self) -> iam.PolicyStatement:
        """Returns permission to read these files."""
        return iam.PolicyStatement(sid="Files", actions=["s3:GetObject"], resources=self._arns)


IMAGE = "resolve:ssm:/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"
"""Amazon Linux 2023. EC2 resolves it when it launches a machine: no look-up at synth, and always
the newest patch.
"""


@dataclass(frozen=True)
class Release:
    """What the machines run.

    Attributes:
        version: the distribution's version, such as v1.35.2+k3s1.
        files: the distribution's files by name, besides those of constructs_lib/k3s/bootstrap.
        images: name: reference, for images that are not in the distribution's archive.
    """

    version: str
    files: Mapping[str, MachineFile]
    images: Mapping[str, str]

    def files_for(self, role: str) -> dict[str, MachineFile]:
        """Returns the files that a machine of this role fetches, by their paths on the machine."""
        return {
            target: self.files.get(name) or _local_file(BOOTSTRAP / name)
            for name, target in _places("fetched", role).items()
        }


def _places(how: str, role: str) -> dict[str, str]:
    places = json.loads((BOOTSTRAP / "files.json").read_text(encoding="utf-8"))[how]
    return {**places["both"], **places[role]}


def _local_file(path: Path) -> MachineFile:
    return MachineFile(path, hashlib.sha256(path.read_bytes()).hexdigest())


LONGEST_USER_DATA = 15_500
"""Characters. EC2 takes 16,384, and the values that the deploy fills in are longer than their
placeholders.
"""


def boot_user_data(
    stack: Stack,
    variables: Mapping[str, str],
    k3s: Mapping[str, Any],
    more_files: Mapping[str, str] | None = None,
    extra: str | None = None,
    environment: Mapping[str, str] | None = None,
    certificates: str | None = None,
) -> ec2.UserData:
    """Returns user data with a machine's `variables`, k3s settings and small files, and
    `more_files` by path; it runs the lines of `extra`. systemd runs boot.sh, now and later, and
    gives every service `environment`. The machine trusts `certificates`.
    """
    more, anchors, lines = trust(certificates)
    for name, value in variables.items():
        if "'" in value:
            raise ValueError(f"{name} is {value}: a machine's variable holds no single quote")
    files = {
        "/etc/paddle-cluster/environment": "\n".join(
            f"{name}='{value}'" for name, value in variables.items()
        ),
        "/etc/rancher/k3s/config.yaml.d/cluster.yaml": stack.to_json_string(k3s),
    }
    for name, target in _places("in user data", variables["ROLE"]).items():
        files[target] = strip_comments(BOOTSTRAP / name)
    if services := {**(environment or {}), **more}:
        files["/etc/systemd/system.conf.d/environment.conf"] = "\n".join(
            ["[Manager]", *(f'DefaultEnvironment="{name}={services[name]}"' for name in services)]
        )
    start = (
        "systemctl daemon-reload\nsystemctl enable --now --no-block paddle-cluster.service "
        "paddle-cluster.timer\n"
    )
    files |= {**anchors, **(more_files or {})}
    first = lines + (f"{extra}\n" if extra else "")
    text = f"#!/bin/bash\nset -euo pipefail\n{write_files(files)}{first}{start}"
    # In the text the k3s settings are one token, however many settings there are.
    if (size := len(text) + len(json.dumps(k3s))) > LONGEST_USER_DATA:
        raise ValueError(
            f"the machine's user data has {size:,} characters, at most {LONGEST_USER_DATA:,} are "
            "allowed: give fewer labels, taints or names"
        )
    return ec2.UserData.custom(text)

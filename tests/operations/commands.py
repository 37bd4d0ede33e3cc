"""What commands are run with, and how they ended, as the tests see it."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

OUTPUTS = {
    "paddle-storage": {
        "FileSystemId": "fs-0123456789abcdef0",
        "AccessPointId": "fsap-0fedcba9876543210",
        "BucketName": "paddle-storage-bucket",
        "FileSystemDnsName": "fs-0123456789abcdef0.efs.eu-central-1.amazonaws.com",
    },
}
JOB = """\
name: words
trainers: 3
data: {source: "s3://corpus/words"}
"""


def lay_out(folder: Path) -> None:
    """A project's folder: a job file, and what deploy and push wrote."""
    (folder / "job.yaml").write_text(JOB)
    (folder / "outputs.json").write_text(json.dumps(OUTPUTS))
    (folder / "image.json").write_text(json.dumps({"image": "registry.example/paddle@sha256:" + "cd" * 32}))


@dataclass(frozen=True)
class Done:
    """Exit code and output."""

    code: int
    out: str
    err: str


Run = Callable[..., Done]

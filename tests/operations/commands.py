"""What commands are run with, and how they ended, as the tests see it."""

from collections.abc import Callable
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Done:
    """Exit code and output."""

    code: int
    out: str
    err: str


Run = Callable[..., Done]

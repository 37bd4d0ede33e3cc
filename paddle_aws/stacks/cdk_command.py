"""The cdk command that runs the app: whether it needs an account and has none. Imports no aws_cdk.

The CDK has no account at synth, and says only after it that there were no credentials, with a
sentence about stacks. It gives the app no name of its command, so that is read from the processes
above this one; where they cannot be read, the CDK's sentence stays.
"""

import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

NEEDS_ACCOUNT = {"deploy", "destroy", "diff", "drift", "import", "refactor", "rollback", "watch"}
NO_CREDENTIALS = (
    "no AWS credentials were found, or they have expired: log in (`aws sso login` or `aws "
    "configure`), or set AWS_PROFILE; nothing was changed"
)
DEPTH = 4
"""How many processes lie between the app and cdk at most: a shell, and what starts node."""


def missing_credentials(environment: Mapping[str, str] = os.environ) -> str | None:
    """Returns the sentence if the cdk command needs an account, and found none."""
    # cdk sets the first for each app, the second if it has credentials.
    if "CDK_CLI_VERSION" not in environment or "CDK_DEFAULT_ACCOUNT" in environment:
        return None
    needs = any(NEEDS_ACCOUNT.intersection(_arguments_of_cdk(words)) for words in _ancestors())
    return NO_CREDENTIALS if needs else None


def _arguments_of_cdk(words: list[str]) -> list[str]:
    for number, word in enumerate(words):
        if Path(word).name in ("cdk", "cdk.js"):
            return words[number + 1 :]
    return []


def _ancestors() -> Iterator[list[str]]:
    """Yields the command lines of the processes above this one, the nearest first."""
    process = os.getppid()
    for _ in range(DEPTH):
        try:
            if Path("/proc/self/stat").exists():
                folder = Path("/proc", str(process))
                yield (folder / "cmdline").read_text(errors="replace").split("\0")
                # The name in parentheses may contain blanks.
                process = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            else:
                command = ["ps", "-o", "ppid=,args=", "-p", str(process)]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                parent, *words = done.stdout.split()
                yield words
                process = int(parent)
        except (OSError, ValueError, subprocess.CalledProcessError):
            return

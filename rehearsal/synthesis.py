"""The manifests as a user gets them: by `paddle-aws manifests`, in a process of its own.

The charts run on Node, which a Ctrl-C at the terminal would reach as well; in its own session it is ended in order.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from rehearsal.cloud import end
from rehearsal.errors import Failed, Refused


def synthesize(project: Path, job_file: Path, outputs: Path, image_record: Path, out: Path) -> list[Path]:
    """Write the job's manifests to `out`; the files in apply order. Raises Refused with the command's own sentence."""
    command = [sys.executable, "-m", "operations.main", "manifests", str(job_file), "--outputs", str(outputs)]
    command += ["--image-file", str(image_record), "--out", str(out)]
    process = subprocess.Popen(
        command,
        cwd=project,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        written, said = process.communicate()
    except BaseException:
        end(process)
        raise
    if process.returncode == Refused.code:
        raise Refused(said.strip())
    if process.returncode != 0:
        raise Failed(f"the manifests were not written: code {process.returncode}", said)
    return [Path(line) for line in written.splitlines()]

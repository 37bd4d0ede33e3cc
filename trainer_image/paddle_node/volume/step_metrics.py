"""The metrics by step that a program's processes report on the volume."""

import json
from contextlib import suppress

from paddle_node.volume.job_folder import JobFolder

FILE_BYTES = 4 << 20
"""Bytes of a rank's metrics file from which it is not read; a rank rarely writes a tenth of
that.
"""


def first_report(folder: JobFolder, attempt: int) -> float | None:
    """Returns when rank 0 reported its first metrics in an attempt, in seconds since 1970: 0 if
    they are too many to read, None if it reported none.
    """
    file = folder.steps(0, 0)
    with suppress(OSError, ValueError, LookupError, TypeError, RecursionError):
        if file.stat().st_size >= FILE_BYTES:
            return 0.0
        lines = file.read_text().splitlines()
        reports = [json.loads(line) for line in lines if line.endswith("}")]
        return next(
            (float(report["time"]) for report in reports if report["attempt"] == attempt), None
        )
    return None

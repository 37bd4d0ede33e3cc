"""Digests of what a rehearsal's pods run and read: rehearsals with equal digests do the same
work.
"""

import hashlib
import json
import os
import platform
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from k8s_charts.spec import TrainingJob
from k8s_charts.spec.program_files import LEFT_BEHIND
from paddle_aws.operations.images import interpreter

_CODE = ("paddle_aws", "k8s_charts", "trainer_image", "examples")
"""This project's files in a rehearsal; the examples include programs of its image."""


def digests(
    job: TrainingJob, project: Path, source: Path | None, inputs: Mapping[str, Path]
) -> dict[str, str] | None:
    """Returns digests of the program, the data, the settings, this project's code, the pods' Python
    (empty if it is not installed yet) and this machine; None where a part cannot be seen from here,
    such as data behind an address or a program on the job's volume. `source` and `inputs` are the
    local files. Raises OSError.
    """
    archive, python = job.program.archive, interpreter.find(job, project)
    data_elsewhere = len(inputs) < len(job.inputs) or (job.data is not None and source is None)
    program_elsewhere = archive is None and job.program.origin != "image"
    if data_elsewhere or program_elsewhere or job.program.wheels is not None:
        return None
    files = {**({"data": source} if source is not None else {}), **inputs}
    code = [file for room in _CODE for file in _files(project / room)]
    return {
        "settings": digest(job.model_dump_json()),
        "program": archive.digest if archive is not None else "image",
        "data": digest({name: _file_digest(file) for name, file in files.items()}),
        "code": digest([(str(file.relative_to(project)), _file_digest(file)) for file in code]),
        "python": _python_digest(python) if python is not None else "",
        "machine": digest([*platform.uname(), len(os.sched_getaffinity(0)), _processor()]),
    }


def _files(place: Path) -> Iterator[Path]:
    """Yields the files below a folder, in order."""
    for folder, folders, names in os.walk(place):
        folders[:] = sorted(set(folders) - LEFT_BEHIND)
        yield from (path for name in sorted(names) if (path := Path(folder, name)).is_file())


def _file_digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _python_digest(folder: Path) -> str:
    packages = folder.parent.glob("lib/*/site-packages/*.dist-info")
    python = str((folder / "python").resolve())
    return digest([python, sorted(package.name for package in packages)])


def _processor() -> list[str]:
    text = Path("/proc/cpuinfo").read_text()
    return sorted(set(re.findall(r"(?m)^(?:model name|flags)\s*:.*", text)))


def digest(content: object) -> str:
    """Returns the digest of what JSON can hold, whatever the order of its names."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

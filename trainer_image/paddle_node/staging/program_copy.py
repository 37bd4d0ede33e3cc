"""Copies the training program from the image to the job's folder on the volume.

Each copy is a separate folder under `programs/`, named after the digest of the whole copy. It
stays, because a run may read it. The program's name in the job's folder is a link to the copy, or a
person's own folder. `__pycache__` and a mounted ConfigMap's `..` folders are left out.
"""

import contextlib
import hashlib
import os
import shutil
from pathlib import Path

from paddle_node.contract import Variable
from paddle_node.failure import BadSetting
from paddle_node.folders import files_below
from paddle_node.volume import durable
from paddle_node.volume.job_folder import JobFolder


def copy_program(source: Path, folder: JobFolder, name: str) -> bool:
    """Makes the job's program `name` equal to `source`; False if it was. Raises `BadSetting`, and
    OSError from the volume.
    """
    if not source.is_dir():
        there = (
            ", ".join(sorted(path.name for path in source.parent.glob("*/")))
            if source.parent.is_dir()
            else ""
        )
        raise BadSetting(
            f"{Variable.PROGRAM_FROM} names {source}, which this image does not hold (it holds: "
            f"{there or 'none'})"
        )
    durable.refresh(folder.root)
    link, digest_ = folder.program(name), digest(source)
    if link.is_dir() and digest(link) == digest_:
        return False
    if not link.is_symlink() and link.exists():
        raise BadSetting(
            f"{link} differs from the image's program {name}, and no data job has put it there: "
            "move it away, or let the job use the volume's program"
        )
    copy = find(folder, digest_)
    if copy is None:
        copy = folder.programs / f"{digest_[:32]}.{os.urandom(8).hex()}"
        try:
            copy_files(source, copy)
            if digest(copy) != digest_:
                raise BadSetting(f"{source} changed while it was copied: run the data job again")
            durable.sync(folder.programs)
        except BaseException:
            shutil.rmtree(copy, ignore_errors=True)
            raise
    durable.link(link, os.path.relpath(copy, link.parent))
    return True


def digest(folder: Path) -> str:
    """Returns a digest of the whole program: the name and bytes of every file that counts. Raises
    OSError.
    """
    durable.refresh(folder.parent)  # The folder that may hold its link.
    whole = hashlib.sha256()
    for name in _files(folder):
        with (folder / name).open("rb") as stream:
            content = hashlib.file_digest(stream, "sha256").hexdigest()
        whole.update(f"{name}\0{content}\n".encode(errors="surrogateescape"))
    return whole.hexdigest()


def copy_files(source: Path, target: Path) -> None:
    """Copies every file that counts. Raises OSError."""
    target.mkdir(parents=True)
    for name in _files(source):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / name, target / name)
        # If the data's manifest reached the disk before a power cut, the program must be there,
        # too.
        durable.sync(target / name)


def find(folder: JobFolder, digest_: str) -> Path | None:
    """Returns the complete copy with that digest, if there is one."""
    durable.refresh(folder.programs)
    for copy in filter(Path.is_dir, durable.glob(folder.programs, f"{digest_[:32]}.*")):
        with contextlib.suppress(OSError):  # This copy is being made or removed.
            if digest(copy) == digest_:
                return copy
    return None


def _files(folder: Path) -> list[str]:
    """Returns the names of the files that count. Follows links to folders."""
    top = folder.resolve()
    files = files_below(top, lambda name: name == "__pycache__" or name.startswith(".."))
    return sorted(
        str(path.relative_to(top))
        for path in files
        if path.is_file() and path.suffix not in (".pyc", ".tmp")
    )

"""Unpacks a user's program from the archive on the volume into a writable folder of this pod.

The folder appears only if the archive's bytes are those that the job names. No member is written
outside of it.
"""

import hashlib
import os
import shutil
import tarfile
from pathlib import Path

from paddle_node import contract
from paddle_node.failure import BadSetting
from paddle_node.retry import disk_full
from paddle_node.volume import durable
from paddle_node.volume.job_folder import JobFolder


def unpack(folder: JobFolder, digest: str, place: Path) -> Path:
    """Unpacks the program into `place`, and returns `place`. Raises `BadSetting`, and OSError
    from the volume.
    """
    archive, part = folder.archive(digest), place.with_name(f".{place.name}.part")
    durable.refresh(folder.programs)
    if not archive.is_file():
        raise BadSetting(
            f"{archive} does not exist: `paddle-aws upload --program` brings the job's program "
            "to the volume"
        )
    for old in (place, part):
        shutil.rmtree(old, ignore_errors=True)
    with archive.open("rb") as stream:
        if hashlib.file_digest(stream, "sha256").hexdigest() != digest:
            raise BadSetting(
                f"{archive} is not what the job names: its bytes have another SHA-256; submit "
                "the job again"
            )
        stream.seek(0)
        try:
            with tarfile.open(fileobj=stream, mode="r:") as tar:
                # Links come last, and no member lies below a link: nothing is written through one.
                members = sorted(_check_members(tar, archive), key=tarfile.TarInfo.issym)
                # `_check_members` checks them, on Pythons without filters too.
                tar.extraction_filter = lambda member, path: member
                tar.extractall(part, members)
        except OSError as error:
            if not disk_full(error):
                raise
            raise BadSetting(
                f"the pod's scratch has no room for the program in {archive}: raise its `scratch`"
            ) from None
    part.rename(place)
    return place


def _check_members(tar: tarfile.TarFile, archive: Path) -> list[tarfile.TarInfo]:
    members = tar.getmembers()
    links = {Path(member.name) for member in members if member.issym()}
    for member in members:
        leads_to = Path(os.path.normpath(Path(member.name).parent / member.linkname))
        places = {*Path(member.name).parts, *leads_to.parts[:1]}
        if (
            not (member.isreg() or member.issym())
            or places & {"..", "/"}
            or links.intersection(Path(member.name).parents)
        ):
            raise BadSetting(
                f"{archive} holds {member.name}: files, and links to files, below its folder are "
                "allowed"
            )
    if sum(member.size for member in members) > contract.PROGRAM_LIMIT:
        raise BadSetting(f"{archive} holds more than {contract.PROGRAM_LIMIT:,} bytes")
    return members

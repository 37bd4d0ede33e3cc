"""Copies of what jobs read beside their data.

The volume has one copy of each content, `shared/inputs/<digest>/`: the files below `files`, and a
listing with their SHA-256. The SHA-256 of the listing is the folder's name. A copy is never written
again.
"""

import hashlib
import json
from pathlib import Path

from paddle_node import contract
from paddle_node.failure import BadData
from paddle_node.volume import durable
from paddle_node.volume.data_manifest import Input

FILES, LISTING = "files", "listing.json"


def verify_all(copies: tuple[Input, ...], volume: Path) -> dict[str, Path]:
    """Returns the file or folder of each input, for a pod that reads it. Checks that the listing
    has the digest, and that every file has its size. The data job has read every byte. Raises
    BadData.
    """
    try:
        return {copy.name: verify(copy, volume / contract.INPUTS, whole=False) for copy in copies}
    except FileNotFoundError as error:
        raise BadData(
            f"{error.filename} is not there any more, an input of this job: submit the job again"
        ) from None


def verify(brought: Input, place: Path, *, whole: bool) -> Path:
    """Returns the copy's path; `whole`: after reading every byte. Raises BadData; FileNotFoundError
    if there is no copy.
    """
    folder = place / brought.digest
    durable.refresh(folder)
    text = (folder / LISTING).read_bytes()
    damaged = "once no job reads it, remove it and submit again"
    if hashlib.sha256(text).hexdigest() != brought.digest:
        raise BadData(f"{folder} is not the copy that its name says: {damaged}")
    for file in json.loads(text):
        path = folder / FILES / str(file["name"])
        if not path.is_file() or durable.stat(path).st_size != file["bytes"]:
            raise BadData(f"{path} is not there with its {file['bytes']} bytes: {damaged}")
        if whole:
            with path.open("rb") as content:
                if hashlib.file_digest(content, "sha256").hexdigest() != file["sha256"]:
                    raise BadData(f"{path} is damaged: its digest is another one: {damaged}")
    return folder / brought.path

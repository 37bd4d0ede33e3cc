"""A full disk is called by its name: the job's volume, or the pod's own scratch."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest
from paddle_node import full_disk


def full(path: Path | None = None) -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *([str(path)] if path else []))


def test_the_path_of_the_error_tells(tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    assert full_disk.scratch(full(volume / "job" / "file"), volume) is None
    assert full_disk.scratch(full(tmp_path / "scratch" / "file"), volume) == tmp_path / "scratch" / "file"


def test_without_one_the_volume_is_meant_unless_the_scratch_has_nothing_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = {Path.cwd(): 1 << 30, tmp_path: 0}
    monkeypatch.setattr(full_disk, "_left", lambda folder: left[folder])
    monkeypatch.setattr(full_disk, "_apart", lambda one, other: True)
    assert full_disk.scratch(full(), tmp_path) is None
    left.update({Path.cwd(): 0, tmp_path: 1 << 30})
    assert full_disk.scratch(full(), tmp_path) == Path.cwd()


@pytest.mark.skipif(os.getuid() != 0, reason="mounting a small file system needs root")
@pytest.mark.parametrize("where", ["scratch", "volume"])
def test_a_real_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    scratch, volume = tmp_path / "scratch", tmp_path / "volume"
    for folder in (scratch, volume):
        folder.mkdir()
    small = tmp_path / where
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")
    try:
        monkeypatch.chdir(scratch)
        with pytest.raises(OSError, match="No space left") as caught, (small / "big").open("wb", buffering=0) as file:
            file.write(bytes(32 << 10))
            while True:
                file.write(bytes(4096))
        assert caught.value.filename is None
        assert full_disk.scratch(caught.value, volume) == (scratch if where == "scratch" else None)
    finally:
        monkeypatch.undo()
        subprocess.run(["umount", "-l", str(small)], check=True)

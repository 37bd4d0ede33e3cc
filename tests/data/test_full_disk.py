"""A full disk is called by its name: the job's volume, or the pod's own scratch."""

import errno
import os
import subprocess
from pathlib import Path

import pytest
from paddle_node import full_disk


def test_the_path_of_the_error_tells(tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    for path, full in ((volume / "job/file", None), (tmp_path / "scratch/file", tmp_path / "scratch/file")):
        assert full_disk.scratch(OSError(errno.ENOSPC, "full", str(path)), volume) == full


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

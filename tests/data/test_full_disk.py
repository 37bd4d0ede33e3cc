"""A full disk is called by its name: the job's volume, or the pod's own scratch."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from paddle_node import full_disk


def test_the_path_of_the_error_tells(tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    for path, full in ((volume / "job/file", None), (tmp_path / "scratch/file", tmp_path / "scratch/file")):
        assert full_disk.scratch(OSError(errno.ENOSPC, "full", str(path)), volume) == full


@pytest.mark.parametrize("where", ["scratch", "volume"])
def test_a_real_disk_that_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_disk: Callable[[Path, str], Path], where: str
) -> None:
    small = small_disk(tmp_path / where, "64k")
    for name in ("scratch", "volume"):
        (tmp_path / name).mkdir(exist_ok=True)
    with monkeypatch.context() as moved:
        moved.chdir(tmp_path / "scratch")
        with pytest.raises(OSError, match="No space left") as caught, (small / "big").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        assert caught.value.filename is None
        assert full_disk.scratch(caught.value, tmp_path / "volume") == (small if where == "scratch" else None)

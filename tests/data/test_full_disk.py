"""A full disk is called by its name: the job's volume, or the pod's own scratch."""

from collections.abc import Callable
from pathlib import Path

import pytest
from paddle_node import full_disk


@pytest.mark.parametrize("where", ["scratch", "volume"])
def test_a_real_disk_that_is_full_is_told_by_its_path_and_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_disk: Callable[[Path, str], Path], where: str
) -> None:
    small = small_disk(tmp_path / where, "64k")
    for name in ("scratch", "volume"):
        (tmp_path / name).mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path / "scratch")
    with pytest.raises(OSError, match="No space left") as caught, (small / "big").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    for name, scratch in ((None, small), (str(small / "big"), small / "big")):
        caught.value.filename = name
        assert full_disk.scratch(caught.value, tmp_path / "volume") == (scratch if where == "scratch" else None)
    monkeypatch.chdir(tmp_path)  # A working folder is not unmounted.

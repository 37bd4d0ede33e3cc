"""Fixtures of the data job's tests."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# The tests import each other's helper by name, which importlib mode does not allow on its own.
sys.path.insert(0, str(Path(__file__).parent))

from job_folder import Job, lines_file


def pytest_make_parametrize_id(val: object) -> str | None:
    """Gives all bytes one id: archives hold their packing time, so pytest-xdist's workers would
    collect different tests.
    """
    return "bytes" if isinstance(val, bytes) else None


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path / "volume" / "my-job")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A file of nine lines."""
    return lines_file(tmp_path / "in.txt", 9)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lowers every limit so far that a few hundred bytes cross all boundaries: blocks, chunks,
    parts.
    """
    from paddle_node.data import deal, parts, records

    limits = {
        records: {"BLOCK": 16},
        deal: {"CHUNK": 8, "TOGETHER": 1},
    }
    for module, values in (limits | {parts: {"PART": 40, "SMALL_PART": 20, "BUFFER": 32}}).items():
        for name, value in values.items():
            monkeypatch.setattr(module, name, value)


@pytest.fixture
def small_disk() -> Iterator[Callable[[Path, str], Path]]:
    """Yields a function that mounts a small disk of the given size at a new folder."""
    if os.getuid() != 0:
        pytest.skip("mounting a small file system needs root")
    mounted: list[str] = []

    def mount(place: Path, size: str) -> Path:
        place.mkdir(parents=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")
        mounted.append(str(place))
        return place

    yield mount
    for place in mounted:
        subprocess.run(["umount", "-l", place], check=True)

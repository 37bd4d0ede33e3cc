"""Fixtures of the data job's tests."""

import sys
from pathlib import Path

import pytest

# The tests import each other's helper by name, which importlib mode does not allow by itself.
sys.path.insert(0, str(Path(__file__).parent))

from job_folder import Job


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path / "volume" / "my-job")


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every limit so low that a few hundred bytes cross all borders: blocks, chunks, parts, lanes."""
    from paddle_node.data import deal, lanes, parts, records

    limits = {records: {"BLOCK": 16}, deal: {"CHUNK": 8, "TOGETHER": 1}, lanes: {"WORTH": 100}}
    for module, values in (limits | {parts: {"PART": 40, "AIM": 20, "BUFFER": 32}}).items():
        for name, value in values.items():
            monkeypatch.setattr(module, name, value)

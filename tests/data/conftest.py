"""Fixtures of the data job's tests."""

from __future__ import annotations

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

    monkeypatch.setattr(records, "BLOCK", 16)
    monkeypatch.setattr(deal, "CHUNK", 8)
    monkeypatch.setattr(deal, "TOGETHER", 1)
    monkeypatch.setattr(parts, "PART", 40)
    monkeypatch.setattr(parts, "AIM", 20)
    monkeypatch.setattr(parts, "BUFFER", 32)
    monkeypatch.setattr(lanes, "WORTH", 100)

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
    """Every limit so low that a few hundred bytes cross all borders: blocks, marks, segments, units, parts, leaves."""
    from paddle_node.splitting import counting, framing, one_pass, part_file, shares, shuffle, units

    monkeypatch.setattr(framing, "BATCH", 16)
    monkeypatch.setattr(units, "BLOCK", 8)
    monkeypatch.setattr(units, "NEAR", 8)
    monkeypatch.setattr(units, "MARK", 32)
    monkeypatch.setattr(units, "TOGETHER", 24)
    monkeypatch.setattr(counting, "BLOCK", 8)
    monkeypatch.setattr(counting, "MARK", 32)
    monkeypatch.setattr(counting, "SEGMENT", 64)
    monkeypatch.setattr(one_pass, "LEAST", 6)
    monkeypatch.setattr(one_pass, "PIECES", 2)
    monkeypatch.setattr(one_pass, "PART", 40)
    monkeypatch.setattr(part_file, "BLOCK", 8)
    monkeypatch.setattr(shares, "PART", 40)
    monkeypatch.setattr(shuffle, "LEAF", 400)
    monkeypatch.setattr(shuffle, "MOST_BUCKETS", 4)
    monkeypatch.setattr(shuffle, "TOGETHER", 2)

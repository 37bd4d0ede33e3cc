"""A fault of the volume that passes is waited for; one that stays ends the pod with a code that may be tried again."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from job_folder import Job
from paddle_node import environment, retry
from paddle_node.staging import preparation


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "PAUSES", (0.001, 0.002))


@pytest.fixture
def soon_tired(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "DEADLINE", 0.1)


def failing(times: float, code: int) -> Callable[[], str]:
    left = times

    def work() -> str:
        nonlocal left
        left -= 1
        if left >= 0:
            raise OSError(code, os.strerror(code), "/volume/file")
        return "well"

    return work


def test_a_passing_fault_is_tried_again_and_told() -> None:
    said: list[str] = []
    assert retry.retry(failing(2, errno.ESTALE), said.append) == "well"
    assert said == [
        "/volume/file: Stale file handle; trying again in 0.001 s",
        "/volume/file: Stale file handle; trying again in 0.002 s",
    ]


@pytest.mark.usefixtures("soon_tired")
def test_it_is_not_tried_for_ever() -> None:
    said: list[str] = []
    with pytest.raises(OSError, match="Input/output error"):
        retry.retry(failing(float("inf"), errno.EIO), said.append)
    assert said


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES, errno.ENOENT])
def test_what_stays_is_raised_at_once(code: int) -> None:
    said: list[str] = []
    with pytest.raises(OSError, match="/volume/file"):
        retry.retry(failing(1, code), said.append)
    assert said == []


@pytest.mark.parametrize("name", ["data-manifest.json", "part-00000-00000"])
def test_staging_outlasts_a_volume_that_fails_for_a_moment(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    said: list[str] = []
    preparation.prepare(_refused(job, tmp_path, monkeypatch, name, 3), said.append)
    assert len(said) == 3


@pytest.mark.usefixtures("soon_tired")
@pytest.mark.parametrize("name", ["data-manifest.json", "part-00000-00000"])
def test_staging_does_not_outlast_a_volume_that_fails_for_good(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    node = _refused(job, tmp_path, monkeypatch, name, 1_000_000)
    with pytest.raises(OSError, match="Input/output error"):
        preparation.prepare(node, lambda line: None)


def _refused(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, times: int) -> environment.NodeEnvironment:
    """A pod whose volume does not open the file the first `times` times."""
    source = tmp_path / "in.txt"
    source.write_text("".join(f"line {number}\n" for number in range(9)))
    job.split(source)
    node = job.trainer()
    opened, left = Path.open, times

    def open_or_fail(path: Path, *more: object, **named: object) -> object:
        nonlocal left
        if path.name == name and (left := left - 1) >= 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return opened(path, *more, **named)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", open_or_fail)
    monkeypatch.setattr(Path, "read_text", lambda path: open_or_fail(path).read())
    return node

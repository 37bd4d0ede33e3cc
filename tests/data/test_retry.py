"""A fault of the volume that passes is waited for; one that stays ends the pod, with a code after which it is tried again."""

import errno
import os
from pathlib import Path

import pytest
from job_folder import Job
from paddle_node import retry
from paddle_node.staging import preparation


@pytest.mark.parametrize("name", ["data-manifest.json", "part-00000-00000"])
@pytest.mark.parametrize(
    ("code", "times", "said"),
    [(errno.EIO, 3, 3), (errno.EIO, 1_000_000, None), (errno.ENOSPC, 1, 0)],
    ids=["passes", "stays", "full"],
)
def test_a_pod_outlasts_a_volume_that_fails_for_a_moment(
    job: Job, source: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: int, times: int, said: int | None
) -> None:
    """The volume does not open the file the first `times` times."""
    monkeypatch.setattr(retry, "PAUSES", (0.001, 0.002))
    job.split(source)
    node = job.trainer()
    opened, left = Path.open, times

    def open_or_fail(path: Path, *more: object, **named: object) -> object:
        nonlocal left
        if path.name == name and (left := left - 1) >= 0:
            raise OSError(code, os.strerror(code), str(path))
        return opened(path, *more, **named)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", open_or_fail)
    monkeypatch.setattr(Path, "read_text", lambda path: open_or_fail(path).read())
    lines: list[str] = []
    if said is None:
        monkeypatch.setattr(retry, "DEADLINE", 0.1)
    if said:
        preparation.prepare(node, lines.append)
        assert len(lines) == said and lines[0].endswith(f"{name}: Input/output error; trying again in 0.001 s")
        return
    with pytest.raises(OSError, match=os.strerror(code)):
        preparation.prepare(node, lines.append)
    assert bool(lines) == (said is None)

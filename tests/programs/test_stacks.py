"""Programs of others whose recipe is shipped, unmodified, by a job.yaml of at most eight lines: two
pods to the end, and again with a rank killed behind its second checkpoint.

`make test-programs PROGRAMS=/path/to/clones` runs them; stacks.yaml names the clones. They go
through `paddle-aws rehearse` with its trial; their packages come from PyPI, once. Data and
configurations are small, made here, and without random changes of the data, which no stack resumes.
"""

import hashlib
import os
import re
import sys
from pathlib import Path

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parent))
from rehearsed import Rehearsal
from stack_jobs import HERE, STACKS, lay

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("PROGRAMS" not in os.environ, reason="make test-programs runs these"),
]


def start(name: str, place: Path) -> Rehearsal:
    lay(name, place)
    return Rehearsal(place, name.replace("_", "-"), STACKS[name]["process"])


def result(name: str, run: Rehearsal) -> tuple[list[list[str]], str]:
    """Waits for the end. Returns the lines of each attempt, and the final model's digest."""
    attempts = run.attempts()
    model = (run.output / STACKS[name]["model"]).read_bytes()
    lines = [re.findall(STACKS[name]["line"], attempt) for attempt in attempts]
    return [list(dict.fromkeys(losses)) for losses in lines], hashlib.sha256(model).hexdigest()


@pytest.fixture(scope="module", params=STACKS)
def undisturbed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, list[str], str]:
    """Yields a stack's name, and the lines and the model of a run that nothing disturbs."""
    name = request.param
    run = start(name, tmp_path_factory.mktemp(name) / "job")
    (lines,), model = result(name, run)
    assert "recipe " in run.messages and "✓ try" in run.messages, run.messages
    return name, lines, model


@pytest.mark.parametrize("truncated", [False, True])
def test_it_resumes_at_the_undisturbed_runs_step_loss_and_rate_and_ends_with_its_model(
    undisturbed: tuple[str, list[str], str], tmp_path: Path, truncated: bool
) -> None:
    name, lines, model = undisturbed
    stack = STACKS[name]
    run = start(name, tmp_path / "job")
    run.wait_for(f"attempts/*-1/output/{stack['second']}")
    run.kill_rank(1)
    for pattern in stack["cut"] if truncated else ():
        run.cut(pattern)
    (first, second), same_model = result(name, run)
    assert ("is skipped: " in run.messages) >= truncated, run.messages
    begin = len(lines) - len(second)
    assert begin % stack["lines"] == 0 and begin >= (2 - truncated) * stack["lines"], run.messages
    assert second == lines[begin:] and first == lines[: len(first)], run.messages
    assert same_model == model


def test_job_files_are_as_short_as_the_documents_say() -> None:
    for name in STACKS:
        text = (HERE / name / "job.yaml").read_text().splitlines()
        lines = [line for line in text if not line.startswith("#")]
        settings = yaml.safe_load("\n".join(lines))
        assert len(lines) <= 12 and len(settings) <= 8, name
        assert not {"resume", "progress", "success", "metrics"} & set(settings), name

"""PaddleFormers by a job.yaml that says nothing of how it resumes: two pods, with a rank killed
behind its second checkpoint, undisturbed, and with a truncated checkpoint, as people run it.

Its environment has 1.3 GB, which on a new machine takes minutes to make: `make test-programs` runs
these.
"""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from rehearsed import Rehearsal

PROJECT = Path(__file__).parents[2]
PADDLEFORMERS = PROJECT / "examples" / "llama"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("PROGRAMS" not in os.environ, reason="make test-programs runs these"),
]
STEP = re.compile(r"- loss: ([\d.eE+-]+), learning_rate: ([\d.eE+-]+), global_step: (\d+),")


def llama(place: Path, *words: str) -> Rehearsal:
    shutil.copytree(PADDLEFORMERS, place)
    return Rehearsal(place, "llama", "paddleformers/cli/launcher.py", *words)


def steps_of(attempt: str) -> dict[int, tuple[str, str]]:
    """Returns loss and learning rate by step."""
    return {int(step): (loss, rate) for loss, rate, step in STEP.findall(attempt)}


def test_a_killed_run_repeats_its_steps_loss_and_rate_from_the_second_checkpoint(
    tmp_path: Path,
) -> None:
    # On an idle machine, most of the time goes by in saving: ten steps take a fiftieth of a second.
    steps = 200
    run = llama(tmp_path / "job", "--set", f"command+=max_steps={steps}")
    run.wait_for("attempts/*-1/output/checkpoint-20/scheduler.pdparams")
    run.wait_for("attempts/*-1/output/checkpoint-20/rng_state_1.pth")
    run.wait_for_line(", global_step: 23,")
    run.kill_rank(1)
    first, second = map(steps_of, run.attempts())
    begins = min(second)
    assert begins in range(21, steps, 10) and list(second) == list(range(begins, steps + 1)), (
        run.messages
    )
    assert "recipe paddleformers (PaddleFormers 1.2.0): the command has" in run.messages
    repeated = first.keys() & second.keys()
    assert {step: first[step] for step in repeated} == {step: second[step] for step in repeated}
    assert float(second[steps][0]) < float(first[1][0]) and list(run.output.glob("model-*"))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[int, tuple[str, str]]:
    run = llama(tmp_path_factory.mktemp("undisturbed") / "job")
    (steps,) = map(steps_of, run.attempts())
    assert list(steps) == list(range(1, 61))
    assert "recipe paddleformers (PaddleFormers 1.2.0): the command has" in run.messages
    assert float(steps[60][0]) < float(steps[1][0]) - 0.5
    assert list(run.output.glob("model-*.safetensors"))
    return steps


@pytest.mark.parametrize("truncated", [False, True])
def test_paddleformers_resumes_at_the_undisturbed_runs_step_loss_and_rate(
    undisturbed: dict[int, tuple[str, str]], tmp_path: Path, truncated: bool
) -> None:
    run = llama(tmp_path / "job")
    run.wait_for("attempts/*-1/output/checkpoint-20/scheduler.pdparams")
    run.wait_for("attempts/*-1/output/checkpoint-20/rng_state_1.pth")
    run.kill_rank(1)
    saved = run.output.glob("attempts/*-1/output/checkpoint-*/scheduler.pdparams")
    newest = max((path.parent for path in saved), key=lambda path: int(path.name[11:]))
    if truncated:
        (optimizer,) = newest.glob("optimizer-*.safetensors")
        os.truncate(optimizer, optimizer.stat().st_size // 2)
    first, second = map(steps_of, run.attempts())
    resumed = int(newest.name[11:]) - (10 if truncated else 0)
    assert resumed >= 10 and list(second) == list(range(resumed + 1, 61)), run.messages
    assert second == {step: undisturbed[step] for step in second}
    assert set(first) < set(undisturbed)
    set_aside = run.output / "not-whole" / "attempt-2" / newest.name
    assert set_aside.is_dir() == truncated, run.messages

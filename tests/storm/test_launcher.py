"""Storms of a user's own command: examples/launch, unchanged, under Paddle's launcher. About half a
minute per test.
"""

import json
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.long]
EXAMPLE = Path(__file__).parents[2] / "examples/launch"
EPOCHS = 12
SETTINGS = {
    "processes": 2,
    # As typed on one machine, with options that do not hold for two pods.
    "command": "python -m paddle.distributed.launch --nnodes 1 --devices 0,1 train.py "
    f"--data {{data}} --epochs {EPOCHS}",
    "resume": "--resume {newest_stem:output/*.pdparams}",
    "success": "output/result.json",
    "metrics": {"step": r"^epoch (\d+)", "loss": "loss ([0-9.]+)"},
}


@pytest.mark.parametrize("paddle", ["2.6", "3.3"])
def test_every_record_once_an_epoch_and_exactly_the_same_end_after_kills(storm, paddle):
    # The last rank of the second pod, and rank 0 in the save of epoch 8, the 17th file.
    faults = "kill-rank/3@step-5,kill-rank/0@save-17"
    ended = storm(
        *("--runs", "1", "--no-shrink", "--faults", faults),
        program=(EXAMPLE / "train.py").read_text(),
        data=(EXAMPLE / "sample.csv").read_text(),
        reading={"shared": True},
        paddle=paddle,
        **SETTINGS,
    )
    assert ended.code == 0 and "2 of 2 faults, 3 attempts" in ended.output, ended.output
    assert "undisturbed runs are exactly equal" in ended.output
    said = ended.text
    assert "--nnodes 1, --devices 0,1 in the command: the job's own settings win" in said
    for attempt, epoch in ((2, 5), (3, 7)):
        start = f"attempt {attempt}: all 2 pods are here, training starts from output/epoch-00"
        assert f"{start}{epoch}.pdparams" in said, said
    causes = [attempt["cause"] for attempt in ended.attempts]
    for cause, rank in zip(causes, ("1.1", "0.0"), strict=False):
        assert cause.startswith(f"trainer {rank} ended with 137 (SIGKILL), in job-"), causes
    # Epoch 8 was counted before it was saved, and again after the kill.
    lines = (ended.folder.output / "epochs.jsonl").read_text().splitlines()
    epochs = {json.loads(line)["epoch"]: json.loads(line) for line in sorted(set(lines))}
    assert len(lines) == EPOCHS + 1 and len(set(lines)) == EPOCHS
    for number, epoch in sorted(epochs.items()):
        counts = [epoch[name] for name in ("epoch", "records", "least", "most", "ranks")]
        assert counts == [number, 1600, 1, 1, 4]
    assert json.loads((ended.folder.output / "result.json").read_text())["accuracy"] > 0.8
    points = [json.loads(line) for line in ended.folder.steps(0, 0).read_text().splitlines()]
    ends = [(point["attempt"], point["step"]) for point in (points[0], points[-1])]
    assert ends == [(1, 0), (3, EPOCHS - 1)] and 0 < points[-1]["metrics"]["loss"] < 1
    parts = ("waiting", "starting", "training", "lost")
    seconds = [attempt["seconds"] for attempt in ended.attempts]
    spent = {part: sum(of.get(part, 0) for of in seconds) for part in parts}
    assert min(of[part] for of in seconds for part in ("starting", "training")) > 0
    whole = sum(spent.values())
    assert f"goodput {spent['training'] / whole:.0%} of {whole:.0f} s: " in said

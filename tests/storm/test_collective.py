"""A storm of examples/collective, with dropout: its model ends the same to the last digit, with
every record of every rank once in each pass. About 40 s.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.long]
EXAMPLES = Path(__file__).parents[2] / "examples"
PASSES = 2
DROPOUT = "vectors = paddle.nn.functional.dropout(self.vectors(text), 0.2)\n        "
SCORES = "return self.scores(self.vectors(text)"
FAULTS = "kill-rank/1@step-15,kill-rank/0@save-4,kill-agent/1@step-30"


def test_a_collective_model_ends_exactly_as_undisturbed(storm, tmp_path):
    subprocess.run(
        [sys.executable, EXAMPLES / "quick_start/make_sample.py", tmp_path / "made"], check=True
    )
    program = (EXAMPLES / "collective/train.py").read_text()
    assert SCORES in program
    ended = storm(
        *("--runs", "1", "--no-shrink", "--faults", FAULTS),
        program=program.replace(SCORES, DROPOUT + "return self.scores(vectors"),
        data=(tmp_path / "made").read_text(),
        mode="collective",
        passes=PASSES,
        checkpoint_minutes=0.002,
    )
    assert ended.code == 0 and "undisturbed runs are exactly equal" in ended.output, ended.output
    assert "3 of 3 faults, 4 attempts" in ended.output, ended.output
    manifest = json.loads(ended.folder.data_manifest.read_text())
    for trainer, shard in enumerate(manifest["shards"]):
        records = sum(file["records"] for file in shard["files"])
        lines = map(json.loads, ended.folder.metrics(trainer).read_text().splitlines())
        passes = {line["pass"]: line["records"] for line in lines}
        assert passes == dict.fromkeys(range(PASSES), records)
    # The last attempt goes on in the middle of a pass.
    assert ended.receipt["runs"][0]["faults"][-1]["steps_done_again"] < 30

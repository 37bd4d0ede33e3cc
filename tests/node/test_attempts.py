"""The record of attempts: no number is used twice."""

import pytest
from paddle_node.failure import Failure
from paddle_node.rendezvous.attempt_end import AttemptEnd
from paddle_node.rendezvous.attempts import AttemptRecord
from paddle_node.runtimes import Resumption
from paddle_node.volume.attempts import PROGRAM
from paddle_node.volume.job_folder import JobFolder
from paddle_node.volume.passes import Identity

BEGINNING = Resumption()
EARLY = AttemptEnd("trainer 1 ended with 1", PROGRAM, 1, error="KeyError: 'x' (train.py:3)")


@pytest.fixture
def folder(tmp_path):
    return JobFolder(tmp_path / "job")


def test_numbers_go_on_over_pods_runs_and_a_history_that_was_removed(folder):
    for number, run in enumerate(("one", "one", "two"), 1):
        record = AttemptRecord(folder, run)
        assert (
            not record.is_unfinished()
            and record.begin(BEGINNING, Identity("data", "program")) == number
        )
        record.end(EARLY)
    # If numbers began at 1 again, each newly saved pass would be the oldest, and the first that
    # keep_passes removes.
    (folder.run_state / "attempts.json").unlink()
    folder.attempt("one", 5).mkdir(parents=True)
    assert AttemptRecord(folder, "three").begin(BEGINNING, Identity("data", "program")) == 6


@pytest.mark.parametrize(
    "text", ["", '{"attempts": [{"number": "1", "run": "r", "started": 1.0}], "outcomes": {}}']
)
def test_what_somebody_else_wrote_there_is_a_sentence(folder, text):
    folder.run_state.mkdir(parents=True)
    (folder.run_state / "attempts.json").write_text(text)
    with pytest.raises(Failure, match=r"attempts\.json is corrupt: remove it"):
        AttemptRecord(folder, "one")

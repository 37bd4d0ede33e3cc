"""The record of attempts: numbers never come twice, and a new pod of trainer 0 goes on where the old one was."""

from pathlib import Path

import pytest
from paddle_node.contract import JobFolder
from paddle_node.failure import Failure
from paddle_node.rendezvous import attempts
from paddle_node.rendezvous.attempts import CLUSTER, CLUSTER_FAULTS, POD, PROGRAM, STOPPED, Loss, Outcome, Record
from paddle_node.runtimes import Resumption
from paddle_node.training.passes import Identity

IDENTITY = Identity("data", "program")
BEGINNING = Resumption()


def behind(number: int) -> Resumption:
    return Resumption({"pass": str(number)})


def folder(place: Path) -> JobFolder:
    return JobFolder(place / "job")


def test_numbers_go_on_over_pods_and_runs(tmp_path):
    first = Record(folder(tmp_path), "one")
    assert first.begin(BEGINNING, IDENTITY) == 1
    first.end(Loss("trainer 1 ended with 7", PROGRAM, 7), "pass 0")
    # Another pod of the same run, then another run.
    second = Record(folder(tmp_path), "one")
    assert not second.unfinished()
    assert second.begin(behind(0), IDENTITY) == 2
    third = Record(folder(tmp_path), "two")
    assert not third.unfinished()
    assert third.begin(behind(0), IDENTITY) == 3


def test_a_history_that_was_removed_begins_behind_the_newest_folder(tmp_path):
    """From 1 again, each pass just saved would be the oldest one, and the first that keep_passes removes."""
    folder(tmp_path).attempt("one", 5).mkdir(parents=True)
    assert Record(folder(tmp_path), "two").begin(BEGINNING, IDENTITY) == 6


def test_a_pass_is_unloadable_after_two_attempts_that_failed_before_their_first_step(tmp_path):
    record = Record(folder(tmp_path), "one")
    for failed, stepped, unloadable in ((True, False, False), (False, False, False), (True, False, True), (True, True, False)):
        record.begin(behind(9), IDENTITY)
        record.end(Loss("a cause", PROGRAM, failed=failed, stepped=stepped))
        assert Record(folder(tmp_path), "one").history.unloadable == ([behind(9).resume] * 2 if unloadable else [])
        assert Record(folder(tmp_path), "another run").history.unloadable == []


def ended(record: Record, begin: Resumption, loss: Loss, made: str = "", join: bool = True) -> Outcome | None:
    record.begin(begin, IDENTITY)
    record.end(loss, made, join)
    return record.exhausted(3, join)


def test_only_failures_of_the_program_count_against_the_attempts_and_faults_of_the_cluster_apart(tmp_path):
    record = Record(folder(tmp_path), "one")
    for kind in (POD, STOPPED, CLUSTER, PROGRAM, PROGRAM):
        assert ended(record, BEGINNING, Loss(f"a {kind}", kind, 1, failed=kind == PROGRAM, stepped=True)) is None
    assert ended(record, BEGINNING, Loss("a third one", PROGRAM, 137)) == Outcome(
        70, "3 attempts ended without progress: attempt 4: a program; attempt 5: a program; attempt 6: a third one"
    )
    assert ended(record, BEGINNING, Loss("", PROGRAM), "pass 0") is None
    found = [ended(record, BEGINNING, Loss("silence", CLUSTER)) for _ in range(CLUSTER_FAULTS)]
    assert [outcome is not None for outcome in found] == [False] * (CLUSTER_FAULTS - 1) + [True]


def test_a_failure_before_the_first_step_is_not_tried_again(tmp_path):
    loss = Loss("trainer 1 ended with 1: KeyError: 'x' (train.py:3)", PROGRAM, 1, failed=True, error="KeyError: 'x' (train.py:3)")
    first = Record(folder(tmp_path), "one")
    sentence = f"attempt 1 failed before its first step and is not tried again: {loss.cause}"
    assert ended(first, BEGINNING, loss) == Outcome(70, sentence)
    # It may be the pass: once more, and then the one before, where there is one.
    resumed = Record(folder(tmp_path), "two")
    assert ended(resumed, behind(0), loss) is None and resumed.hopeless(behind(0)) is None
    assert ended(resumed, behind(0), loss) is None and resumed.hopeless(behind(1)) is None
    assert "failed before their first step" in resumed.hopeless(behind(0)).sentence
    # A program that tells no steps: the same exception twice says so.
    unknown = Record(folder(tmp_path), "three")
    assert ended(unknown, behind(0), loss, join=False) is None
    assert ended(unknown, behind(1), loss, join=False) is None
    assert "not tried again" in ended(unknown, behind(1), loss, join=False).sentence
    for run, hopeless in enumerate((Loss("", PROGRAM, 127, True), Loss("", PROGRAM, 1, True, "SyntaxError: invalid (a.py:1)"))):
        assert "not tried again" in ended(Record(folder(tmp_path), f"{run}"), BEGINNING, hopeless, join=False).sentence


def test_a_program_that_rewrites_its_checkpoint_and_fails_alike_ends(tmp_path):
    """Each attempt seems to make progress, and none does."""
    record = Record(folder(tmp_path), "one")
    for number in range(attempts.ALIKE):
        assert number == 0 or record.exhausted(3, trainers_join=False) is None
        record.begin(Resumption({"newest": "output/latest"}), IDENTITY)
        record.end(Loss("trainer 0 ended with 1", PROGRAM, 1, failed=True, error="SameFileError"), "output/latest", False)
    assert record.exhausted(3, trainers_join=False).sentence == (
        "10 attempts resumed from the same files and failed alike: trainer 0 ended with 1"
    )
    record.begin(Resumption({"newest": "output/latest"}), IDENTITY)
    record.end(Loss("trainer 0 ended with 1", PROGRAM, 1, failed=True, error="another"), "output/latest", False)
    assert record.exhausted(3, trainers_join=False) is None


@pytest.mark.parametrize("text", [
    "",
    "[]",
    '{"attempts": []}',
    '{"attempts": [{"number": "1", "run": "r", "started": 1.0}], "outcomes": {}}',
    '{"attempts": [{"number": 1, "run": "r", "started": 1.0, "early": 1}], "outcomes": {}}',
    '{"attempts": [], "outcomes": {"r": {"code": true, "sentence": ""}}}',
])  # fmt: skip
def test_what_somebody_else_wrote_there_is_a_sentence(tmp_path, text):
    (tmp_path / "job/output/run").mkdir(parents=True)
    (tmp_path / "job/output/run/attempts.json").write_text(text)
    with pytest.raises(Failure, match=r"attempts\.json is corrupt: remove it"):
        Record(folder(tmp_path), "one")

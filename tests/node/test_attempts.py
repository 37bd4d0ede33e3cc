"""The record of attempts: numbers never come twice, and a new pod of trainer 0 goes on where the old one was."""

from pathlib import Path

import pytest
from paddle_node.attempts import Outcome, Record, outcome
from paddle_node.contract import JobFolder
from paddle_node.failure import Failure


def folder(place: Path) -> JobFolder:
    return JobFolder(place / "job")


def test_numbers_go_on_over_pods_and_runs(tmp_path):
    first = Record(folder(tmp_path), "one")
    assert first.begin(None) == 1
    first.end("trainer 1 ended with 7", 7, 0)
    # Another pod of the same run, then another run.
    second = Record(folder(tmp_path), "one")
    assert not second.unfinished()
    assert second.begin(0) == 2
    third = Record(folder(tmp_path), "two")
    assert not third.unfinished()
    assert third.begin(0) == 3


def test_what_died_without_a_word_is_unfinished(tmp_path):
    Record(folder(tmp_path), "one").begin(None)
    again = Record(folder(tmp_path), "one")
    assert again.unfinished()
    again.end("the pod of trainer 0 was lost", 0, None)
    assert [attempt.number for attempt in Record(folder(tmp_path), "one").fruitless()] == [1]


def test_only_attempts_behind_the_last_new_pass_count(tmp_path):
    record = Record(folder(tmp_path), "two")
    for resume, newest, counts in ((None, None, True), (None, 3, True), (3, 3, True), (3, 3, False), (3, 3, True)):
        record.begin(resume)
        record.end("a cause", 0, newest, counts)
    assert [attempt.number for attempt in record.fruitless()] == [3, 5]
    assert Record(folder(tmp_path), "three").fruitless() == []


def test_an_attempt_that_is_under_way_is_not_counted(tmp_path):
    record = Record(folder(tmp_path), "one")
    record.begin(None)
    assert record.fruitless() == []


def test_the_outcome_is_for_its_run_alone(tmp_path):
    Record(folder(tmp_path), "one").finish(Outcome(70, "3 attempts ended"))
    assert outcome(folder(tmp_path), "one") == Outcome(70, "3 attempts ended")
    assert outcome(folder(tmp_path), "two") is None


@pytest.mark.parametrize("text", ["", "[]", '{"attempts": [{}], "outcomes": {}}', '{"attempts": []}'])
def test_what_somebody_else_wrote_there_is_a_sentence(tmp_path, text):
    (tmp_path / "job/output/run").mkdir(parents=True)
    (tmp_path / "job/output/run/attempts.json").write_text(text)
    with pytest.raises(Failure, match=r"attempts\.json was changed by another hand: remove it"):
        outcome(folder(tmp_path), "one")

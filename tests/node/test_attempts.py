"""The record of attempts: numbers never come twice, and a new pod of trainer 0 goes on where the old one was."""

from pathlib import Path

import pytest
from paddle_node import attempts
from paddle_node.attempts import Outcome, Record, outcome
from paddle_node.contract import JobFolder
from paddle_node.failure import Failure
from paddle_node.passes import Identity
from paddle_node.resumption import Resumption

IDENTITY = Identity("data", "program")
BEGINNING = Resumption()


def behind(number: int) -> Resumption:
    return Resumption(number, f"attempts/run-1/pass-{number:05d}")


def folder(place: Path) -> JobFolder:
    return JobFolder(place / "job")


def test_numbers_go_on_over_pods_and_runs(tmp_path):
    first = Record(folder(tmp_path), "one")
    assert first.begin(BEGINNING, IDENTITY) == 1
    first.end(cause="trainer 1 ended with 7", code=7, newest_pass=0)
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


def test_what_died_without_a_word_is_unfinished(tmp_path):
    Record(folder(tmp_path), "one").begin(BEGINNING, IDENTITY)
    again = Record(folder(tmp_path), "one")
    assert again.unfinished()
    again.end(cause="the pod of trainer 0 was lost")
    assert [attempt.number for attempt in Record(folder(tmp_path), "one").fruitless()] == [1]


def test_only_attempts_behind_the_last_new_pass_count(tmp_path):
    record = Record(folder(tmp_path), "two")
    begins = (
        (BEGINNING, None, True),
        (BEGINNING, 3, True),
        (behind(3), None, True),
        (behind(3), None, False),
        (behind(3), 3, True),
    )
    for begin, newest, counts in begins:
        record.begin(begin, IDENTITY)
        record.end(cause="a cause", newest_pass=newest, counts=counts)
    assert [attempt.number for attempt in record.fruitless()] == [3, 5]
    assert Record(folder(tmp_path), "three").fruitless() == []


def test_an_attempt_that_is_under_way_is_not_counted(tmp_path):
    record = Record(folder(tmp_path), "one")
    record.begin(BEGINNING, IDENTITY)
    assert record.fruitless() == []


def test_a_run_keeps_the_data_and_the_program_of_its_first_attempt(tmp_path):
    assert attempts.identity(folder(tmp_path), "one") is None
    Record(folder(tmp_path), "one").begin(BEGINNING, IDENTITY)
    assert attempts.identity(folder(tmp_path), "one") == Record(folder(tmp_path), "one").identity == IDENTITY
    assert attempts.identity(folder(tmp_path), "two") is None


def test_a_pass_is_unloadable_after_two_attempts_that_failed_before_their_first_step(tmp_path):
    record = Record(folder(tmp_path), "one")
    for failed, stepped, unloadable in ((True, False, False), (False, False, False), (True, False, True), (True, True, False)):
        record.begin(behind(9), IDENTITY)
        record.end(cause="a cause", failed=failed, stepped=stepped)
        assert Record(folder(tmp_path), "one").unloadable() == ({behind(9).folder} if unloadable else set())
        assert Record(folder(tmp_path), "another run").unloadable() == set()


def test_the_outcome_is_for_its_run_alone(tmp_path):
    Record(folder(tmp_path), "one").finish(Outcome(70, "3 attempts ended"))
    assert outcome(folder(tmp_path), "one") == Outcome(70, "3 attempts ended")
    assert outcome(folder(tmp_path), "two") is None


@pytest.mark.parametrize("text", ["", "[]", '{"attempts": [{}], "outcomes": {}}', '{"attempts": []}'])
def test_what_somebody_else_wrote_there_is_a_sentence(tmp_path, text):
    (tmp_path / "job/output/run").mkdir(parents=True)
    (tmp_path / "job/output/run/attempts.json").write_text(text)
    with pytest.raises(Failure, match=r"attempts\.json is corrupt: remove it"):
        outcome(folder(tmp_path), "one")

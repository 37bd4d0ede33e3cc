"""Which passes count, from the lines that trainers leave on the volume."""

import json

from operations.jobs.training_metrics import passes


def line(number: int, attempt: int, **more: int) -> str:
    facts = {"pass": number, "attempt": attempt, "loss": 0.5, "records": 10, "seconds": 1.0, "time": 100.0}
    return json.dumps(facts | more) + "\n"


def test_a_pass_counts_once_all_of_its_own_trainers_have_reported_it() -> None:
    """Pass 0 had three trainers, the run behind it has two."""
    metrics = {
        0: line(0, 1, trainers=3) + line(1, 2, trainers=2) + line(2, 2, trainers=2),
        1: line(0, 1, trainers=3) + line(1, 2, trainers=2),
        2: line(0, 1, trainers=3),
    }
    assert [(one.number, one.records) for one in passes(metrics)] == [(0, 30), (1, 20)]


def test_lines_that_do_not_say_how_many_trainers_there_are_wait_for_all() -> None:
    assert [one.number for one in passes({0: line(0, 1) + line(1, 1), 1: line(0, 1)})] == [0]

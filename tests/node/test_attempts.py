"""The record of attempts: no number is used twice, and too many failures end the job."""

from dataclasses import replace

import pytest
from paddle_node.failure import Failure
from paddle_node.rendezvous.attempt_end import AttemptEnd
from paddle_node.rendezvous.attempts import Record
from paddle_node.rendezvous.retry_limits import ALIKE_LIMIT, CLUSTER_FAULTS
from paddle_node.runtimes import Resumption
from paddle_node.volume.attempts import CLUSTER, PROGRAM
from paddle_node.volume.job_folder import JobFolder
from paddle_node.volume.passes import Identity

BEGINNING, ZERO = Resumption(), Resumption({"pass": "0"}, "after pass 0")
ONE = Resumption({"pass": "1"}, "after pass 1")
EARLY = AttemptEnd(
    "trainer 1 ended with 1", PROGRAM, 1, failed=True, error="KeyError: 'x' (train.py:3)"
)


@pytest.fixture
def folder(tmp_path):
    return JobFolder(tmp_path / "job")


def tried(
    record: Record, begin: Resumption, ending: AttemptEnd, progress: str = "", join: bool = True
) -> str:
    """Records an attempt that ends with `ending`. Returns why no other attempt follows; empty if
    one does.
    """
    record.begin(begin, Identity("data", "program"))
    record.end(ending, progress, join)
    outcome = record.check_limits(3) or record.find_hopeless_outcome(begin)
    assert outcome is None or outcome.code == 70
    return outcome.sentence if outcome else ""


def test_numbers_go_on_over_pods_runs_and_a_history_that_was_removed(folder):
    for number, run in enumerate(("one", "one", "two"), 1):
        record = Record(folder, run)
        assert (
            not record.is_unfinished()
            and record.begin(BEGINNING, Identity("data", "program")) == number
        )
        record.end(EARLY)
    # If numbers began at 1 again, each newly saved pass would be the oldest, and the first that
    # keep_passes removes.
    (folder.run_state / "attempts.json").unlink()
    folder.attempt("one", 5).mkdir(parents=True)
    assert Record(folder, "three").begin(BEGINNING, Identity("data", "program")) == 6


def test_faults_of_the_cluster_count_apart_and_end_a_job_too(folder):
    record = Record(folder, "one")
    sentences = [
        tried(record, BEGINNING, AttemptEnd("silence", CLUSTER)) for _ in range(CLUSTER_FAULTS)
    ]
    assert not any(sentences[:-1]) and sentences[-1]


NOT_AGAIN = "attempt {} failed before its first step and is not tried again: trainer 1 ended with 1"
UNLOADABLE = (
    "two attempts that began after pass 1 failed before their first step, and there is nothing "
    "older to resume from: trainer 1 ended with 1"
)
REWRITES = [(ONE, EARLY, "pass 1")]


@pytest.mark.parametrize(("join", "attempts", "sentence"), [
    (True, [(BEGINNING, EARLY, "")], NOT_AGAIN.format(1)),
    # The pass may be at fault: the job tries it once more, and then the pass before, if there is
    # one.
    (True, [(ONE, EARLY, ""), (ONE, EARLY, "")], UNLOADABLE),
    (True, [(ONE, EARLY, ""), (ZERO, EARLY, "")], ""),
    (True, [(ONE, EARLY, ""), (ONE, AttemptEnd("killed", PROGRAM), "")], ""),
    # A fall by a signal is no exception.
    (True, [(BEGINNING, replace(EARLY, code=134, exited=False), "")], ""),
    # A program that reports no steps is tried as often as the setting says, unless it ended by an
    # exception that no attempt can change.
    (False, [(BEGINNING, EARLY, "")] * 2, ""),
    (False, [(BEGINNING, EARLY, "")] * 3, "3 attempts ended without progress: " + "; ".join(
        f"attempt {number}: trainer 1 ended with 1" for number in (1, 2, 3))),
    # What it resumed from may be at fault, whatever the exceptions, unless the attempts were killed
    # or it loaded once.
    (False, [(ZERO, EARLY, ""), (ONE, EARLY, "")], ""),
    (False, [(ONE, EARLY, ""), (ONE, replace(EARLY, error="another"), "")], UNLOADABLE),
    (False, [(ONE, EARLY, ""), (ONE, AttemptEnd("killed", PROGRAM, 137), "")], ""),
    (False, [(ONE, EARLY, "output/a"), (ONE, EARLY, ""), (ONE, EARLY, "")], ""),
    (False, [(BEGINNING, replace(EARLY, error="SyntaxError: invalid (a.py:1)", uncaught=True), "")],
     NOT_AGAIN.format(1)),
    (False, [(BEGINNING, replace(EARLY, error="ImportError: no x (a.py:1)"), "")], ""),
    # If a program rewrites its checkpoint, each attempt seems to make progress, and none does.
    (False, REWRITES * ALIKE_LIMIT,
     "10 attempts resumed from the same files and failed alike: trainer 1 ended with 1"),
    (False,
     [*REWRITES * (ALIKE_LIMIT - 1),
      (ONE, AttemptEnd("", PROGRAM, 1, True, "another"), "pass 1")], ""),
])  # fmt: skip
def test_what_failed_before_its_first_step_is_not_tried_in_vain(folder, join, attempts, sentence):
    record = Record(folder, "one")
    assert [tried(record, *attempt, join) for attempt in attempts] == [""] * (len(attempts) - 1) + [
        sentence
    ]
    assert not Record(folder, "another run").history.unloadable


@pytest.mark.parametrize(
    "text", ["", '{"attempts": [{"number": "1", "run": "r", "started": 1.0}], "outcomes": {}}']
)
def test_what_somebody_else_wrote_there_is_a_sentence(folder, text):
    folder.run_state.mkdir(parents=True)
    (folder.run_state / "attempts.json").write_text(text)
    with pytest.raises(Failure, match=r"attempts\.json is corrupt: remove it"):
        Record(folder, "one")

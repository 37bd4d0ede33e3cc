"""The failure policy, row by row, asked of the rendezvous itself with its record of attempts."""

import re
from pathlib import Path

import pytest
from paddle_node.contract import FAIL_JOB
from paddle_node.rendezvous import effects as e
from paddle_node.rendezvous import messages as m
from paddle_node.rendezvous import policy
from paddle_node.volume.attempts import CLUSTER
from reducer import Run, as_recorded

PAGE = Path(__file__).parents[2] / "docs/faults.md"
STEPS = {"METRICS": '{"loss": "loss (.*)"}'}
FALLS = {"code": 1, "error": "ValueError: no such flag (a.py:1)"}
NOT_AGAIN = "attempt 1 failed before a step was seen and is not tried again: trainer 1 ended with 1"
NEVER_STARTS = "attempt 1 cannot start and is not tried again: trainer 1 ended with"


def test_the_page_shows_the_rules_that_decide():
    table = "\n".join(policy.print_rules())
    assert table in PAGE.read_text(), (
        "docs/faults.md is behind: python -m paddle_node.rendezvous.policy prints its table"
    )


def fall_once(run: Run, code: int, **more) -> None:
    """Lets trainer 1 end, and with it the attempt."""
    run.train()
    run.fall(1, code, **more)
    run.clear()


def tried(run: Run, most: int = 20, **fall) -> int:
    """Returns the number of attempts that all end alike before the run does; 0: it goes on."""
    run.come()
    for number in range(1, most + 1):
        assert run.attempt == number
        fall_once(run, **fall)
        if run.outcome is not None:
            return number
    return 0


@pytest.mark.parametrize(("join", "settings", "fall", "attempts", "sentence"), [
    # Codes that no attempt can change.
    *[(False, {}, {"code": code}, 1, f"{code}, in job-1.job, which another attempt cannot change")
      for code in FAIL_JOB],
    # A program that cannot start, whether or not anybody would see a step of it.
    (False, {}, {"code": 126}, 1, NEVER_STARTS),
    (False, {}, {"code": 127}, 1, NEVER_STARTS),
    (False, {}, {"code": 1, "error": "SyntaxError: x (a.py:1)", "uncaught": True}, 1, NEVER_STARTS),
    (False, {}, {"code": 1, "error": "ModuleNotFoundError: x", "uncaught": True}, 1, NEVER_STARTS),
    (True, {}, {"code": 1, "error": "ImportError: x", "uncaught": True}, 1, NOT_AGAIN),
    # One that the program handled, and one behind a step.
    (False, {}, {"code": 1, "error": "ImportError: x"}, 3, "^3 attempts ended without progress"),
    (False, {}, {"code": 1, "error": "ImportError: x", "uncaught": True, "stepped": True}, 3,
     "^3 attempts ended without progress"),
    # Its own exception before its first step; where nobody can know of one, the limit decides.
    (False, STEPS, FALLS, 3, "^3 attempts ended without progress"),
    (False, STEPS | {"ATTEMPTS": "11"}, FALLS | {"stepped": False}, 1, NOT_AGAIN),
    (False, STEPS | {"ATTEMPTS": "11"}, FALLS, 11, "^11 attempts resumed from the same files and"),
    (False, {}, FALLS | {"stepped": False}, 1, NOT_AGAIN),
    (True, {}, {"code": 1, "error": "RuntimeError: x"}, 1, NOT_AGAIN),
    (False, {}, FALLS | {"stepped": True}, 3, "^3 attempts ended without progress"),
    (False, {}, FALLS, 3, "^3 attempts ended without progress"),
    (False, STEPS, FALLS | {"error": "ConnectionError: refused"}, 3, "^3 attempts ended without"),
    (False, STEPS, FALLS | {"code": 134}, 3, "^3 attempts ended without progress"),
    # Killed, or the volume was full: says nothing of the program.
    *[(False, STEPS, {"code": code}, 3, "^3 attempts ended without progress")
      for code in (137, 143, 74)],
    (False, {"ATTEMPTS": "12"}, {"code": 3, "error": "OSError: x"}, 12, "^12 attempts resumed from "
     "the same files and failed alike: trainer 1 ended with 3: OSError: x, in job-1.job$"),
    (False, {"ATTEMPTS": "2"}, {"code": 3}, 2, "^2 attempts ended without progress: attempt 1: "
     "trainer 1 ended with 3, in job-1.job; attempt 2: trainer 1 ended with 3, in job-1.job$"),
])  # fmt: skip
def test_how_often_a_failure_is_tried(tmp_path, join, settings, fall, attempts, sentence):
    run = Run(tmp_path, trainers_join=join, **settings)
    assert tried(run, **fall) == attempts
    assert run.outcome.code == (fall["code"] if fall["code"] in FAIL_JOB else 70)
    assert re.search(sentence, run.outcome.sentence), run.outcome.sentence
    assert run.crashed == ([1, fall["code"]] if run.outcome.code == 70 else None)


@pytest.mark.parametrize("code", FAIL_JOB)
@pytest.mark.parametrize("seconds", [4, 8])
def test_the_codes_of_others_are_the_consequence_of_a_pod_that_was_silent(tmp_path, code, seconds):
    """A silence of six seconds is a lost pod; after a shorter one the pod comes back."""
    run = Run(tmp_path)
    run.come()
    run.train()
    run.tick(2, 0)
    run.fall(0, code)
    run.clear(0)
    run.tick(seconds - 2, 0)
    run.clear(1)
    (ended,) = run.attempts[:1]
    assert ended.cause.startswith(f"trainer 0 ended with {code}")
    assert f"the pod of trainer 1 (job-1.job) {'had ' * (seconds < 6)}said nothing" in ended.cause
    assert ended.kind == ("program" if seconds < 6 else "pod")
    if seconds > 6:
        run.come(1)
    assert run.outcome is None and run.attempt == 2


def test_a_clock_that_has_just_begun_is_no_pause(tmp_path):
    run = Run(tmp_path)
    run.come()
    fall_once(run, 2)
    assert run.attempts[0].cause == "trainer 1 ended with 2, in job-1.job"
    assert run.outcome.code == 2


def test_lost_pods_and_stops_cost_no_attempt(tmp_path):
    run = Run(tmp_path, ATTEMPTS="1")
    run.come()
    for number in range(1, 13):
        run.train()
        if number % 2:
            run.fall(0, 134)  # Its peer is gone before anybody knows of that.
            run.clear(0)
            run.lose(1)
            run.come(1)
        else:
            run.report(1, leaving=True)
            for rank in (0, 1):
                run.report(rank, ended="stopped")
            run.clear()
        assert run.outcome is None and run.attempt == number + 1
    assert [attempt.kind for attempt in run.attempts[:2]] == ["pod", "stopped"]
    assert all(attempt.kind in ("pod", "stopped") for attempt in run.attempts[:-1])


def test_faults_of_the_cluster_have_a_limit_of_their_own(tmp_path):
    run = Run(tmp_path, ATTEMPTS="1")
    run.come()
    for number in range(1, policy.CLUSTER_FAULTS + 1):
        assert run.outcome is None and run.attempt == number
        run.train()
        run.report(0, serving=True, silent=True)
        run.tick(241, 0, 1)
        run.clear()
    assert {attempt.kind for attempt in run.attempts} == {CLUSTER}
    assert run.outcome.sentence.startswith("10 attempts ended without progress: attempt 1: pserver")


@pytest.mark.parametrize(("join", "stepped", "saved", "attempts", "resumed"), [
    # A checkpoint that does not load: it is tried twice, then the one before.
    (True, False, ["b", "a"], 3, "bba"),
    (False, False, ["b", "a"], 3, "bba"),
    (False, None, ["b", "a"], 3, "bba"),
    # Nothing is older. If nobody can know whether a step was made, the setting decides.
    (True, False, ["a"], 2, "aa"),
    (False, False, ["a"], 2, "aa"),
    (False, None, ["a"], 3, "aaa"),
    (False, True, ["b", "a"], 3, "bbb"),
])  # fmt: skip
def test_what_two_attempts_could_not_load_is_not_resumed_from(
    tmp_path, join, stepped, saved, attempts, resumed
):
    run = Run(tmp_path, trainers_join=join, **STEPS)
    run.files.saved = saved
    assert tried(run, code=1, error="KeyError: 'x'", stepped=stepped) == attempts
    assert "".join(attempt.resume["newest"] for attempt in run.attempts) == resumed
    hopeless = (
        "two attempts that began from a failed before their first step, and there is nothing "
        "older to resume from: trainer 1 ended with 1"
    )
    assert run.outcome.sentence.startswith(hopeless) == (attempts == 2)
    assert ("first step" in run.outcome.sentence) == (attempts == 2)


def test_with_one_line_an_epoch_the_setting_says_how_often_a_late_failure_is_tried(tmp_path):
    """Its first attempt shows an epoch and saves it; no later one comes as far as a line."""
    run = Run(tmp_path, ATTEMPTS="10", METRICS='{"step": "epoch (.*)"}')
    run.files.made = "epoch_1"
    run.come()
    run.files.saved = ["epoch_1"]
    fall_once(run, **FALLS)
    run.files.made = ""
    for _ in range(10):
        assert run.outcome is None
        fall_once(run, **FALLS)
    assert run.outcome.code == 70 and len(run.attempts) == 11
    assert "first step" not in run.outcome.sentence


def test_progress_counts_anew_unless_a_program_fails_alike_from_the_same_files(tmp_path):
    run = Run(tmp_path, ATTEMPTS="2")
    run.files.made, run.files.saved = "rewritten", ["rewritten"]
    run.come()
    for number in range(policy.ALIKE_LIMIT):
        assert run.outcome is None
        fall_once(run, 1, error="KeyError: 'x'" if number else "another")
    assert run.outcome is None
    fall_once(run, 1, error="KeyError: 'x'")
    assert run.outcome.sentence.startswith("10 attempts resumed from the same files and failed ali")


def test_a_process_that_was_killed_explains_the_failure_of_the_others(tmp_path):
    run = Run(tmp_path, **STEPS)
    run.come()
    run.train()
    run.fall(0, **FALLS)
    run.fall(1, 137, ago=0.0)
    run.clear()
    assert run.outcome is None and run.attempt == 2
    assert run.attempts[0].cause == (
        "trainer 0 ended with 1: ValueError: no such flag (a.py:1), in job-0.job; trainer 1 ended "
        "with 137, in job-1.job"
    )


def test_the_process_that_ended_first_is_the_cause_whichever_report_comes_first(tmp_path):
    run = Run(tmp_path)
    run.come()
    run.train()
    run.now = 5.0
    run.fall(1, 1, error="a consequence")
    run.fall(0, 1, error="it died first", ago=1.0)
    run.clear()
    assert run.attempts[0].cause.startswith("trainer 0 ended with 1: it died first")


@pytest.mark.parametrize(("code", "error", "cause"), [
    # Its peer is gone, so that its collective operation aborts: shards of 101 and 100 records.
    (134, "",
     "trainer 1 in job-1.job had ended with 0; then trainer 0 ended with 134, in job-0.job"),
    (1, "RuntimeError: Connection closed by peer",
     "trainer 1 in job-1.job had ended with 0; then trainer 0 ended with 1: RuntimeError: "
     "Connection closed by peer, in job-0.job"),
    (1, "KeyError: 'x' (a.py:3)",
     "trainer 0 ended with 1: KeyError: 'x' (a.py:3), in job-0.job; trainer 1 in job-1.job had "
     "ended with 0 before"),
])  # fmt: skip
def test_a_rank_that_had_ended_with_0_begins_the_sentence(tmp_path, code, error, cause):
    run = Run(tmp_path)
    run.come()
    run.train()
    run.report(1, serving=True, ended="trained")
    run.fall(0, code, error=error)
    run.clear()
    assert run.attempts[0].cause == cause


def test_a_stall_names_the_setting_and_who_had_ended_or_was_silent(tmp_path):
    run = Run(tmp_path, count=3, STALL="60", ATTEMPTS="1")
    run.come()
    run.train()
    run.report(2, serving=True, ended="trained")
    for second in range(1, 70):
        run.tick(1)
        for rank in range(3):
            run.tell(rank, m.Beat(min(second, 65), {0: second, 1: max(0, second - 5)}.get(rank)))
    run.clear()
    assert re.fullmatch(
        r"trainer 2 in job-2.job had ended with 0; then no step, no output and no progress for 6\d "
        r"s \(limits.stall_seconds is 60\); silent first: trainer 0 in job-0.job, for 6\d s",
        run.attempts[0].cause,
    ), run.attempts[0].cause


def test_pod_0_that_is_lost_between_an_end_and_its_outcome_leaves_a_successor_that_decides_the_same(
    tmp_path,
):
    run = Run(tmp_path)
    run.come()
    run.train()
    run.fall(1, 65)
    run.books.answer(e.RecordEnd(run.rendezvous._ending))
    run.serve()
    run.come()
    assert run.outcome.code == 65 and run.attempt == 1


@pytest.mark.parametrize("code", [2, 65, 1, 0, 256])
def test_what_no_pod_can_change_ends_the_run_and_is_never_a_success(tmp_path, code):
    run = Run(tmp_path)
    run.come()
    run.tell(1, m.Fatal(code, "x is 3"))
    assert (run.outcome and run.outcome.code) == (code if 0 < code < 256 else None)


def test_every_rule_has_a_case_that_it_decides():
    falls = as_recorded(code=1, stepped=False)
    cases = [
        policy.Facts(as_recorded(kind="stopped")),
        policy.Facts(as_recorded(kind="pod")),
        policy.Facts(as_recorded(code=2)),
        policy.Facts(as_recorded(code=127)),
        policy.Facts(falls),
        policy.Facts(as_recorded(code=1, stepped=False, resume={"newest": "a"}), nothing_older="a"),
        policy.Facts(as_recorded(code=1), alike=10),
        policy.Facts(as_recorded(kind="cluster")),
        policy.Facts(as_recorded(code=2, paused=True)),
    ]
    decided = [next(rule for rule in policy.RULES if rule.matches(facts)) for facts in cases]
    assert decided == list(policy.RULES)

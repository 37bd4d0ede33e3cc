"""How jobs end; tests/storm kills, freezes and stops processes and pods of real Paddle."""

import pytest

pytestmark = pytest.mark.slow

TWICE = "2 attempts ended without progress: attempt 1: {0}; attempt 2: {0}".format(
    "trainer 1 ended with 7, in job-1.job"
)
BAD_DATA = (
    "trainer 1 ended with 65 (BAD_DATA): this trainer fails on purpose, in job-1.job, which "
    "another attempt cannot change"
)
NOT_AGAIN = (
    "attempt 1 failed before a step was seen and is not tried again: trainer 1 ended with 1, in "
    "job-1.job"
)
INCOMPLETE = (
    "every trainer ended with 0, but pass 1 should be complete and pass 0 is the newest complete "
    "one"
)
# The fourth trains the last pass again, because two could not begin with it.
RETRAINED = "3 attempts ended without progress: " + "; ".join(
    f"attempt {number}: trainer 1 ended with 7, in job-1.job" for number in (2, 3, 4)
)


@pytest.mark.parametrize(("stand_in", "attempts", "codes", "sentence"), [
    ({"fails": [[1, 1, 0, 1], [1, 2, 0, 1]]}, "2", (70, 7, 70), TWICE),
    ({"fails": [[1, 1, 0, 1]], "code": 65}, "3", (65, 65, 65), BAD_DATA),
    # The other trainers may have made their first step: it is this one's that counts.
    ({"fails": [[1, 1, 0, 0]], "code": 1}, "3", (70, 1, 70), NOT_AGAIN),
    ({"forget_done": 1}, "1", (70, 70, 70), INCOMPLETE),
    ({"fails_at_end": 1}, "3", (70, 7, 70), RETRAINED),
], ids=["always", "hopeless", "first step", "incomplete", "after the last pass"])  # fmt: skip
def test_a_program_that_fails_ends_the_job_with_its_cause_also_for_a_pod_that_comes_later(
    job, stand_in, attempts, codes, sentence
):
    pods = job(stand_in=stand_in, ATTEMPTS=attempts)
    pods.start()
    pods.end_with(*codes)
    assert sentence in pods.log(1) and sentence in pods.log(2)
    pods.start(1)
    pods.end_with(codes[0], codes[2], codes[2])
    assert sentence in pods.log(1)


def test_pod_list_a_replacement_that_comes_after_the_end_learns_how_it_was(job, api):
    """The other pods have ended, so the replacement never sees all of them run. A storm has no
    event after their end.
    """
    pods = job(count=2, stand_in={"passes": 1, "steps": 1}, api=api, PEER_DEADLINE="60")
    pods.start()
    pods.end_with(0, 0)
    pods.listed(0, "Succeeded")
    pods.kill(1)
    pods.start(1)
    pods.end_with(0, 0)
    assert "pass 0 is complete: the job is done" in pods.log(1)

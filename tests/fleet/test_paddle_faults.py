"""Real Paddle, real kills: a job with a fault reaches the result of undisturbed runs, measured
here, or the test fails. tests/storm has more kills, on sums that are exact: those need SGD and
whole numbers, and so cannot show that Adam's moments and the rows of embeddings return.

Asynchronous training never gives the same result twice, so "the same" means that accuracy and the
last pass's loss lie where one more undisturbed run with the same data and seed would lie with 99.99
% probability, judged by the mean and the standard deviation of five runs (Student's t). A loss may
also lie within a tenth of the way to the pass before, because five runs may lie closer together by
chance than ten do. Every record of every shard is trained in every pass that counts. The loss is
the sharper criterion: a model that had lost a pass would lie far outside, which is asserted, too.
"""

import os
import signal
import statistics

import pytest
from node_pods import runs
from training_job import TrainingJob

pytestmark = [pytest.mark.slow, pytest.mark.long]
PODS, PASSES, LINES = 2, 3, 6000
RECORDS = LINES * 9 // 10 // PODS
IN_A_SAVE = f"""
if seen == {RECORDS * 2} and index == "0":
    def held(file, sync=os.fsync):
        hold()
        sync(file)
    os.fsync = held
"""
"""Holds trainer 0 just before the first sync of the second pass that it saves to the volume."""
UNDISTURBED = 5
WIDTH = 15.544 * (1 + 1 / UNDISTURBED) ** 0.5
"""Standard deviations, on either side, within which one more run of a normal distribution lies
9,999 times in 10,000: Student's t for the 4 degrees of freedom that five runs leave. Four
comparisons fail by chance in one run out of 2,500.
"""


def result(job: TrainingJob) -> list[float]:
    """Asserts that every record was trained. Returns the accuracy and each pass's mean loss, the
    last pass first.
    """
    job.end_with()
    found = job.judged()
    assert found["pass"] == PASSES - 1
    losses = []
    for trainer, records in enumerate(job.records()):
        # For a pass that was trained again, the last time counts.
        metrics = {line["pass"]: line for line in job.metrics(trainer)}
        assert {number: line["records"] for number, line in metrics.items()} == dict.fromkeys(
            range(PASSES), records
        )
        losses.append([metrics[number]["loss"] for number in reversed(range(PASSES))])
    return [found["value"], *map(statistics.mean, zip(*losses, strict=True))]


def fits(value: float, found: tuple[float, ...], least: float = 0.0) -> bool:
    """Whether one more undisturbed run might reach `value`; a distance of `least` fits in any
    case.
    """
    return abs(value - statistics.mean(found)) <= max(least, WIDTH * statistics.stdev(found))


def begun(job: TrainingJob) -> TrainingJob:
    job.split(job.make_sample("--lines", str(LINES)))
    job.start()
    return job


def runs_undisturbed(tmp_path_factory) -> list[list[float]]:
    found = []
    for _ in range(UNDISTURBED):
        with TrainingJob(
            tmp_path_factory.mktemp("undisturbed"), pods=PODS, PASSES=str(PASSES)
        ) as job:
            found.append(result(begun(job)))
    return found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, once) -> list[tuple[tuple[float, ...], float]]:
    """Accuracies and last losses, each with the distance that fits in any case."""
    found = once("undisturbed", lambda: runs_undisturbed(tmp_path_factory))
    accuracies, last, before, _ = zip(*found, strict=True)
    print("undisturbed: accuracy", *accuracies, "loss", *last, "before", *before)
    near = (statistics.mean(before) - statistics.mean(last)) / 10
    assert not any(fits(loss, last, near) for loss in before), "a lost pass would not be noticed"
    return [(accuracies, 0.0), (last, near)]


@pytest.mark.parametrize(("victim", "moment"), [("pserver 1", "pass"), ("pod 0", "save")])
def test_kill_9(training_job, undisturbed, victim: str, moment: str) -> None:
    role, number = victim.split()
    index = int(number)
    # One attempt is enough, because a lost pod costs none.
    job = training_job(pods=PODS, PASSES=str(PASSES), ATTEMPTS="1" if role == "pod" else "3")
    job.at_each_record(IN_A_SAVE if moment == "save" else f"if seen == {RECORDS * 3 // 2}: hold()")
    begun(job).wait_until_held(1 if moment == "save" else PODS)
    # The first pass is complete; nothing of the second is saved, or a half.
    assert job.folder.done(0).exists() and not list(
        job.folder.output.glob("attempts/*/pass-00001/done")
    )
    assert len(list(job.folder.output.glob("attempts/*/pass-00001"))) == (moment == "save")
    if role == "pod":
        children = [job.child(index, "trainer"), job.child(index, "pserver")]
        job.kill(index)
        job.wait_for((index + 1) % PODS, f"trainer {index}.* was lost")
        job.wait_until(lambda: not any(map(runs, children)))
        job.start(index)
    else:
        os.kill(job.child(index, role), signal.SIGKILL)
    job.wait_for((index + 1) % PODS, "attempt 2: trainer . is process")
    job.release()
    job.wait_for((index + 1) % PODS, "pass=1 attempt=2")
    for value, (found, near) in zip(result(job), undisturbed, strict=False):
        assert fits(value, found, near), f"{value} is not within {found}"
    first, _ = job.attempts()
    # What the silent ones waited for may follow.
    ended = f"{role} {index} ended with 137 (SIGKILL), in job-{index}.job"
    assert role == "pod" or first["cause"].startswith(ended)
    assert ("pass 1 was not complete and is removed" in job.log(0)) == (moment == "save")

"""A job that continues with more or fewer pods than before. Real Paddle: about 25 s."""

import pytest

pytestmark = pytest.mark.slow


def test_the_data_must_be_split_anew_and_then_nothing_is_lost(training_job):
    job = training_job(pods=2, PASSES="2")
    source = job.make_sample()
    job.split(source)
    job.run()
    before = job.judged()

    job.count = 3
    said = job.run(65, 65, 65, RUN_ID="three", PASSES="3")
    assert (
        said.count("lists 2 shards, but this job has 3 trainers: split the data again") >= 3
        and "pass=" not in said
    )

    # The parts of two pservers go to three, then those of three to two: pass 2 begins where pass 1
    # ended.
    for pods, number in ((3, 2), (2, 3)):
        job.count = pods
        job.split(source)
        # A new split is other data, so the job must ask to continue from what it learned on the old
        # one.
        job.run(RUN_ID=f"{pods}-again", PASSES=str(number + 1), RESUME_FROM="any")
        for trainer, records in enumerate(job.records()):
            last, earlier = job.metrics(trainer)[-1], job.metrics(0)[-2]
            assert (last["pass"], last["records"]) == (number, records)
            # A model that had lost a pserver's part would have to learn it again.
            assert last["loss"] < earlier["loss"]
        found = job.judged()
        assert found["pass"] == number and found["value"] > before["value"] - 0.03
        before = found

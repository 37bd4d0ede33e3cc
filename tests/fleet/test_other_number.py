"""A job that goes on with more or fewer pods than before. Real Paddle: about 25 s."""

import json

import pytest

pytestmark = pytest.mark.slow


def accuracy(job, number: int) -> float:
    result = job.evaluate()
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["pass"] == number
    return found["value"]


def records(job) -> list[int]:
    shards = json.loads(job.folder.data_manifest.read_text())["shards"]
    return [sum(file["records"] for file in shard["files"]) for shard in shards]


def test_the_data_must_be_split_anew_and_then_nothing_is_lost(training_job):
    job = training_job(pods=2, PASSES="2")
    source = job.make_sample()
    job.split(source)
    job.start()
    assert job.wait() == [0, 0], job.said()
    before = accuracy(job, 1)

    job.add_pods(3)
    job.start(RUN_ID="three", PASSES="3")
    assert job.wait() == [65, 65, 65], job.said()
    for log in job.logs:
        said = log.read_text(errors="replace")
        assert "lists 2 shards, but this job has 3 trainers: split the data again" in said and "first batch" not in said

    # Parts of two pservers into three, then of three into two: pass 2 begins where pass 1 ended.
    for pods, number in ((3, 2), (2, 3)):
        job.pods = pods
        job.split(source)
        # Another split is other data: to go on from what was learned on the one before is asked for.
        job.start(RUN_ID=f"{pods}-again", PASSES=str(number + 1), RESUME_FROM="any")
        assert job.wait() == [0] * pods, job.said()
        shards = records(job)
        for trainer in range(pods):
            last, earlier = job.metrics(trainer)[-1], job.metrics(0)[-2]
            assert (last["pass"], last["records"]) == (number, shards[trainer])
            # A model that had lost a pserver's part would have to learn it anew.
            assert last["loss"] < earlier["loss"]
        found = accuracy(job, number)
        assert found > before - 0.03
        before = found

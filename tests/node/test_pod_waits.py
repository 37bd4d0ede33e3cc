"""Every wait of a pod has a deadline and says what the pod waits for."""

import json

import pytest
from paddle_node import contract
from paddle_node.requirements import refusals

pytestmark = pytest.mark.slow


def test_a_pod_that_never_comes_is_named(job):
    pods = job(PEER_DEADLINE="4")
    pods.start(0, 2)
    pods.end_with(69, 69)
    for index in (0, 2):
        assert "1 of 3 pods are missing: job-1.job after" in pods.log(index)


def test_names_that_dns_does_not_know_yet_are_asked_for_again(job):
    pods = job(PEER_DEADLINE="60")
    pods.start(named=False)
    for index in range(3):
        pods.wait_until((pods.pods[index].life / "root/home/paddle/status.json").exists)
    pods.name(0)
    pods.end_with(0, 0, 0)


def test_the_data_job_may_still_run(job):
    pods = job(count=2, stand_in={"passes": 1})
    # The shards exist, the manifest does not, and a split is at work.
    pods.folder.splits.mkdir()
    pods.start()
    for index in (0, 1):
        pods.wait_for(index, "waiting for .*data-manifest.json, which the data job writes last")
    assert "attempt 1" not in pods.log(0)
    pods.folder.splits.rmdir()
    pods.end_with(0, 0)


def test_an_environment_that_cannot_be_built_ends_the_wait_for_the_data_too(job):
    pods = job(count=2, ENVIRONMENT="ab" * 32)
    pods.folder.splits.mkdir()
    built = pods.place / "volume" / contract.ENVIRONMENTS / ("ab" * 32)
    built.mkdir(parents=True)
    pods.start()
    for index in (0, 1):
        pods.wait_for(index, "waiting for .*, which the environment Job builds")
    environ = {"JOB_NAME": "job", "PADDLE_NODE_RUN_ID": "a"}
    refusals.add(built, environ, "program.requirements has absent", lasting=True)
    pods.end_with(65, 65)
    assert "cannot be built: program.requirements has absent" in pods.log(0)


def test_a_program_that_is_not_there(job):
    pods = job(count=2)
    pods.folder.program("quick_start").rmdir()
    pods.start()
    pods.end_with(2, 2)
    assert "TRAIN_CONFIG_DIR is 'quick_start': there is no " in pods.log(1)


def test_a_second_run_of_the_same_name_is_refused_until_the_first_one_is_dead_and_its_lease_over(
    job,
):
    first = job(stand_in={"holds": [1, 0, 1]}, LEASE="9")
    first.start_and_hold()
    second = job(run="run-2", LEASE="9")
    second.start(0)
    second.end_with(73)
    assert (
        "is in use by run run-1: give this job another name, or wait until that run has ended"
        in second.log(0)
    )
    assert all(pod.poll() is None for pod in first.pods.values())
    for index in range(3):
        first.kill(index)
    second.start()
    second.end_undisturbed()


def test_a_lease_that_cannot_be_read_yet_is_somebodys(job):
    pods = job(count=1, LEASE="60")
    lies = pods.folder.run_state / "lease-00001.json"
    lies.parent.mkdir(parents=True)
    lies.touch()
    pods.start()
    pods.wait_for(0, "waiting 60 s for a sign of life")
    lies.write_text(json.dumps({"run": "quick", "boot": "q", "beats": 0}))
    pods.end_with(73)
    assert "in use by run quick" in pods.log(0)

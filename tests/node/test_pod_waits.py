"""Every wait of a pod has a deadline and says for whom."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def test_a_pod_that_never_comes_is_named(job):
    pods = job(PEER_DEADLINE="4")
    pods.start(0, 2)
    pods.end_with(69, 69)
    for index in (0, 2):
        assert "1 of 3 pods are missing: job-1.job after" in pods.log(index)


def test_the_rendezvous_benchmark_runs():
    benchmark = Path(__file__).parents[2] / "benchmarks/rendezvous.py"
    result = subprocess.run([sys.executable, benchmark, "--pods", "3"], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert [line.split()[2] for line in result.stdout.splitlines()] == ["index", "pod-list", "polling"]


def test_names_that_dns_does_not_know_yet_are_asked_for_again(job):
    pods = job(PEER_DEADLINE="60")
    pods.start(named=False)
    for index in range(3):
        pods.wait_until((pods.pods[index].life / "root/home/paddle/status.json").exists)
    pods.name(0)
    pods.end_with(0, 0, 0)


def test_pods_that_do_not_agree_on_their_number(job):
    pods = job(count=2)
    pods.start(0)
    pods.count = 3
    pods.start(1)
    assert pods.pods[1].wait(90) == 2, pods.logs()
    assert "CONF_PADDLE_GRADIENT_NUM is 3 here and 2 in the pod of trainer 0" in pods.log(1)


def test_a_second_run_of_the_same_name_is_refused(job):
    first = job(stand_in={"holds": [1, 0, 1]}, LEASE="9")
    first.start_and_hold()
    second = job(run="run-2", LEASE="9")
    second.start(0)
    second.end_with(73)
    assert "is in use by run run-1: give this job another name, or wait until that run has ended" in second.log(0)
    first.release()
    first.end_undisturbed()


def test_the_data_job_may_still_run(job):
    pods = job(count=2, stand_in={"passes": 1})
    # Shards are there, the manifest is not, and a split is at work.
    pods.folder.splits.mkdir()
    pods.start()
    for index in (0, 1):
        pods.wait_for(index, "waiting for .*data-manifest.json, which the data job writes last")
    assert "attempt 1" not in pods.log(0)
    pods.folder.splits.rmdir()
    pods.end_with(0, 0)


def test_a_program_that_is_not_there(job):
    pods = job(count=2)
    pods.folder.program("quick_start").rmdir()
    pods.start()
    pods.end_with(2, 2)
    assert "TRAIN_CONFIG_DIR is 'quick_start': there is no " in pods.log(1)

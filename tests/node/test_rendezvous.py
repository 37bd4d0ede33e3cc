"""What the rendezvous decides when one fault follows another, or when a pod waits in vain."""

import os
import signal

import pytest

pytestmark = pytest.mark.slow
FIRST = {"holds": [1, 0, "start"]}
"""Each trainer of the first attempt waits before its first step."""


def test_of_two_pods_of_one_rank_the_later_one_is_the_newer_and_the_other_one_ends(job):
    pods = job(count=2, stand_in=FIRST)
    pods.start_and_hold()
    old = pods.pods[1]
    old.send_signal(signal.SIGSTOP)  # As behind a partition, where the pod may be lost or not.
    pods.replaced[1] += 1  # A new pod at a new address.
    pods.start(1)
    pods.wait_for(1, "attempt 2: from pass 0")
    old.send_signal(signal.SIGCONT)
    assert old.wait(90) == 76, pods.logs()
    assert "a newer pod of trainer 1 has taken this one's place" in (old.life / "log").read_text()
    pods.end_undisturbed()


def test_a_pod_that_is_lost_costs_no_retry_though_the_others_programs_failed_first(job):
    """The lost pod's agent is silent: the other programs miss its pserver and end before anybody
    knows of the loss.
    """
    pods = job(stand_in=FIRST, ATTEMPTS="1")
    pods.start_and_hold()
    server = pods.child(1, "pserver")
    pods.pods[1].send_signal(signal.SIGSTOP)
    os.kill(server, signal.SIGKILL)
    pods.release()
    pods.wait_for(0, "attempt 1 ends: ")
    pods.wait_until(lambda: pods.attempts()[0]["cause"])
    assert pods.attempts()[0]["cause"].endswith(
        "the pod of trainer 1 (job-1.job) said nothing for 6 s"
    )
    assert pods.attempts()[0]["kind"] == "pod"
    pods.kill(1)
    pods.start(1)
    pods.end_undisturbed()


@pytest.mark.parametrize(("stand_in", "settings", "cause"), [
    ({"barriers": ["a", "b", "b"]}, {},
     "the trainers wait for each other: .*trainers 0 in barrier a"),
    ({"leaves": 1}, {}, "trainer 1 ended while others wait for it in barrier step"),
    ({"hang": [1, 0, 2]}, {"STALL": "3"},
     r"no step, no output and no progress for \d+ s \(limits.stall_seconds is 3\); in barrier step "
     r"trainers 1 are waited for"),
    ({"hang": [1, 0, 2], "aborts": [0, 7]}, {},
     r"trainer 0 ended with 134 \(SIGABRT\), in job-0.job, after [67] s without output; "
     "in barrier step trainers 1 are waited for"),
])  # fmt: skip
def test_who_waits_in_vain_is_found(job, stand_in, settings, cause):
    pods = job(stand_in=stand_in, ATTEMPTS="1", **settings)
    pods.start()
    for index in range(3):
        pods.wait_for(index, cause)
    pods.end_with(134 if "aborts" in stand_in else 70, 70, 70)


def test_pods_that_never_read_the_same_end_the_job(job):
    pods = job(count=2, PEER_DEADLINE="3")
    pods.start(0)
    pods.folder.program("other").mkdir()
    (pods.folder.program("other") / "words.py").touch()
    pods.program_name = "other"
    pods.start(1)
    pods.end_with(65, 65)
    for index in (0, 1):
        assert "no attempt begins, they prepare again" in pods.log(0)
        assert "all pods of a run must read the same" in pods.log(index)


def test_addresses_of_two_families_are_a_sentence_and_not_the_end_of_pod_0s_agent(job):
    """As on nodes with IPv4 and IPv6, of which one pod is given the one and another the other."""
    pods = job(count=2, PEER_DEADLINE="3")
    first = pods.address(0)
    pods.address = lambda index: "fd00::1" if index else first
    pods.start()
    pods.end_with(69, 2)
    found = f"POD_IP is 'fd00::1' here and {first} in the pod of trainer 0"
    assert f"{found}: all pods need addresses of one family, IPv4 or IPv6" in pods.log(1)

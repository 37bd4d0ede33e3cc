"""Every reason why a pod does not run, in words that say what to do: what Kubernetes says and what is read is pod_words.yaml."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from operations.cluster.pod_words import PodState, culprit, pod_state, pod_states, refusal
from operations.cluster.waiting import lines, spans

SAID = yaml.safe_load(Path(__file__).with_name("pod_words.yaml").read_text())


def pod(status: dict[str, Any], component: str = "trainer", **more: Any) -> dict[str, Any]:
    metadata = {"name": "words-1", "labels": {"app.kubernetes.io/component": component}, **more}
    return {"metadata": metadata, "spec": {"nodeName": "n"}, "status": status}


NO_CPU = {"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available: 2 Insufficient cpu."}


@pytest.mark.parametrize(("message", "words"), SAID["unscheduled"].items())
def test_no_node_can_take_it(message: str, words: str) -> None:
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    found = pod_state(pod({"phase": "Pending", "conditions": [unscheduled]}))
    assert found.phase == "waiting" and words in found.reason


@pytest.mark.parametrize(("said", "words"), SAID["image"].items())
def test_its_image_cannot_be_pulled(said: str, words: str) -> None:
    reason, _, message = said.partition(": ")
    container = {"image": "x:1", "state": {"waiting": {"reason": reason, "message": message}}}
    found = pod_state(pod({"phase": "Pending", "containerStatuses": [container]}))
    assert found.phase == "waiting" and words in found.reason


@pytest.mark.parametrize(("message", "words"), SAID["mount"].items())
def test_its_volume_cannot_be_mounted(message: str, words: str) -> None:
    found = pod_state(pod({"phase": "Pending"}), [{"reason": "FailedMount", "message": message}])
    assert found.phase == "waiting" and words in found.reason


@pytest.mark.parametrize(("message", "said"), SAID["refused"].items())
def test_why_pods_are_not_even_made(message: str, said: str) -> None:
    assert refusal(f'Error creating: pods "x-" is forbidden: {message}') == said


@pytest.mark.parametrize(("phase", "words", "status"), SAID["status"])
def test_a_pods_phase(phase: str, words: str, status: dict[str, Any]) -> None:
    found = pod_state(pod(status))
    assert found.phase == phase and words in found.reason


def test_a_data_pod_is_told_its_own_settings() -> None:
    for component, setting in (("data", "data_resources"), ("trainer", "resources")):
        assert f"lower {setting}.cpu in" in pod_state(pod({"conditions": [NO_CPU]}, component)).reason
        killed = {"state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
        assert (
            f"raise {setting}.memory in" in pod_state(pod({"phase": "Failed", "containerStatuses": [killed]}, component)).reason
        )


def test_a_scheduler_or_an_operator_that_has_not_acted_is_named() -> None:
    unseen = pod({"phase": "Pending"}, creationTimestamp="2026-01-01T00:00:00Z") | {"spec": {"schedulerName": "volcano"}}
    assert pod_state(unseen).reason == "scheduler volcano has not looked at it: does it run (docs/jobs.md)?"
    event = {"reason": "FailedMount", "message": 'configmap "words" not found'}
    normal = pod_state(pod({"phase": "Pending"}, "worker", name="words-worker-1"), [event])
    assert (normal.rank, normal.phase) == (1, "starting") and "the PaddleJob operator writes its ConfigMap" in normal.reason


def test_pods_of_a_pod_list_are_ranked_by_address_once_all_have_one() -> None:
    env = {"containers": [{"env": [{"name": "CONF_PADDLE_GRADIENT_NUM", "value": "2"}]}]}
    pods = [pod({"phase": "Running", "podIP": ip}, name=ip) | {"spec": env} for ip in ("10.0.0.10", "10.0.0.9")]
    assert [(one.rank, one.name) for one in pod_states(pods)] == [(0, "10.0.0.9"), (1, "10.0.0.10")]
    assert [one.rank for one in pod_states(pods[:1])] == [None]


def test_the_pod_whose_program_failed_tells_of_a_jobs_end() -> None:
    """Rank and node of the pod, and its last words without what would move the cursor."""
    others = "1 attempts failed: attempt 1: trainer 2 ended with 1"

    def failed(rank: int, code: int, message: str, second: int, **more: Any) -> PodState:
        ended = {"exitCode": code, "message": message, "finishedAt": f"2026-01-01T00:00:0{second}Z"}
        found = pod({"phase": "Failed", "containerStatuses": [{"state": {"terminated": ended}}], **more})
        return replace(pod_state(found), component="trainer", rank=rank, node=f"node-{rank}")

    crashed = failed(2, 1, "log\n\x1b[31mtrainer 2 ended with 1: RuntimeError: boom (train.py:12)\n", 2)
    drained = {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]}
    rest = [failed(0, 70, others, 3), failed(1, 143, "told to stop", 5), failed(3, 1, "", 6), failed(4, 137, "x", 7, **drained)]
    found = culprit([*rest, crashed])
    assert found is not None and found.failure == (
        "trainer 2 on node-2: code 1: [31mtrainer 2 ended with 1: RuntimeError: boom (train.py:12)"
    )
    assert (
        found := culprit(rest)
    ) is not None and found.failure == f"trainer 0 on node-0: code 70 (attempts exhausted): {others}"
    assert culprit([pod_state(pod({"phase": "Running"}))]) is None


def test_the_newest_event_counts() -> None:
    events = [
        {"reason": "FailedMount", "message": "access denied", "lastTimestamp": "2026-01-01T00:00:01Z"},
        {"reason": "FailedMount", "message": "Failed to resolve x", "lastTimestamp": "2026-01-01T00:00:09Z"},
        {"reason": "Scheduled", "message": "fine", "lastTimestamp": "2026-01-01T00:00:10Z"},
    ]
    assert "name is unknown" in pod_state(pod({"phase": "Pending"}), events).reason


def test_ranks_that_share_a_fate_are_one_line() -> None:
    label = "batch.kubernetes.io/job-completion-index"
    states = [pod_state(pod({"phase": "Running"}, name=f"p{i}", annotations={label: str(i)})) for i in (0, 1, 2, 5)]
    assert lines(states) == ["trainer 0-2,5 running"]
    assert spans([]) == ""

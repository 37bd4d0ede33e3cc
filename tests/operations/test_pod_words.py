"""Every reason why a pod does not run, in words that say what to do; pod_words.yaml has Kubernetes'
words and ours.
"""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddle_aws.operations.jobs.watch.pod_state import culprit, pod_state, pod_states, refusal

OF_TEST = ("phase", "words", "not", "events")
SAID = yaml.safe_load(Path(__file__).with_name("pod_words.yaml").read_text())
WAITING = [
    (what, said, words)
    for what in ("unscheduled", "made", "image", "mount")
    for said, words in SAID[what].items()
]

OF_AWS = re.compile(
    r"cluster\.yaml|paddle-aws (doctor|setup)|NAT|ECR|VPC|EFS|TLS|mount target|role"
)


def pod(
    status: dict[str, Any], component: str = "trainer", rank: int = 1, **more: Any
) -> dict[str, Any]:
    metadata = {
        "name": f"words-{component}-{rank}",
        "labels": {"app.kubernetes.io/component": component},
    }
    return {
        "metadata": metadata | more.get("metadata", {}),
        "spec": more.get("spec", {"nodeName": "n"}),
        "status": status,
    }


@pytest.mark.parametrize(("what", "said", "words"), WAITING)
def test_why_it_waits(what: str, said: str, words: str) -> None:
    reason, _, message = said.partition(": ")
    unscheduled = {
        "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}
        ]
    }
    status: dict[str, Any] = {
        "unscheduled": unscheduled,
        "made": unscheduled,
        "image": {
            "containerStatuses": [
                {"image": "x:1", "state": {"waiting": {"reason": reason, "message": message}}}
            ]
        },
    }.get(what, {})
    events = {
        "mount": "FailedMount",
        "made": "FailedScheduling" if reason.startswith("Failed") else "Nominated",
    }
    since = {"creationTimestamp": (datetime.now(UTC) - timedelta(seconds=120)).isoformat()}
    known = [{"reason": events[what], "message": said}] if what in events else []
    waiting = pod({"phase": "Pending", **status}, metadata=since)
    found, elsewhere = (pod_state(waiting, known, aws=aws) for aws in (True, False))
    assert found.phase == elsewhere.phase == "waiting" and words in found.reason
    assert elsewhere.reason and not OF_AWS.search(elsewhere.reason)


@pytest.mark.parametrize(("message", "said"), SAID["refused"].items())
def test_why_pods_are_not_even_made(message: str, said: str) -> None:
    assert refusal(f'Error creating: pods "x-" is forbidden: {message}') == said


@pytest.mark.parametrize("row", SAID["others"], ids=lambda row: row["words"])
def test_any_other_pod(row: dict[str, Any]) -> None:
    made = {name: value for name, value in row.items() if name not in OF_TEST}
    found = pod_state(pod(**made), row.get("events", ()), aws=True)
    assert found.phase == row["phase"] and row["words"] in found.reason
    assert row.get("not", "\n") not in found.reason
    assert found.rank == (1 if found.component == "worker" else None)


def test_pods_of_a_pod_list_are_ranked_by_address_once_all_have_one() -> None:
    spec = {"containers": [{"env": [{"name": "CONF_PADDLE_GRADIENT_NUM", "value": "2"}]}]}
    pods = [
        pod({"phase": "Running", "podIP": ip}, metadata={"name": ip}, spec=spec)
        for ip in ("10.0.0.10", "10.0.0.9")
    ]
    assert [(one.rank, one.name) for one in pod_states(pods)] == [(0, "10.0.0.9"), (1, "10.0.0.10")]
    assert [one.rank for one in pod_states(pods[:1])] == [None]


def test_the_pod_whose_program_failed_tells_of_a_jobs_end() -> None:
    """The sentence has the pod's rank and node, and its last words without anything that would move
    the cursor.
    """
    pods = []
    for row in SAID["ended"]:
        ended = {"exitCode": row["code"], "message": row["message"]}
        status = {
            "phase": "Failed",
            "containerStatuses": [{"state": {"terminated": ended}}],
            "conditions": row.get("conditions"),
        }
        pods.append(pod(status, "worker", row["rank"], spec={"nodeName": f"node-{row['rank']}"}))
    found, rest = culprit(pod_states(pods)), culprit(pod_states(pods[1:]))
    assert (
        found
        and found.failure
        == "worker 2 on node-2: code 1: [31mtrainer 2 ended with 1: RuntimeError: boom "
        "(train.py:12)"
    )
    assert (
        rest
        and rest.failure
        == f"worker 0 on node-0: code 70 (attempts exhausted): {SAID['ended'][1]['message']}"
    )
    assert culprit(pod_states([pod({"phase": "Running"})])) is None
    # A pod that ran out of memory ends the others: they only tell of it.
    killed = {"state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
    starved = pod({"phase": "Failed", "containerStatuses": [killed]}, rank=7)
    found = culprit(pod_states([starved, *pods]))
    assert (
        found and found.failure == "trainer on n: out of memory: raise resources.memory in job.yaml"
    )


def test_a_sidecars_end_says_nothing_about_the_pods() -> None:
    spec = {"nodeName": "n", "initContainers": [{"name": "logs", "restartPolicy": "Always"}]}
    ended = {"state": {"terminated": {"exitCode": 143, "message": "killed"}}, "restartCount": 9}
    program = {"state": {"terminated": {"exitCode": 1, "message": "boom"}}, "name": "trainer"}
    status = {"phase": "Failed", "initContainerStatuses": [{"name": "logs", **ended}]}
    failed = pod_state(pod({**status, "containerStatuses": [program]}, spec=spec))
    assert "code 1: boom" in failed.reason and failed.restarts == 0
    pull = {"reason": "ErrImagePull", "message": "not found"}
    waiting = {"name": "logs", "image": "logs:1", "state": {"waiting": pull}}
    pending = pod_state(pod({"phase": "Pending", "initContainerStatuses": [waiting]}, spec=spec))
    assert "logs:1" in pending.reason

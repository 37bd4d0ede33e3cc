"""Every reason why a pod does not run, in words that say what to do; pod_words.yaml has Kubernetes'
words and ours.
"""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddle_aws.operations.jobs.objects.pod_state import culprit, pod_state, pod_states, refusal

OF_TEST = ("phase", "words", "not", "events")
TABLES = yaml.safe_load(Path(__file__).with_name("pod_words.yaml").read_text())
WAITING = [
    (what, cause, words)
    for what in ("unscheduled", "made", "image", "mount")
    for cause, words in TABLES[what].items()
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


@pytest.mark.parametrize(("what", "cause", "words"), WAITING)
def test_why_it_waits(what: str, cause: str, words: str) -> None:
    reason, _, message = cause.partition(": ")
    unscheduled = {
        "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": cause}
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
    pod_events = [{"reason": events[what], "message": cause}] if what in events else []
    waiting = pod({"phase": "Pending", **status}, metadata=since)
    in_aws, elsewhere = (pod_state(waiting, pod_events, aws=aws) for aws in (True, False))
    assert in_aws.phase == elsewhere.phase == "waiting" and words in in_aws.reason
    assert elsewhere.reason and not OF_AWS.search(elsewhere.reason)


@pytest.mark.parametrize(("message", "reason"), TABLES["refused"].items())
def test_why_pods_are_not_even_made(message: str, reason: str) -> None:
    assert refusal(f'Error creating: pods "x-" is forbidden: {message}') == reason


@pytest.mark.parametrize("row", TABLES["others"], ids=lambda row: row["words"])
def test_any_other_pod(row: dict[str, Any]) -> None:
    fields = {name: value for name, value in row.items() if name not in OF_TEST}
    state = pod_state(pod(**fields), row.get("events", ()), aws=True)
    assert state.phase == row["phase"] and row["words"] in state.reason
    assert row.get("not", "\n") not in state.reason
    assert state.rank == (1 if state.component == "worker" else None)


def test_pods_of_a_pod_list_are_ranked_by_address_once_all_have_one() -> None:
    spec = {"containers": [{"env": [{"name": "CONF_PADDLE_GRADIENT_NUM", "value": "2"}]}]}
    pods = [
        pod({"phase": "Running", "podIP": ip}, metadata={"name": ip}, spec=spec)
        for ip in ("10.0.0.10", "10.0.0.9")
    ]
    assert [(s.rank, s.name) for s in pod_states(pods)] == [(0, "10.0.0.9"), (1, "10.0.0.10")]
    assert [s.rank for s in pod_states(pods[:1])] == [None]


def test_the_pod_whose_program_failed_tells_of_a_jobs_end() -> None:
    """The sentence has the pod's rank and node, and its last words without anything that would move
    the cursor.
    """
    pods = []
    for row in TABLES["ended"]:
        ended = {"exitCode": row["code"], "message": row["message"]}
        status = {
            "phase": "Failed",
            "containerStatuses": [{"state": {"terminated": ended}}],
            "conditions": row.get("conditions"),
        }
        pods.append(pod(status, "worker", row["rank"], spec={"nodeName": f"node-{row['rank']}"}))
    worker, rest = culprit(pod_states(pods)), culprit(pod_states(pods[1:]))
    assert (
        worker
        and worker.failure
        == "worker 2 on node-2: code 1: [31mtrainer 2 ended with 1: RuntimeError: boom "
        "(train.py:12)"
    )
    assert (
        rest
        and rest.failure
        == f"worker 0 on node-0: code 70 (attempts exhausted): {TABLES['ended'][1]['message']}"
    )
    assert culprit(pod_states([pod({"phase": "Running"})])) is None
    # A pod that ran out of memory ends the others: they only tell of it.
    killed = {"state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
    starved = pod({"phase": "Failed", "containerStatuses": [killed]}, rank=7)
    worker = culprit(pod_states([starved, *pods]))
    assert (
        worker
        and worker.failure == "trainer on n: out of memory: raise resources.memory in job.yaml"
    )


@pytest.mark.parametrize(("message", "codes", "rank"), [
    ("trainer 0 ended with 65 (BAD_DATA): bad row, in job-0.job, which another attempt cannot", (65,
     65), 0),
    ("trainer 0 in job-0.job had ended with 0; then trainer 1 ended with 134 (SIGABRT)", (70, 134),
     0),
    ("3 attempts ended without progress: attempt 1: trainer 1.0 ended with 7", (70, 7), 1),
    ("no step for 60 s; silent first: trainer 0 in job-0.job, for 60 s", (70, 70), 0),
])  # fmt: skip
def test_of_pods_that_say_the_same_the_one_that_failed_first_is_named(message, codes, rank) -> None:
    """The other one ended last."""
    pods = [
        pod(
            {
                "phase": "Failed",
                "containerStatuses": [
                    {"state": {"terminated": {"exitCode": code, "message": message}}}
                ],
            },
            rank=number,
            metadata={"annotations": {"batch.kubernetes.io/job-completion-index": str(number)}},
        )
        for number, code in enumerate(codes)
    ]
    found = culprit(pod_states(pods))
    assert found is not None and found.rank == rank


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

"""Every reason why a pod does not run, in words that say what to do."""

from dataclasses import replace
from typing import Any

import pytest

from operations.cluster.pod_words import (
    PodState,
    culprit,
    image_trouble,
    mount_trouble,
    pod_state,
    pod_states,
    refusal,
    unschedulable,
)
from operations.cluster.waiting import lines, spans


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("0/0 nodes are available", "the cluster has no node: raise nodes.<group>.desired"),
        ("no nodes available to schedule pods", "the cluster has no node"),
        ("0/3 nodes are available: 3 Insufficient memory.", "lower resources.memory in job.yaml"),
        ("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.", "lower gpus.count in job.yaml"),
        ("0/2 nodes are available: 2 Too many pods, 2 Insufficient pods.", "the nodes hold as many pods as they may"),
        (
            "0/2 nodes are available: 2 node(s) had untolerated taint {nvidia.com/gpu: true}.",
            "taint nvidia.com/gpu: true: add it",
        ),
        (
            "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.",
            "scheduling.node_selector, zone or spot",
        ),
        ("0/2 nodes are available: 2 node(s) had volume node affinity conflict.", "its volume is in another zone"),
        ("0/2 nodes are available: 2 node(s) didn't have free ports for the requested pod ports.", "its host ports are taken"),
        ("0/2 nodes are available: 2 node(s) didn't match pod topology spread constraints.", "scheduling.spread is require"),
        ('persistentvolumeclaim "words" not found', "its volume claim words does not exist"),
        ("0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims.", "its volume claim is not bound"),
        ("0/2 nodes are available: 2 node(s) were unschedulable.", "nodes are cordoned"),
        ("a message of 2030", "no node can take it: a message of 2030"),
        ("", "the scheduler does not say why yet"),
    ],
)
def test_unschedulable(message: str, words: str) -> None:
    assert words in unschedulable(message)


@pytest.mark.parametrize(
    ("waiting", "words"),
    [
        ({"reason": "InvalidImageName"}, "is no image name"),
        ({"reason": "ErrImagePull", "message": "manifest unknown"}, "does not exist: `make push`"),
        ({"reason": "ImagePullBackOff", "message": "pull access denied, repository does not exist"}, "may not pull"),
        ({"reason": "ErrImagePull", "message": "dial tcp 1.2.3.4:443: i/o timeout"}, "NAT gateway or the ECR endpoints"),
        ({"reason": "ImagePullBackOff"}, "image x:1 cannot be pulled"),
    ],
)
def test_image(waiting: dict[str, str], words: str) -> None:
    assert words in image_trouble("x:1", waiting)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("driver name efs.csi.aws.com not found in the list of registered CSI drivers", "the EFS CSI driver does not run"),
        ("mount.nfs4: access denied by server while mounting 127.0.0.1:/", "wants TLS and its access point"),
        ("rpc error: code = DeadlineExceeded", "port 2049"),
        ("Failed to resolve fs-1.efs.us-west-2.amazonaws.com", "name is unknown in this VPC"),
        ('configmap "words-program-1" not found', "ConfigMap words-program-1 does not exist"),
        ("a message of 2030", "its volume cannot be mounted: a message of 2030"),
    ],
)
def test_mount(message: str, words: str) -> None:
    assert words in mount_trouble(message)


def pod(status: dict[str, Any], component: str = "trainer", **more: Any) -> dict[str, Any]:
    metadata = {"name": "words-1", "labels": {"app.kubernetes.io/component": component}, **more}
    return {"metadata": metadata, "spec": {"nodeName": "n"}, "status": status}


CONTAINERS_READY = {"type": "ContainersReady", "status": "True"}
NO_CPU = {"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available: 2 Insufficient cpu."}


@pytest.mark.parametrize(
    ("status", "phase", "words"),
    [
        ({"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource"}, "failed", "evicted it"),
        (
            {"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]},
            "failed",
            "out of memory: raise resources.memory",
        ),
        (
            {"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 139}}}]},
            "failed",
            "code 139 (signal 11)",
        ),
        (
            {
                "phase": "Failed",
                "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}],
            },
            "failed",
            "its node was taken away",
        ),
        (
            {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]},
            "waiting",
            "its queue has not let it in yet",
        ),
        (
            {
                "phase": "Failed",
                "initContainerStatuses": [
                    {"state": {"terminated": {"exitCode": 2, "message": "user 1000 may not write to the job's folder"}}}
                ],
                "containerStatuses": [{"state": {"waiting": {"reason": "PodInitializing"}}}],
            },
            "failed",
            "code 2 (bad setting): user 1000 may not write to the job's folder",
        ),
        ({"phase": "Pending"}, "starting", "image is being pulled"),
        ({"phase": "Running"}, "running", ""),
        (
            {
                "phase": "Running",
                "containerStatuses": [{"restartCount": 2, "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}],
            },
            "running",
            "restarted in place 2 times, last after out of memory: raise resources.memory",
        ),
        ({"phase": "Succeeded"}, "done", ""),
        (
            {"phase": "Running", "conditions": [CONTAINERS_READY, {"type": "Ready", "status": "False"}]},
            "waiting",
            "node n does not answer",
        ),
    ],
)
def test_a_pods_phase(status: dict[str, Any], phase: str, words: str) -> None:
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


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (
            "exceeded quota: q, requested: pods=1,requests.cpu=2, used: pods=0,requests.cpu=0, limited: pods=0,requests.cpu=1",
            "its pods are more than the namespace's quota q allows (a pod wants pods=1,requests.cpu=2; used "
            "pods=0,requests.cpu=0 of pods=0,requests.cpu=1): wait for other jobs, or raise namespace_limits",
        ),
        (
            "failed quota: q: must specify requests.cpu for: c",
            "the namespace's quota q wants pods to say requests.cpu for: c: set them in resources",
        ),
        (
            'violates PodSecurity "restricted:latest": runAsNonRoot != true (pod or container "c" must set it)',
            "the namespace's Pod Security (restricted:latest) refuses its pods: "
            'runAsNonRoot != true (pod or container "c" must set it)',
        ),
        (
            'error looking up service account t1/nobody: serviceaccount "nobody" not found',
            "its service account nobody does not exist: cancel the job and submit it again",
        ),
        (
            "no PriorityClass with name high was found",
            "priority class high does not exist on this cluster: correct scheduling.priority_class, or make it",
        ),
        (
            "[maximum cpu usage per Container is 1, but limit is 2, maximum memory usage per Pod is 512Mi, but limit is 1Gi]",
            "the namespace allows a Container at most 1 of cpu, and it wants 2: change resources",
        ),
        ("something new", 'its pods cannot be made: pods "x-" is forbidden: something new'),
    ],
)
def test_why_pods_are_not_even_made(message: str, said: str) -> None:
    """The messages are those of an API server 1.35."""
    assert refusal(f'Error creating: pods "x-" is forbidden: {message}') == said

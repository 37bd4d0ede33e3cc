"""Our output for the tutorials' jobs against the manifests that the tutorials print, field by field.

Every field of theirs is in ours with the same value, or is named here with the reason why not; every field of ours that
theirs lacks is covered by a named reason too. A difference that is named and not there any more fails as well.
"""

# ruff: noqa: E501 (tables, one row a line)
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from k8s_charts.deployed import ClusterOutputs
from k8s_charts.documents import documents
from k8s_charts.spec import TrainingJob

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent


class Tutorial(NamedTuple):
    printed: str
    """File with the tutorial's manifests."""
    example: str
    """Our job file for it."""
    host_ports: dict[str, int]
    trainer_count: str | None
    """TRAINER_COUNT, where the document sets it."""


TUTORIALS = {
    "000": Tutorial("000.yaml", "kubernetes-on-aws.yaml", {f"jobport{i}": 7164 + i for i in range(4)}, "3"),
    "003": Tutorial("003.yaml", "distributed-training.yaml", {}, None),
    "004": Tutorial("004.yaml", "aws-recommendation.yaml", {"jobport": 30001}, None),
}

# Fields of the tutorials that differ in ours: pattern of the path -> (our value, ABSENT, or ANYTHING; why).
ABSENT = "ABSENT"
DIFFERENT: dict[str, tuple[Any, str]] = {
    r"Job.*/spec/template/metadata/name": (ABSENT, "a Job names its pods itself: the field has no effect"),
    r"Job.*/containers/[^/]+/image": ("ANYTHING", "the tutorials' images cannot be pulled any more; ours is the pushed one, by digest"),
    r"Job.*/containers/[^/]+/imagePullPolicy": ("IfNotPresent", "a digest never changes, so asking the registry again is waste"),
    r"Job:train/.*/command": (["/usr/local/bin/start.sh"], "`bin/bash` is a relative path, and /root is closed to a user without privilege"),
    r"Job:data/metadata/name": ("paddle-cluster-job-data", "`paddle-data` would be one name for the data of all jobs"),
    r"Job:data/.*/env/OUT_DIR": ("/home/jobpath/paddle-cluster-job", "one mount path in all pods of a job, and a path that is mounted at all"),
    r"Job:data/.*/hostNetwork": (ABSENT, "003: splitting files needs no network of the node"),
    r"Job.*/volumes/(efs|nfs|jobpath)/.*": (ABSENT, "the volume is called `job`, and is always behind a claim: pods have no hostPath"),
    r"Job.*/volumeMounts/(efs|nfs|jobpath)/mountPath": (ABSENT, "the documents mount the whole volume there; ours mounts the job's folder of it, at the same path (checked below)"),
    r"PersistentVolume(Claim)?/metadata/name": ("ANYTHING", "`efsvol` would be one volume for the whole cluster, and any claim could bind it"),
    r"PersistentVolume/spec/capacity/storage": ("50Gi", "NFS has no size: one number serves volume and claim"),
    r"PersistentVolume/spec/nfs/server": ("fs-0123456789abcdef0.efs.eu-central-1.amazonaws.com", "EFS_DNS_NAME is the deployed file system"),
    r"Job:train/.*/env/JOB_NAMESPACE": ("paddle-tutorial", "host ports need a privileged namespace, which `default` must not become"),
}  # fmt: skip

# Fields of ours that no tutorial has, and why.
ADDED: dict[str, str] = {
    r"Job.*/metadata/namespace|PersistentVolumeClaim/metadata/namespace": "said, not left to kubectl's context",
    r".*/metadata/labels/.*": "services, policies and people select by them",
    r"Job.*/(spec|template/spec)/(activeDeadlineSeconds|ttlSecondsAfterFinished|backoffLimit|podFailurePolicy|podReplacementPolicy)": "a job ends, by itself and with a reason",
    r"Job:data/spec/(parallelism|completions)": "one pod, said",
    r"Job:(train|data)/spec/completionMode": "NonIndexed is what the tutorials' jobs are, said",
    r"Job.*/securityContext.*|Job.*/automountServiceAccountToken|Job.*/serviceAccountName|Job.*/enableServiceLinks": "least privilege; pod-list takes an account that may list pods",
    r"Job:train/.*/imagePullPolicy": "a digest never changes",
    r"Job.*/resources": "a pod without requests and limits starves its neighbours",
    r"Job.*/terminationGracePeriodSeconds|Job.*/terminationMessagePolicy": "time to save, and last words",
    r"Job.*/workingDir|Job.*/volumes/(home|temporary|shared-memory|job)/.*|Job.*/volumeMounts/(home|temporary|shared-memory|job)/mountPath": "writable places on a read-only root",
    r"Job.*/initContainers|Job.*/volumeMounts/job/subPath": "a job sees its own folder of the volume, which user 1000 makes first",
    r"Job:train/.*/(livenessProbe|startupProbe|shareProcessNamespace)": "a hung trainer is replaced, a frozen agent killed",
    r"Job:train/.*/trainer/(restartPolicy|restartPolicyRules.*)": "a killed container starts again in its pod",
    r"Job:train/.*/topologySpreadConstraints|Job.*/tolerations": "spread over hosts; spot nodes are tolerated",
    r"Job:train/.*/env/(PADDLE_NODE_[A-Z_]+|POD_NAME|POD_IP)": "the run's identity and what the scripts guessed",
    r"Job:train/.*/envFrom": "our own settings, in a ConfigMap that cannot change under the job",
    r"Job:train/.*/env/TRAINER_COUNT": "003 and 004 leave threads to Paddle's default, which is 1",
    r"Job:train/.*/ports/(control|jobport[0-9])/.*|Job:train/.*/ports/jobport/protocol": "documentation of the ports in use; on the host only where the document has them",
    r"Job:data/.*/command": "the image has two entry points",
    r"Job:data/.*/env/.*": "what the data job's image had built in: source, format, hold-out",
    r"PersistentVolume/spec/(claimRef|persistentVolumeReclaimPolicy|volumeMode|mountOptions)": "a claim that can bind this volume only; the tutorial's own mount options and noresvport",
    r"PersistentVolumeClaim/spec/(storageClassName|volumeMode|volumeName)": "this volume only, and no default storage class",
}  # fmt: skip


def by_kind(found: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    kinds: dict[str, dict[str, Any]] = {}
    for document in found:
        kind = document["kind"]
        if kind == "Job":
            container = document["spec"]["template"]["spec"]["containers"][0]
            kind = "Job:data" if "data" in container["name"] else "Job:train"
            # One name for the data job's container, so that its fields meet.
            container["name"] = "paddle-data" if kind == "Job:data" else "trainer"
        kinds[kind] = document
    return kinds


@pytest.fixture(scope="module")
def compared(
    outputs: ClusterOutputs, image: str, project: Path, compare: Callable[..., list[str]]
) -> Callable[[str], tuple[list[str], set[str], dict[str, dict[str, Any]]]]:
    def run(case: str) -> tuple[list[str], set[str], dict[str, dict[str, Any]]]:
        tutorial = TUTORIALS[case]
        printed = by_kind(list(yaml.safe_load_all((HERE / "tutorials" / tutorial.printed).read_text())))
        job = TrainingJob.load(project / "examples" / "tutorials" / tutorial.example)
        made = by_kind(documents(job, outputs, image))
        used: set[str] = set()
        faults = []
        for kind, document in printed.items():
            if kind == "Job:data" and "Job:data" not in made:
                faults.append("no data job")
                continue
            faults += compare(kind, document, made[kind], DIFFERENT, ADDED, used)
        return faults, used, made

    return run


@pytest.mark.parametrize("case", TUTORIALS)
def test_every_field_is_the_tutorials_or_has_a_reason(case: str, compared: Callable[[str], Any]) -> None:
    faults, _, _ = compared(case)
    assert faults == []


def test_no_reason_is_stale(compared: Callable[[str], Any]) -> None:
    used = set().union(*(compared(case)[1] for case in TUTORIALS))
    assert (set(DIFFERENT) | set(ADDED)) - used == set()


@pytest.mark.parametrize("case", TUTORIALS)
def test_the_environment_is_the_tutorials_name_by_name(case: str, compared: Callable[[str], Any]) -> None:
    tutorial = TUTORIALS[case]
    printed = by_kind(list(yaml.safe_load_all((HERE / "tutorials" / tutorial.printed).read_text())))
    made = compared(case)[2]
    theirs = {v["name"]: v["value"] for v in printed["Job:train"]["spec"]["template"]["spec"]["containers"][0]["env"]}
    container = made["Job:train"]["spec"]["template"]["spec"]["containers"][0]
    ours = {v["name"]: v.get("value") for v in container["env"]}
    namespace = made["Job:train"]["metadata"]["namespace"]
    assert {name: ours[name] for name in theirs} == {**theirs, "JOB_NAMESPACE": namespace}
    assert tutorial.trainer_count in (ours["TRAINER_COUNT"], None)
    # And the job's folder is where JOB_PATH and JOB_NAME say, whatever the volume is called.
    assert {m["name"]: m["mountPath"] for m in container["volumeMounts"]}["job"] == f"{ours['JOB_PATH']}/{ours['JOB_NAME']}"


@pytest.mark.parametrize("case", TUTORIALS)
def test_host_ports_are_the_documents_own(case: str, compared: Callable[[str], Any]) -> None:
    container = compared(case)[2]["Job:train"]["spec"]["template"]["spec"]["containers"][0]
    assert {p["name"]: p["hostPort"] for p in container["ports"] if "hostPort" in p} == TUTORIALS[case].host_ports


def test_host_ports_have_a_privileged_namespace_of_their_own(compared: Callable[[str], Any]) -> None:
    namespace = compared("000")[2]["Namespace"]["metadata"]
    assert namespace["name"] == "paddle-tutorial"
    assert namespace["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"


def test_pod_list_may_read_pods_of_its_namespace_and_nothing_else(compared: Callable[[str], Any]) -> None:
    made = compared("000")[2]
    assert made["Role"]["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
    account = made["Role"]["metadata"]["name"]
    assert made["RoleBinding"]["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account}
    assert made["RoleBinding"]["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": "paddle-tutorial"}]
    pod = made["Job:train"]["spec"]["template"]["spec"]
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == (account, True)
    assert made["Job:data"]["spec"]["template"]["spec"]["automountServiceAccountToken"] is False

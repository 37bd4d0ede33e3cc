"""The manifests and the commands against a real Kubernetes API server: `make test-cluster`, with
KUBECONFIG.

The API server is real, with its validation, Pod Security, field managers and RBAC, and so are the
cluster's controllers. All tests run in one namespace, which they make and remove. Outside of it
they make, for a while, the PaddleJob definition if the cluster has none, volumes, and the
deployers' roles and policies under names of their own.

Limits: no container of ours runs, because somebody else's cluster has neither our image nor our
file system. A node selector that fits no node keeps the pods pending, and the tests write the
statuses that a kubelet would write.
"""

import contextlib
import copy
import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import Run
from job_controller import ended_status
from kubernetes_api import kubeconfig

from k8s_charts import yaml_documents
from paddle_aws.operations.cluster.cluster_api import ApiError, ClusterApi, NotInstalled, Object
from paddle_aws.operations.errors import BadInput, Unreachable
from paddle_aws.operations.jobs import follow_up

pytestmark = pytest.mark.cluster

PROJECT = Path(__file__).parents[2]
GOLDEN = sorted((PROJECT / "tests" / "charts" / "golden").glob("*.yaml"))
FOREIGN = {"PodGroup"}
"""Kinds of other people's operators, checked if the cluster has them."""
NOWHERE = {"paddle-aws/test": "nowhere"}


def soon(true: Callable[[], Any], seconds: float = 60) -> Any:
    """Waits until `true` returns something true. Returns that."""
    deadline = time.monotonic() + seconds
    while not (result := true()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert result
    return result


@pytest.fixture(scope="module")
def cluster() -> ClusterApi:
    return ClusterApi(say=print)


def golden(file: Path) -> list[Object]:
    return [document for document in yaml.safe_load_all(file.read_text()) if document]


@pytest.fixture(scope="module")
def namespace(cluster: ClusterApi) -> Iterator[str]:
    """A namespace as the charts make it, including Pod Security's `restricted` and the service
    accounts.
    """
    name = f"paddle-test-{secrets.token_hex(3)}"
    documents = [
        d
        for d in golden(PROJECT / "tests/charts/golden/job.yaml")
        if d["kind"] in ("Namespace", "ServiceAccount")
    ]
    for document in documents:
        cluster.apply(moved(document, name))
    yield name
    cluster.delete(f"/api/v1/namespaces/{name}")
    for volume in cluster.items(
        "/api/v1/persistentvolumes", "app.kubernetes.io/part-of=paddle-aws"
    ):
        if volume["spec"].get("claimRef", {}).get("namespace") == name:
            cluster.delete(f"/api/v1/persistentvolumes/{volume['metadata']['name']}")
    soon(lambda: cluster.find(f"/api/v1/namespaces/{name}") is None)


@pytest.fixture(scope="module")
def paddle_job_kind(cluster: ClusterApi) -> Iterator[None]:
    """Installs the definition of PaddleJob if the cluster has none of its own."""
    definition = next(
        d for file in GOLDEN for d in golden(file) if d["kind"] == "CustomResourceDefinition"
    )
    path = cluster.path(definition)
    if cluster.find(path) is not None:
        yield
        return
    cluster.apply(definition)
    kind = {
        "apiVersion": "batch.paddlepaddle.org/v1",
        "kind": "PaddleJob",
        "metadata": {"name": "any", "namespace": "any"},
    }

    def served() -> str:
        with contextlib.suppress(NotInstalled):
            return cluster.path(kind)
        return ""

    soon(served)
    yield
    cluster.delete(path)


def moved(document: Object, namespace: str) -> Object:
    """Returns a copy of the document in the tests' own namespace."""
    clone = copy.deepcopy(document)
    if clone["kind"] == "Namespace":
        clone["metadata"]["name"] = namespace
    elif "namespace" in clone["metadata"]:
        clone["metadata"]["namespace"] = namespace
    if "claimRef" in (clone.get("spec") or {}):
        clone["spec"]["claimRef"]["namespace"] = namespace
    for subject in clone.get("subjects", ()):
        subject["namespace"] = namespace
    return clone


def dry_run(cluster: ClusterApi, document: Object) -> Object:
    """Returns what the server would make of the document."""
    query = {"fieldManager": "test", "fieldValidation": "Strict", "dryRun": "All", "force": "true"}
    headers = {"Content-Type": "application/apply-patch+yaml"}
    path, body = cluster.path(document), json.dumps(document).encode()
    answer: Object = json.loads(
        cluster.request("PATCH", path, query=query, headers=headers, body=body).data
    )
    return answer


def pods(document: Object) -> Iterator[Object]:
    """Yields the pods of a Job or PaddleJob, without priority classes and accounts: those belong to
    a cluster that has them.
    """
    spec = document.get("spec") or {}
    parts = {"PaddleJob": [spec.get("ps"), spec.get("worker")], "Job": [spec]}.get(
        document["kind"], []
    )
    for number, template in enumerate(part["template"] for part in parts if part):
        metadata = {
            "name": f"a-pod-{number}",
            "namespace": "any",
            "labels": template["metadata"].get("labels", {}),
        }
        inner = {
            k: v
            for k, v in template["spec"].items()
            if k not in ("priorityClassName", "serviceAccountName")
        }
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": inner}


@pytest.mark.parametrize("file", GOLDEN, ids=lambda file: file.stem)
def test_the_server_takes_every_manifest_and_lets_every_pod_in(
    cluster: ClusterApi, namespace: str, paddle_job_kind: None, file: Path
) -> None:
    """The server admits a Job whatever its pods are: only a pod shows what Pod Security makes of
    it.
    """
    unknown = set()
    for document in golden(file):
        try:
            assert dry_run(cluster, moved(document, namespace))["kind"] == document["kind"]
        except NotInstalled:
            unknown.add(document["kind"])
    assert unknown <= FOREIGN
    labels = [d["metadata"].get("labels", {}) for d in golden(file) if d["kind"] == "Namespace"]
    # Pods on the host's network need a privileged namespace.
    if {d.get("pod-security.kubernetes.io/enforce") for d in labels} <= {None, "restricted"}:
        for pod in (pod for document in golden(file) for pod in pods(document)):
            dry_run(cluster, moved(pod, namespace))


@pytest.fixture
def words(namespace: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a job of two trainers whose pods fit no node."""
    monkeypatch.setattr(follow_up, "FIRST_LOOK", 10.0)
    job = {
        "name": f"words-{secrets.token_hex(2)}",
        "namespace": namespace,
        "trainers": 2,
        "data": {"source": "s3://corpus/words"},
        "scheduling": {"node_selector": NOWHERE},
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    return folder


def end(cluster: ClusterApi, namespace: str, component: str, code: int) -> None:
    """Writes the statuses that a kubelet would give a component's pending pods once their
    containers have ended.
    """
    path, headers = (
        f"/api/v1/namespaces/{namespace}/pods",
        {"Content-Type": "application/merge-patch+json"},
    )
    for pod in cluster.items(path, f"app.kubernetes.io/component={component}"):
        if pod["status"]["phase"] == "Pending" and "deletionTimestamp" not in pod["metadata"]:
            body = json.dumps(
                {"status": ended_status(pod, code, "its last line" if code else "")}
            ).encode()
            # A pod that has gone or changed meanwhile gets another turn.
            with contextlib.suppress(ApiError):
                cluster.request(
                    "PATCH", f"{path}/{pod['metadata']['name']}/status", headers=headers, body=body
                )


def submission(*options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "paddle_aws.operations.main", "submit", *options]
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}
    return subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
    )


def state(run: Run) -> dict[str, Any]:
    status: dict[str, Any] = json.loads(run("status", "--json").out)
    return status


def test_a_job_from_its_submission_to_its_end(
    run: Run, cluster: ClusterApi, namespace: str, words: Path
) -> None:
    def reached(expected: str, component: str = "") -> dict[str, Any]:
        """Ends the component's pods with 0. Returns the job's status once it has the wanted state
        and a reason.
        """
        if component:
            end(cluster, namespace, component, 0)
        status = state(run)
        return status if status["state"] == expected and status["reason"] else {}

    submitting = submission("--wait")
    # The data job comes first; the status says in words what holds its pod.
    soon(lambda: run("status").code == 0)
    held = soon(lambda: reached("splitting"))
    assert held["training"] is None and "no node" in held["reason"]
    status = soon(lambda: reached("waiting", "data"))
    assert (status["data"]["state"], status["training"]["wanted"]) == ("done", 2)
    assert [job["state"] for job in json.loads(run("list", "-n", namespace, "--json").out)] == [
        "waiting"
    ]
    assert "runs already" in run("submit").err and run("delete").code == 2

    soon(lambda: end(cluster, namespace, "trainer", 0) or submitting.poll() is not None)
    _, errors = submitting.communicate()
    assert submitting.returncode == 0, errors
    assert "trainer 0-1 waiting: " in errors and "is done: 2 of 2 pods succeeded" in errors
    done = run("delete")
    assert done.code == 0, done.err
    core, batch, networking = "/api/v1", "/apis/batch/v1", "/apis/networking.k8s.io/v1"
    paths = [
        f"{core}/persistentvolumes",
        f"{core}/namespaces/{namespace}/pods",
        f"{batch}/namespaces/{namespace}/jobs",
    ]
    for path in (*paths, f"{networking}/namespaces/{namespace}/networkpolicies"):
        soon(
            lambda path=path: not cluster.items(path, f"app.kubernetes.io/instance={status['job']}")
        )


# Users who may only submit jobs (`paddle-aws setup`).


HANDLE = "fs-0123456789abcdef0::fsap-0123456789abcdef0"


@pytest.fixture
def deployer(cluster: ClusterApi, namespace: str, tmp_path: Path) -> Iterator[Path]:
    """A kubeconfig of a member of the deployers' group, with the rights of deployers.yaml in the
    tests' namespace.
    """
    # The group has a new name each time: a server may still apply a policy that has just been
    # deleted.
    group = f"{namespace}-{secrets.token_hex(2)}"
    documents = yaml_documents.template(
        "deployers.yaml",
        namespace=namespace,
        driver="efs.csi.aws.com",
        handle=HANDLE,
        attributes="!has(object.spec.csi.volumeAttributes)",
    )
    manifests = json.loads(json.dumps(documents).replace("paddle-deployers", group))
    for document in manifests:
        cluster.apply(document)
    command = [
        "kubectl",
        "proxy",
        "--port=0",
        "--as=somebody",
        f"--as-group={group}",
        "--as-group=system:authenticated",
    ]
    proxy = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert proxy.stdout is not None
    (tmp_path / "deployer").write_text(
        kubeconfig(f"http://{proxy.stdout.readline().split()[-1]}", {})
    )
    yield tmp_path / "deployer"
    proxy.terminate()
    proxy.wait(10)
    for document in reversed(manifests):
        if document["kind"] != "Namespace":
            cluster.delete(cluster.path(document))


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
def test_a_deployer_may_do_nothing_else(
    cluster: ClusterApi, namespace: str, deployer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(deployer))
    somebody = ClusterApi()
    volume: Object = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{namespace}.folder"},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"]},
    }
    driver = {"csi": {"driver": "efs.csi.aws.com", "volumeHandle": HANDLE}}
    elsewhere = {"csi": {"driver": "efs.csi.aws.com", "volumeHandle": "fs-0fedcba9876543210"}}
    around = driver | {"mountOptions": ["accesspoint=fsap-0fedcba9876543210"]}
    door: Object = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "door", "namespace": namespace},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
    }
    forbidden = [
        volume | {"spec": volume["spec"] | {"hostPath": {"path": "/"}}},
        volume | {"spec": volume["spec"] | driver, "metadata": {"name": "somebody-elses"}},
        volume | {"spec": volume["spec"] | elsewhere},
        volume | {"spec": volume["spec"] | around},
        door,
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": namespace}},
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": namespace, "labels": {"more": "rights"}},
        },
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"{namespace}-2"}},
    ]

    def refused(document: Object) -> bool:
        try:
            somebody.apply(document)
        except (Unreachable, BadInput) as error:
            return any(word in str(error) for word in ("is forbidden", "(403)"))
        # A policy takes a moment to take effect.
        if document["kind"] in ("PersistentVolume", "Service"):
            cluster.delete(cluster.path(document))
        return False

    for document in forbidden:
        soon(lambda document=document: refused(document))
    allowed = volume | {
        "spec": volume["spec"] | driver,
        "metadata": {"name": f"{namespace}.allowed"},
    }
    soon(lambda: not refused(allowed))
    with pytest.raises(Unreachable, match="403"):
        somebody.items("/api/v1/namespaces/kube-system/pods")


def test_somebody_elses_change_is_not_overwritten(
    run: Run, cluster: ClusterApi, namespace: str, words: Path
) -> None:
    submitting = submission()
    soon(lambda: end(cluster, namespace, "data", 65) or submitting.poll() is not None)
    assert submitting.returncode == 1
    name = state(run)["job"]
    policies = f"/apis/networking.k8s.io/v1/namespaces/{state(run)['namespace']}/networkpolicies"
    path = f"{policies}/{name}-data"
    patch = {"spec": {"policyTypes": ["Ingress"]}}
    headers = {"Content-Type": "application/merge-patch+json"}
    cluster.request(
        "PATCH",
        path,
        query={"fieldManager": "a-person"},
        headers=headers,
        body=json.dumps(patch).encode(),
    )
    done = run("submit")
    assert done.code == 2, done.err
    assert "was changed by somebody else" in done.err and "a-person" in done.err
    assert run("delete").code == 0

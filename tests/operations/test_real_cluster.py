"""The manifests and the commands against a real Kubernetes API server: `make test-cluster`, with KUBECONFIG.

What is real: the API server with its validation, Pod Security, field managers and RBAC, and whatever controllers the
cluster has. All of it happens in one namespace, made for it and removed after it. Outside of it are, for a while, the PaddleJob
definition where the cluster has none, volumes, and the deployers' roles and policies under names of their own.

Limits: no container of ours runs (a cluster of somebody else has neither our image nor our file system): a node selector
that fits no node keeps the pods pending, and the tests write the pods' statuses that a kubelet would write.
"""

import contextlib
import copy
import json
import os
import secrets
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import Run
from job_controller import ended_status
from kubernetes_api import kubeconfig

from operations.cluster.cluster import ApiError, Cluster, NotInstalled, Object
from operations.commands import submit
from operations.errors import BadInput, Unreachable

pytestmark = pytest.mark.cluster

PROJECT = Path(__file__).parents[2]
GOLDEN = sorted((PROJECT / "tests" / "charts" / "golden").glob("*.yaml"))
FOREIGN = {"PodGroup"}
"""Kinds of operators that are not ours: checked where the cluster has them."""
NOWHERE = {"paddle-aws/test": "nowhere"}
Soon = Callable[..., Any]


@pytest.fixture
def soon() -> Callable[[Callable[[], Any]], Any]:
    """Waits until something becomes true."""

    def wait(true: Callable[[], Any], seconds: float = 60) -> Any:
        deadline = time.monotonic() + seconds
        while not (found := true()) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert found
        return found

    return wait


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return Cluster(say=print)


def golden(file: Path) -> list[Object]:
    return [document for document in yaml.safe_load_all(file.read_text()) if document]


@pytest.fixture(scope="module")
def namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace as the charts make it, Pod Security's `restricted` and service accounts included."""
    name = f"paddle-test-{secrets.token_hex(3)}"
    made = [d for d in golden(PROJECT / "tests/charts/golden/job.yaml") if d["kind"] in ("Namespace", "ServiceAccount")]
    for document in made:
        cluster.apply(moved(document, name))
    yield name
    cluster.delete(f"/api/v1/namespaces/{name}")
    for volume in cluster.items("/api/v1/persistentvolumes", "app.kubernetes.io/part-of=paddle-aws"):
        if volume["spec"].get("claimRef", {}).get("namespace") == name:
            cluster.delete(f"/api/v1/persistentvolumes/{volume['metadata']['name']}")
    deadline = time.monotonic() + 60
    while cluster.find(f"/api/v1/namespaces/{name}") and time.monotonic() < deadline:
        time.sleep(0.5)


@pytest.fixture(scope="module")
def paddle_job_kind(cluster: Cluster) -> Iterator[None]:
    """The definition of PaddleJob, where the cluster has none of its own."""
    definition = next(d for file in GOLDEN for d in golden(file) if d["kind"] == "CustomResourceDefinition")
    path = cluster.path(definition)
    if cluster.find(path) is not None:
        yield
        return
    cluster.apply(definition)
    kind = {"apiVersion": "batch.paddlepaddle.org/v1", "kind": "PaddleJob", "metadata": {"name": "any", "namespace": "any"}}
    # A server takes a moment to serve it.
    for _ in range(60):
        with contextlib.suppress(NotInstalled):
            cluster.path(kind)
            break
        time.sleep(1)
    yield
    cluster.delete(path)


def moved(document: Object, namespace: str) -> Object:
    """The document in the tests' own namespace."""
    found = copy.deepcopy(document)
    if found["kind"] == "Namespace":
        found["metadata"]["name"] = namespace
    elif "namespace" in found["metadata"]:
        found["metadata"]["namespace"] = namespace
    if "claimRef" in (found.get("spec") or {}):
        found["spec"]["claimRef"]["namespace"] = namespace
    for subject in found.get("subjects", ()):
        subject["namespace"] = namespace
    return found


def dry_run(cluster: Cluster, document: Object) -> Object:
    """What the server would make of it."""
    query = {"fieldManager": "test", "fieldValidation": "Strict", "dryRun": "All", "force": "true"}
    headers = {"Content-Type": "application/apply-patch+yaml"}
    path, body = cluster.path(document), json.dumps(document).encode()
    answer: Object = json.loads(cluster.request("PATCH", path, query=query, headers=headers, body=body).data)
    return answer


@pytest.mark.parametrize("file", GOLDEN, ids=lambda file: file.stem)
def test_the_server_takes_every_manifest(cluster: Cluster, namespace: str, paddle_job_kind: None, file: Path) -> None:
    unknown = set()
    for document in golden(file):
        try:
            answer = dry_run(cluster, moved(document, namespace))
        except NotInstalled:
            unknown.add(document["kind"])
            continue
        assert answer["kind"] == document["kind"]
    assert unknown <= FOREIGN


def templates(document: Object) -> list[Object]:
    spec = document.get("spec") or {}
    if document["kind"] == "PaddleJob":
        return [spec[part]["template"] for part in ("ps", "worker") if part in spec]
    return [spec["template"]] if document["kind"] == "Job" else []


@pytest.mark.parametrize("file", GOLDEN, ids=lambda file: file.stem)
def test_pod_security_lets_every_pod_in(cluster: Cluster, namespace: str, file: Path) -> None:
    """A Job is admitted whatever its pods are: only a pod shows what Pod Security makes of it."""
    documents = golden(file)
    privileged = any(
        d["metadata"].get("labels", {}).get("pod-security.kubernetes.io/enforce") not in (None, "restricted")
        for d in documents
        if d["kind"] == "Namespace"
    )
    if privileged:
        pytest.skip("its pods use the host's network: the namespace that they need is privileged")
    for document in documents:
        for number, template in enumerate(templates(document)):
            metadata = {"name": f"a-pod-{number}", "namespace": namespace, "labels": template["metadata"].get("labels", {})}
            # Classes and accounts belong to a cluster that has them.
            spec = {k: v for k, v in template["spec"].items() if k not in ("priorityClassName", "serviceAccountName")}
            dry_run(cluster, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


@pytest.fixture
def words(namespace: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job of two trainers whose pods no node takes."""
    monkeypatch.setattr(submit, "LOOK", 10.0)
    job = {
        "name": f"words-{secrets.token_hex(2)}",
        "namespace": namespace,
        "trainers": 2,
        "data": {"source": "s3://corpus/words"},
        "scheduling": {"node_selector": NOWHERE},
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    return folder


@pytest.fixture
def kubelet(cluster: Cluster, namespace: str) -> Iterator[Callable[[str, int], None]]:
    """Ends the pods of a component with a code, as they come, until the test is over."""
    codes: dict[str, int] = {}
    closed = threading.Event()

    def play() -> None:
        while not closed.wait(0.3):
            for pod in cluster.items(f"/api/v1/namespaces/{namespace}/pods", "app.kubernetes.io/part-of=paddle-aws"):
                code = codes.get(pod["metadata"]["labels"]["app.kubernetes.io/component"])
                if code is not None and pod["status"]["phase"] == "Pending" and "deletionTimestamp" not in pod["metadata"]:
                    end(cluster, pod, code)

    thread = threading.Thread(target=play, daemon=True)
    thread.start()
    yield codes.__setitem__
    closed.set()
    thread.join(10)


def end(cluster: Cluster, pod: Object, code: int) -> None:
    """Writes the status of a pod whose container has ended."""
    status = ended_status(pod, code, "its last line" if code else "")
    path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}/status"
    headers = {"Content-Type": "application/merge-patch+json"}
    try:
        cluster.request("PATCH", path, headers=headers, body=json.dumps({"status": status}).encode())
    except ApiError as error:
        if error.status not in (404, 409):
            raise


def state(run: Run) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("status", "--json").out)
    return found


def test_a_job_from_its_submission_to_its_end(
    run: Run, cluster: Cluster, words: Path, kubelet: Callable[[str, int], None], soon: Soon
) -> None:
    command = [sys.executable, "-m", "operations.main", "submit", "--wait"]
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}
    submitting = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment)
    # The data job first: what keeps its pod, in words.
    soon(lambda: run("status").code == 0)
    held = soon(lambda: (found := state(run))["state"] == "splitting" and found["reason"] and found)
    assert held["training"] is None and "no node" in held["reason"]
    kubelet("data", 0)
    found = soon(lambda: (found := state(run))["state"] == "waiting" and found["reason"] and found)
    assert (found["data"]["state"], found["training"]["wanted"]) == ("done", 2)
    assert [job["state"] for job in json.loads(run("list", "-n", found["namespace"], "--json").out)] == ["waiting"]
    assert "runs already" in run("submit").err and run("delete").code == 2

    kubelet("trainer", 0)
    _, errors = submitting.communicate(timeout=60)
    assert submitting.returncode == 0, errors
    assert "trainer 0-1 waiting: " in errors and "is done: 2 of 2 pods succeeded" in errors
    done = run("delete")
    assert done.code == 0, done.err
    name = found["job"]
    for path in (
        f"/apis/batch/v1/namespaces/{found['namespace']}/jobs",
        f"/api/v1/namespaces/{found['namespace']}/pods",
        f"/apis/networking.k8s.io/v1/namespaces/{found['namespace']}/networkpolicies",
        "/api/v1/persistentvolumes",
    ):
        soon(lambda path=path: not cluster.items(path, f"app.kubernetes.io/instance={name}"), 30)


# Who may only submit jobs (docs/people/deployers.yaml).


@pytest.fixture
def deployer(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[Path]:
    """A kubeconfig of somebody in the deployers' group, which has what the file gives it in the tests' namespace."""
    # A name of its own each time: a server may still hold a policy that has just been deleted.
    group = f"{namespace}-{secrets.token_hex(2)}"
    text = (PROJECT / "docs" / "people" / "deployers.yaml").read_text().replace("paddle-deployers", group)
    for old in ("namespace: paddle\n", "name: paddle\n", "[paddle]", "'paddle.'"):
        text = text.replace(old, old.replace("paddle", namespace))
    made = [document for document in yaml.safe_load_all(text) if document]
    for document in made:
        cluster.apply(document)
    command = ["kubectl", "proxy", "--port=0", "--as=somebody", f"--as-group={group}", "--as-group=system:authenticated"]
    proxy = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert proxy.stdout is not None
    (tmp_path / "deployer").write_text(kubeconfig(f"http://{proxy.stdout.readline().split()[-1]}", {}))
    yield tmp_path / "deployer"
    proxy.terminate()
    proxy.wait(10)
    for document in reversed(made):
        if document["kind"] != "Namespace":
            cluster.delete(cluster.path(document))


needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")


@needs_kubectl
def test_a_deployer_may_do_nothing_else(
    cluster: Cluster, namespace: str, deployer: Path, monkeypatch: pytest.MonkeyPatch, soon: Soon
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(deployer))
    somebody = Cluster()
    volume: Object = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{namespace}.folder"},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"]},
    }
    driver = {"csi": {"driver": "efs.csi.aws.com", "volumeHandle": "fs-0123456789abcdef0"}}
    forbidden = [
        volume | {"spec": volume["spec"] | {"hostPath": {"path": "/"}}},
        volume | {"spec": volume["spec"] | driver, "metadata": {"name": "somebody-elses"}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": namespace}},
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": {"more": "rights"}}},
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"{namespace}-2"}},
    ]

    def refused(document: Object) -> bool:
        try:
            somebody.apply(document)
        except (Unreachable, BadInput) as error:
            return any(word in str(error) for word in ("is forbidden", "(403)"))
        # A policy takes a moment until it holds.
        if document["kind"] == "PersistentVolume":
            cluster.delete(cluster.path(document))
        return False

    for document in forbidden:
        soon(lambda document=document: refused(document), 60)
    allowed = volume | {"spec": volume["spec"] | driver, "metadata": {"name": f"{namespace}.allowed"}}
    soon(lambda: not refused(allowed), 60)
    with pytest.raises(Unreachable, match="403"):
        somebody.items("/api/v1/namespaces/kube-system/pods")


def test_somebody_elses_change_is_not_overwritten(
    run: Run, cluster: Cluster, words: Path, kubelet: Callable[[str, int], None]
) -> None:
    kubelet("data", 65)
    assert run("submit").code == 1
    name = state(run)["job"]
    path = f"/apis/networking.k8s.io/v1/namespaces/{state(run)['namespace']}/networkpolicies/{name}-data"
    patch = {"spec": {"policyTypes": ["Ingress"]}}
    headers = {"Content-Type": "application/merge-patch+json"}
    cluster.request("PATCH", path, query={"fieldManager": "a-person"}, headers=headers, body=json.dumps(patch).encode())
    done = run("submit")
    assert done.code == 2, done.err
    assert "was changed by somebody else" in done.err and "a-person" in done.err
    assert run("delete").code == 0

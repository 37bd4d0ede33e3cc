"""The manifests that `paddle-aws setup` applies are valid, run on the right nodes, and give people
who may only submit all rights that `paddle-aws` needs from the API server.

No API server runs here: the tests read from the two policies' expressions what these refuse, and do
not try it.
"""

import re
from typing import Any

import kubernetes_validate
import pytest
import yaml

from constructs_lib.ec2.node_shape import EFA_LABEL, GPU_LABEL, GPU_TAINT
from constructs_lib.eks.cluster_access import AccessLevel
from constructs_lib.k3s.release import BOOTSTRAP
from k8s_charts import yaml_documents
from paddle_aws.operations.jobs.removal import NAMESPACED

from .built import PROJECT
from .rights import cluster_rights

Documents = list[dict[str, Any]]
ADMINISTRATORS = {"CustomResourceDefinition", "Deployment"}
"""Kinds of the PaddleJob operator, which an administrator installs (paddlejob.install_operator:
false in the job).
"""
PLURALS = {"NetworkPolicy": "networkpolicies"}
FRAME = {"Namespace", "LimitRange", "ResourceQuota"}
"""Applied unchanged with every job; an administrator creates and changes them."""
DOCUMENTS: Documents = yaml_documents.template(
    "deployers.yaml",
    namespace="paddle",
    driver="efs.csi.aws.com",
    handle="fs-1::fsap-1",
    attributes="!has(object.spec.csi.volumeAttributes)",
)
PEOPLE: Documents = list(yaml.safe_load_all((BOOTSTRAP / "manifests" / "people.yaml").read_text()))
"""What a self-managed cluster's control plane creates for its teams."""


def _of(documents: Documents, *kinds: str) -> Documents:
    return [document for document in documents if document["kind"] in kinds]


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("nvidia_device_plugin", GPU_LABEL),
        ("dcgm_exporter", GPU_LABEL),
        ("efa_device_plugin", EFA_LABEL),
    ],
)
def test_a_plugin_runs_on_the_nodes_that_need_it(name: str, label: str) -> None:
    given = (
        {"registry": "602401143452.dkr.ecr.us-west-2.amazonaws.com"}
        if name.startswith("efa")
        else {}
    )
    [plugin] = yaml_documents.template(f"{name}.yaml", **given)
    kubernetes_validate.validate(plugin, "1.34", strict=True)
    pod = plugin["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {label: "true"}
    assert any(
        toleration.get("key", GPU_TAINT) == GPU_TAINT and toleration["operator"] == "Exists"
        for toleration in pod["tolerations"]
    )
    assert re.search(r":v?\d+\.", pod["containers"][0]["image"])


def test_deployers_are_the_group_of_the_access_entries_and_a_self_managed_clusters_account() -> (
    None
):
    for document in DOCUMENTS:
        kubernetes_validate.validate(document, "1.34", strict=True)
    group, account = AccessLevel.DEPLOY.value[1], "paddle-trainer"
    assert account in {document["metadata"]["name"] for document in _of(PEOPLE, "ServiceAccount")}
    teams = {group: account, AccessLevel.READ.value[1]: "paddle-reader"}
    for binding in _of(DOCUMENTS, "RoleBinding", "ClusterRoleBinding"):
        of = binding["metadata"]["name"]
        assert [(s["kind"], s["name"]) for s in binding["subjects"]] == [
            ("Group", of),
            ("ServiceAccount", teams[of]),
        ]
        assert binding["subjects"][1]["namespace"] == "kube-system"
        assert binding["roleRef"]["name"] in {
            d["metadata"]["name"] for d in _of(DOCUMENTS, binding["roleRef"]["kind"])
        }
    for policy in _of(DOCUMENTS, "ValidatingAdmissionPolicy"):
        assert [c["expression"] for c in policy["spec"]["matchConditions"]] == [
            f"'{group}' in request.userInfo.groups || request.userInfo.username == "
            f"'system:serviceaccount:kube-system:{account}' || "
            "'system:serviceaccounts:paddle' in request.userInfo.groups"
        ]
    bound = {
        binding["spec"]["policyName"]
        for binding in _of(DOCUMENTS, "ValidatingAdmissionPolicyBinding")
    }
    assert bound == {
        policy["metadata"]["name"] for policy in _of(DOCUMENTS, "ValidatingAdmissionPolicy")
    }


@pytest.mark.parametrize(
    "golden", ["job", "volcano-spot-prepared", "kubernetes-on-aws", "wide-and-deep"]
)
def test_whatever_submit_applies_may_be_applied(golden: str) -> None:
    documents = yaml.safe_load_all(
        (PROJECT / "tests" / "charts" / "golden" / f"{golden}.yaml").read_text()
    )
    applied = {
        (document["apiVersion"], document["kind"])
        for document in documents
        if document["kind"] not in ADMINISTRATORS
    }
    assert applied
    for version, kind in applied:
        resource = f"{PLURALS.get(kind, f'{kind.lower()}s')}.{version.rpartition('/')[0]}".rstrip(
            "."
        )
        for verb in ("get", "patch", *(() if kind in FRAME else ("create",))):
            assert (resource, verb) in cluster_rights("trainer"), (kind, verb)


def test_whatever_delete_removes_may_be_removed() -> None:
    rights = cluster_rights("trainer")
    others = (
        "/apis/batch/v1/jobs",
        "/apis/batch.paddlepaddle.org/v1/paddlejobs",
        "/api/v1/persistentvolumes",
    )
    for path in (*NAMESPACED, *others):
        api = f".{path.split('/')[2]}" if path.startswith("/apis/") else ""
        resource = path.rpartition("/")[2] + api
        assert {(resource, "list"), (resource, "delete")} <= rights, path
    # Requests to a pod that serves the volume use GET, PUT and POST.
    assert {verb for kind, verb in rights if kind == "pods/proxy"} == {"get", "update", "create"}


def test_the_frame_and_the_nodes_stay_closed() -> None:
    rights = cluster_rights("trainer")
    changed = {kind for kind, verb in rights if verb in ("create", "delete", "update")}
    assert not changed & {"namespaces", "limitranges", "resourcequotas"}
    resources = {kind.partition(".")[0] for kind, _ in rights}
    assert not resources & {
        "nodes",
        "secrets",
        "pods/exec",
        "*",
        "clusterroles",
        "customresourcedefinitions",
    }
    # The namespace is equally narrow from each creator, also from a self-managed cluster before
    # anybody applies anything.
    [namespace], [peoples_namespace] = _of(DOCUMENTS, "Namespace"), _of(PEOPLE, "Namespace")
    ours, *_ = yaml_documents.template(
        "namespace.yaml", namespace="x", trainer="x", data="x", level="restricted"
    )
    ours, theirs = map(yaml_documents.labelled, (ours, peoples_namespace))
    assert yaml_documents.labelled(namespace)["metadata"]["labels"] == ours["metadata"]["labels"]
    assert ours["metadata"]["labels"] == theirs["metadata"]["labels"]
    volumes, frame, doors = _of(DOCUMENTS, "ValidatingAdmissionPolicy")
    expressions = " ".join(rule["expression"] for rule in volumes["spec"]["validations"])
    name = namespace["metadata"]["name"]
    assert (
        f"request.name.startsWith('{name}.')" in expressions
        and "object.spec.csi.driver == 'efs.csi.aws.com'" in expressions
        and "object.spec.csi.volumeHandle == 'fs-1::fsap-1'" in expressions
        and "!has(object.spec.csi.volumeAttributes)" in expressions
    )
    [allowed] = re.findall(r"option.matches\('(.*?)'\)", expressions)
    ours = yaml.safe_load_all((PROJECT / "tests/charts/golden/job.yaml").read_text())
    [volume] = _of(list(ours), "PersistentVolume")
    assert all(re.fullmatch(allowed, option) for option in volume["spec"]["mountOptions"])
    for elsewhere in ("accesspoint=fsap-2", "mounttargetip=10.0.0.9", "rolearn=x", "tls,iam"):
        assert not re.fullmatch(allowed, elsewhere)
    [kinds] = frame["spec"]["matchConstraints"]["resourceRules"]
    assert kinds["resources"] == ["limitranges", "namespaces", "resourcequotas"]
    opened = {
        kind
        for rule in doors["spec"]["matchConstraints"]["resourceRules"]
        for kind in rule["resources"]
    }
    [closed] = doors["spec"]["validations"]
    assert opened == {"services", "ingresses"}
    assert "object.spec.type in ['ClusterIP', 'ExternalName']" in closed["expression"]
    assert all(policy["spec"]["failurePolicy"] == "Fail" for policy in (volumes, frame, doors))

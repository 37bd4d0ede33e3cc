"""docs/people/deployers.yaml: valid, and all that `paddle-aws` asks of the API server for who may only submit.

No API server runs here: that the two policies refuse what they should is read from their expressions, not tried.
"""

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from constructs_lib.eks.cluster_access import AccessLevel
from constructs_lib.k3s.release import BOOTSTRAP
from k8s_charts import yaml_documents
from operations.jobs.removal import NAMESPACED

Documents = list[dict[str, Any]]
ADMINISTRATORS = {"CustomResourceDefinition", "Deployment"}
"""Kinds of the PaddleJob operator, which an administrator installs (paddlejob.install_operator: false in the job)."""
PLURALS = {"NetworkPolicy": "networkpolicies"}
FRAME = {"Namespace", "LimitRange", "ResourceQuota"}
"""Applied with every job as they are; an administrator makes and changes them."""


@pytest.fixture(scope="module")
def documents(project: Path) -> Documents:
    return list(yaml.safe_load_all((project / "docs" / "people" / "deployers.yaml").read_text()))


@pytest.fixture(scope="module")
def people() -> Documents:
    """What a self-managed cluster's control plane makes of its teams."""
    return list(yaml.safe_load_all((BOOTSTRAP / "manifests" / "people.yaml").read_text()))


@pytest.fixture(scope="module")
def rights(documents: Documents) -> set[tuple[str, str, str]]:
    """(API group, resource, verb) that the group gets."""
    return {
        (group, resource, verb)
        for document in documents
        if document["kind"] in ("Role", "ClusterRole") and document["metadata"]["name"] == AccessLevel.DEPLOY.value[1]
        for rule in document["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def _of(documents: Documents, kind: str) -> Documents:
    return [document for document in documents if document["kind"] == kind]


def test_every_document_is_valid(documents: Documents) -> None:
    for document in documents:
        kubernetes_validate.validate(document, "1.34", strict=True)


def test_it_is_bound_to_the_group_of_the_access_entries_and_to_a_self_managed_clusters_account(
    documents: Documents, people: Documents
) -> None:
    group, account = AccessLevel.DEPLOY.value[1], "paddle-trainer"
    assert ("ServiceAccount", account) in {(d["kind"], d["metadata"]["name"]) for d in people}
    teams = {group: account, AccessLevel.READ.value[1]: "paddle-reader"}
    for binding in (*_of(documents, "RoleBinding"), *_of(documents, "ClusterRoleBinding")):
        of = binding["metadata"]["name"]
        assert [(s["kind"], s["name"]) for s in binding["subjects"]] == [("Group", of), ("ServiceAccount", teams[of])]
        assert binding["subjects"][1]["namespace"] == "kube-system"
        assert binding["roleRef"]["name"] in {d["metadata"]["name"] for d in _of(documents, binding["roleRef"]["kind"])}
    for policy in _of(documents, "ValidatingAdmissionPolicy"):
        assert [c["expression"] for c in policy["spec"]["matchConditions"]] == [
            f"'{group}' in request.userInfo.groups || request.userInfo.username == 'system:serviceaccount:kube-system:{account}'"
        ]
    bound = {binding["spec"]["policyName"] for binding in _of(documents, "ValidatingAdmissionPolicyBinding")}
    assert bound == {policy["metadata"]["name"] for policy in _of(documents, "ValidatingAdmissionPolicy")}


@pytest.mark.parametrize("golden", ["job", "volcano-spot-prepared", "kubernetes-on-aws", "wide-and-deep"])
def test_whatever_submit_applies_may_be_applied(project: Path, rights: set[tuple[str, str, str]], golden: str) -> None:
    found = yaml.safe_load_all((project / "tests" / "charts" / "golden" / f"{golden}.yaml").read_text())
    applied = {(document["apiVersion"], document["kind"]) for document in found if document["kind"] not in ADMINISTRATORS}
    assert applied
    for version, kind in applied:
        group, resource = version.rpartition("/")[0], PLURALS.get(kind, f"{kind.lower()}s")
        for verb in ("get", "patch", *(() if kind in FRAME else ("create",))):
            assert (group, resource, verb) in rights, (kind, verb)


def test_whatever_delete_removes_may_be_removed(rights: set[tuple[str, str, str]]) -> None:
    others = ("/apis/batch/v1/jobs", "/apis/batch.paddlepaddle.org/v1/paddlejobs", "/api/v1/persistentvolumes")
    for path in (*NAMESPACED, *others):
        group = path.split("/")[2] if path.startswith("/apis/") else ""
        assert {"list", "delete"} <= {verb for of, kind, verb in rights if (of, kind) == (group, path.rpartition("/")[2])}, path
    # A pod that serves the volume is asked by GET, PUT and POST.
    assert {verb for _, kind, verb in rights if kind == "pods/proxy"} == {"get", "update", "create"}


def test_a_self_managed_clusters_namespace_is_no_wider(documents: Documents, people: Documents) -> None:
    """Its trainer team may edit it from the first minute, before anybody applies anything."""
    [made], [applied] = _of(people, "Namespace"), _of(documents, "Namespace")
    assert made["metadata"]["labels"] == applied["metadata"]["labels"]


def test_the_frame_and_the_nodes_stay_closed(documents: Documents, rights: set[tuple[str, str, str]]) -> None:
    for resource in ("namespaces", "limitranges", "resourcequotas"):
        assert not {
            (group, kind, verb) for group, kind, verb in rights if kind == resource and verb in ("create", "delete", "update")
        }
    assert not {kind for _, kind, _ in rights} & {
        "nodes",
        "secrets",
        "pods/exec",
        "*",
        "clusterroles",
        "customresourcedefinitions",
    }
    [namespace] = _of(documents, "Namespace")
    ours, *_ = yaml_documents.template("namespace.yaml", namespace="x", trainer="x", data="x", level="restricted")
    assert namespace["metadata"]["labels"] == ours["metadata"]["labels"]
    volumes, frame = _of(documents, "ValidatingAdmissionPolicy")
    expressions = " ".join(rule["expression"] for rule in volumes["spec"]["validations"])
    name = namespace["metadata"]["name"]
    assert f"request.name.startsWith('{name}.')" in expressions and "object.spec.csi.driver == 'efs.csi.aws.com'" in expressions
    [kinds] = frame["spec"]["matchConstraints"]["resourceRules"]
    assert kinds["resources"] == ["limitranges", "namespaces", "resourcequotas"]
    assert all(policy["spec"]["failurePolicy"] == "Fail" for policy in (volumes, frame))

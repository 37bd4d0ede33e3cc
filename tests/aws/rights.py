"""What each team may do: its calls to AWS (commands.yaml), and its rights in the cluster."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from k8s_charts import yaml_documents

PROJECT = Path(__file__).parents[2]
TABLE: dict[str, Any] = yaml.safe_load((PROJECT / "tests" / "aws" / "commands.yaml").read_text())
COMMANDS: dict[str, dict[str, Any]] = TABLE["commands"]
TEAMS = {"o": "operator", "t": "trainer", "r": "reader"}
VIEW = {
    (kind, verb)
    for kind in (
        "pods",
        "pods/log",
        "events",
        "jobs.batch",
        "persistentvolumeclaims",
        "configmaps",
        "services",
    )
    for verb in ("get", "list", "watch")
}
"""The part of AWS's AmazonEKSViewPolicy that is used here. Kubernetes' own `view` grants the
same.
"""


def row(words: list[str]) -> str:
    """Returns the table's longest command whose words are all in the command line, or an empty
    string.
    """
    return max((name for name in COMMANDS if set(name.split()) <= set(words)), key=len, default="")


@functools.cache
def cluster_rights(team: str) -> set[tuple[str, str]]:
    """Returns (resource, verb) pairs that `paddle-aws setup` and the access policy grant; resource:
    `jobs.batch`, `pods/log`.
    """
    given = set(VIEW) if team == "reader" else set()
    group = {"trainer": "paddle-deployers", "reader": "paddle-readers"}[team]
    for document in yaml_documents.template(
        "deployers.yaml",
        namespace="paddle",
        driver="efs.csi.aws.com",
        handle="x",
        attributes="!has(object.spec.csi.volumeAttributes)",
    ):
        if document["kind"] in ("Role", "ClusterRole") and document["metadata"]["name"] == group:
            given |= {
                (f"{kind}.{api}".rstrip("."), verb)
                for rule in document["rules"]
                for api in rule["apiGroups"]
                for kind in rule["resources"]
                for verb in rule["verbs"]
            }
    return given


IAM = {
    "s3:HeadObject": "s3:GetObject",
    "s3:HeadBucket": "s3:ListBucket",
    "s3:ListObjectsV2": "s3:ListBucket",
    "s3:ListBuckets": "s3:ListAllMyBuckets",
    "s3:GetBucketEncryption": "s3:GetEncryptionConfiguration",
    "s3:CreateMultipartUpload": "s3:PutObject",
    "s3:UploadPart": "s3:PutObject",
    "s3:CompleteMultipartUpload": "s3:PutObject",
    "tagging:GetResources": "tag:GetResources",
}
"""Calls whose IAM action has a different name."""
FREE = {"sts:GetCallerIdentity"}
"""Calls that IAM allows everybody."""
DONE_WITHOUT = {"ec2:DescribeSpotPriceHistory"}
"""Calls that `lock prices` does without if there are no credentials."""


def record_calls(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Returns a set that collects the IAM actions of all calls that boto3 makes from now on."""
    from botocore.client import BaseClient

    actions: set[str] = set()
    real = BaseClient._make_api_call

    def call(client: Any, operation: str, arguments: Any) -> Any:
        name = f"{client.meta.service_model.signing_name}:{operation}"
        actions.add(IAM.get(name, name))
        return real(client, operation, arguments)

    monkeypatch.setattr(BaseClient, "_make_api_call", call)
    return actions


PATH = re.compile(
    r"/(?:api|apis/(?P<api>[^/]+))/v[^/]+(?:/namespaces/(?P<namespace>[^/]+))?/(?P<kind>[a-z]+)(?:/[^/]+(?:/(?P<part>[a-z]+))?)?"
)
VERBS = {"DELETE": "delete", "PATCH": "patch"}
INSTALLED = {
    "customresourcedefinitions.apiextensions.k8s.io",
    "deployments.apps",
    "namespaces",
    "limitranges",
    "resourcequotas",
}
"""Resources that an administrator installs: the PaddleJob operator, and the namespace with its
limits (docs/people.md).
"""


def check(
    arguments: Sequence[str], calls: Iterable[str], requests: Iterable[tuple[str, str]]
) -> None:
    """Fails if a command made a call that tests/aws/commands.yaml lacks, or one that is refused to
    a team that may run it.
    """
    name = row(["paddle-aws", *arguments])
    if not name:
        return
    actions = {
        call["ask"][0] for part in COMMANDS[name]["calls"] for call in TABLE["calls"].get(part, ())
    }
    unknown = set(calls) - actions - FREE - DONE_WITHOUT
    assert not unknown, f"{name} calls {unknown}, which tests/aws/commands.yaml has not"
    for team in set(COMMANDS[name]["teams"]) - {"o"}:
        for method, address in requests:
            match = PATH.match(address.partition("?")[0])
            if match is None or {"-A", "--all-namespaces"} & set(arguments):
                continue
            resource = (
                match["kind"]
                + (f"/{match['part']}" if match["part"] else "")
                + (f".{match['api']}" if match["api"] else "")
            )
            verb = VERBS.get(
                method, "update" if method == "PUT" else "create" if method == "POST" else "get"
            )
            if resource not in INSTALLED:
                assert (resource, verb) in cluster_rights(TEAMS[team]), (
                    f"{name}: a {TEAMS[team]} may not {verb} {resource}"
                )

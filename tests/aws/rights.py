"""What each team may do, for tests: commands.yaml (calls to AWS) and the cluster's own rights."""

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
    for kind in ("pods", "pods/log", "events", "jobs.batch", "persistentvolumeclaims", "configmaps", "services")
    for verb in ("get", "list", "watch")
}
"""What is used here of AWS's AmazonEKSViewPolicy, and of Kubernetes' own `view`, which is the same."""


def row(words: list[str]) -> str:
    """The command of the table that a command line is: the one that shares most words with it; empty: none."""
    return max((name for name in COMMANDS if set(name.split()) <= set(words)), key=len, default="")


@functools.cache
def cluster_rights(team: str) -> set[tuple[str, str]]:
    """(resource, verb) that `paddle-aws setup` and the team's access policy give; resource: `jobs.batch`, `pods/log`."""
    given = set(VIEW) if team == "reader" else set()
    group = {"trainer": "paddle-deployers", "reader": "paddle-readers"}[team]
    for document in yaml_documents.template("deployers.yaml", namespace="paddle"):
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
    "s3:CreateMultipartUpload": "s3:PutObject",
    "s3:UploadPart": "s3:PutObject",
    "s3:CompleteMultipartUpload": "s3:PutObject",
    "tagging:GetResources": "tag:GetResources",
}
"""Calls whose IAM action has another name."""
FREE = {"sts:GetCallerIdentity"}
"""What IAM lets everybody call."""
DONE_WITHOUT = {"ec2:DescribeSpotPriceHistory"}
"""By `lock prices` where there are no credentials."""


def record_calls(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The IAM actions of the calls that boto3 makes from now on."""
    from botocore.client import BaseClient

    made: set[str] = set()
    real = BaseClient._make_api_call

    def call(client: Any, operation: str, arguments: Any) -> Any:
        name = f"{client.meta.service_model.signing_name}:{operation}"
        made.add(IAM.get(name, name))
        return real(client, operation, arguments)

    monkeypatch.setattr(BaseClient, "_make_api_call", call)
    return made


PATH = re.compile(
    r"/(?:api|apis/(?P<api>[^/]+))/v[^/]+(?:/namespaces/(?P<namespace>[^/]+))?/(?P<kind>[a-z]+)(?:/[^/]+(?:/(?P<part>[a-z]+))?)?"
)
VERBS = {"DELETE": "delete", "PATCH": "patch"}
INSTALLED = {"customresourcedefinitions.apiextensions.k8s.io", "deployments.apps", "namespaces", "limitranges", "resourcequotas"}
"""An administrator's: the PaddleJob operator, and the namespace with its limits (docs/people.md)."""


def check(arguments: Sequence[str], calls: Iterable[str], requests: Iterable[tuple[str, str]]) -> None:
    """Fails where a command made a call that tests/aws/commands.yaml has not, or that a team which may run it is refused."""
    name = row(["paddle-aws", *arguments])
    if not name:
        return
    known = {call["ask"][0] for part in COMMANDS[name]["calls"] for call in TABLE["calls"].get(part, ())}
    unknown = set(calls) - known - FREE - DONE_WITHOUT
    assert not unknown, f"{name} calls {unknown}, which tests/aws/commands.yaml has not"
    for team in set(COMMANDS[name]["teams"]) - {"o"}:
        for method, address in requests:
            found = PATH.match(address.partition("?")[0])
            if found is None or {"-A", "--all-namespaces"} & set(arguments):
                continue
            resource = (
                found["kind"] + (f"/{found['part']}" if found["part"] else "") + (f".{found['api']}" if found["api"] else "")
            )
            verb = VERBS.get(method, "update" if method == "PUT" else "create" if method == "POST" else "get")
            if resource not in INSTALLED:
                assert (resource, verb) in cluster_rights(TEAMS[team]), f"{name}: a {TEAMS[team]} may not {verb} {resource}"

"""What the policies of a deployed self-managed cluster allow machines and people, by the account's own simulation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rehearsal.cloud import Cloud

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[2]
VARIANT = PROJECT / "tests" / "aws" / "variants" / "self-managed-cluster.yaml"
RIGHTS: dict[str, list[str]] = yaml.safe_load(Path(__file__).with_name("rights.yaml").read_text())
SECRETS = ("server-token", "node-token", "ca-hash", *(f"kubeconfig/{team}" for team in ("operator", "trainer", "reader")))
OBJECTS = ("cluster/snapshots/etcd-1", "sources/data.txt")


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cloud, dict[str, tuple[str, str]]]]:
    """An account with the cluster, and the calls to be asked for: (action, ARN) by what they would do."""
    with Cloud(project=PROJECT, state=tmp_path_factory.mktemp("cloud"), extra={"CDK_VALIDATION": "false"}) as cloud:
        cloud.bootstrap(VARIANT)
        cloud.deploy(VARIANT, cloud.state / "outputs.json")
        outputs = json.loads((cloud.state / "outputs.json").read_text()).values()
        [bucket] = [one["BucketName"] for one in outputs if "BucketName" in one]
        asked = {f"delete {one['VolumeId']}": ("ec2:DeleteVolume", one["VolumeId"]) for one in volumes(cloud)}
        for name in SECRETS:
            arn = cloud.client("secretsmanager").describe_secret(SecretId=f"tutorial/{name}")["ARN"]
            asked[f"read {name}"] = ("secretsmanager:GetSecretValue", arn)
            asked[f"write {name}"] = ("secretsmanager:PutSecretValue", arn)
        for name in OBJECTS:
            asked[f"read {name}"] = ("s3:GetObject", f"arn:aws:s3:::{bucket}/{name}")
            asked[f"write {name}"] = ("s3:PutObject", f"arn:aws:s3:::{bucket}/{name}")
        yield cloud, asked


def volumes(cloud: Cloud) -> list[dict[str, Any]]:
    return list(cloud.client("ec2").describe_volumes()["Volumes"])


@pytest.mark.parametrize("word", RIGHTS)
def test_who_may_do_what(deployed: tuple[Cloud, dict[str, tuple[str, str]]], word: str) -> None:
    cloud, asked = deployed
    iam = cloud.client("iam")
    held = [one for one in iam.list_policies(Scope="Local")["Policies"] if word in one["PolicyName"]]
    versions = [iam.get_policy_version(PolicyArn=one["Arn"], VersionId=one["DefaultVersionId"]) for one in held]
    documents = [json.dumps(one["PolicyVersion"]["Document"]) for one in versions]
    assert documents

    def allowed(action: str, on: str) -> bool:
        found = iam.simulate_custom_policy(PolicyInputList=documents, ActionNames=[action], ResourceArns=[on])
        return bool(found["EvaluationResults"][0]["EvalDecision"] == "allowed")

    assert {what for what, call in asked.items() if allowed(*call)} == set(RIGHTS[word])

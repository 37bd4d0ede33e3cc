"""Plays the instance metadata of a self-managed cluster's nodes: the data job's pod has their role, where it reaches that far.

What the pod gets is read from the emulated account: the nodes' launch template lets the role reach pods (two hops), and
the role may read objects; a stack that forgets either fails here as it would on AWS. That the other pods are kept from
the metadata is the work of their NetworkPolicy, which one machine does not enforce: here they simply have none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rehearsal.cloud import Cloud
from rehearsal.identity import way_out


def node_role(cloud: Cloud, data_account: str) -> Callable[[str, str], Mapping[str, str]]:
    """A function of (namespace, service account) that gives the variables a pod of that account gets."""
    known: list[bool] = []

    def variables(namespace: str, account: str) -> Mapping[str, str]:
        if account != data_account:
            return {}
        if not known:
            known.append(any(_may_read(cloud, role) for role in _roles_within_reach(cloud)))
        return {**way_out(), **cloud.environment} if known[0] else {}

    return variables


def _roles_within_reach(cloud: Cloud) -> Iterator[str]:
    """Names of the roles of machines whose metadata pods reach."""
    ec2, iam = cloud.client("ec2"), cloud.client("iam")
    for template in ec2.describe_launch_templates()["LaunchTemplates"]:
        versions = ec2.describe_launch_template_versions(LaunchTemplateId=template["LaunchTemplateId"], Versions=["$Latest"])
        data = versions["LaunchTemplateVersions"][0]["LaunchTemplateData"]
        profile = data.get("IamInstanceProfile", {}).get("Arn")
        if profile and data.get("MetadataOptions", {}).get("HttpPutResponseHopLimit", 1) >= 2:
            found = iam.get_instance_profile(InstanceProfileName=profile.rpartition("/")[2])["InstanceProfile"]
            yield from (role["RoleName"] for role in found["Roles"])


def _may_read(cloud: Cloud, role: str) -> bool:
    iam = cloud.client("iam")
    for policy in iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"]:
        arn = policy["PolicyArn"]
        if arn.startswith("arn:aws:iam::aws:"):
            continue
        version = iam.get_policy(PolicyArn=arn)["Policy"]["DefaultVersionId"]
        document: dict[str, Any] = iam.get_policy_version(PolicyArn=arn, VersionId=version)["PolicyVersion"]["Document"]
        for statement in document["Statement"]:
            if "s3:GetObject" in statement["Action"] and "/sources/*" in str(statement["Resource"]):
                return True
    return False

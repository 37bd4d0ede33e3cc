"""A pod's AWS credentials: by EKS Pod Identity, or as a self-managed cluster's node by the instance metadata.

What a pod gets is read from the emulated account, so that a stack which forgets it fails here as it would on AWS: EKS
associates its account in its namespace, or the nodes' launch template lets their role reach pods (two hops), and the role
may read objects. That the other pods are kept from the metadata is the work of their NetworkPolicy, which one machine does
not enforce: here they simply have none. A pod with credentials also gets this machine's way out (proxy, certificates),
because its data may lie at an https:// address; the others talk to nobody but each other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rehearsal.cloud import Cloud

_WAY_OUT = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")


def way_out() -> dict[str, str]:
    """This machine's own way to the internet."""
    return {name: os.environ[name] for name in _WAY_OUT if name in os.environ}


def pod_identity(cloud: Cloud, cluster: str) -> Callable[[str, str], Mapping[str, str]]:
    """A function of (namespace, service account) that gives the variables a pod of that account gets."""
    client = cloud.client("eks")
    known: dict[tuple[str, str], Mapping[str, str]] = {}

    def variables(namespace: str, account: str) -> Mapping[str, str]:
        key = (namespace, account)
        if key not in known:
            found = client.list_pod_identity_associations(clusterName=cluster, namespace=namespace, serviceAccount=account)
            known[key] = {**way_out(), **cloud.environment} if found["associations"] else {}
        return known[key]

    return variables


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

"""Cluster and storage in another team's stack."""

import json
import re
import textwrap
from pathlib import Path

import cdk8s
import pytest
from aws_cdk import RemovalPolicy, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_lambda as lambda_
from aws_cdk.assertions import Match, Template
from constructs import Construct

from constructs_lib.eks.addon import PodIdentity
from constructs_lib.eks.cluster import TrainingCluster
from constructs_lib.eks.cluster_access import AccessLevel, ClusterAccess
from constructs_lib.storage.bucket import DataBucket
from constructs_lib.storage.file_system import SharedFileSystem


def test_a_cluster_in_a_strangers_stack(stranger: tuple[Stack, ec2.Vpc]) -> None:
    stack, vpc = stranger
    cluster = TrainingCluster(stack, "Cluster", vpc=vpc, cluster_name="theirs", oidc_provider=True)
    me = "arn:aws:iam::000000000000:role/me"
    ClusterAccess(stack, "Me", cluster=cluster, principal_arn=me, level=AccessLevel.ADMINISTER)
    PodIdentity(stack, "Pods", cluster=cluster, namespace="n", service_account="a")
    eks.Nodegroup(stack, "Nodes", cluster=cluster)
    template = Template.from_stack(stack)
    template.has_resource_properties("AWS::EKS::Nodegroup", {"Subnets": [{"Ref": Match.any_value()}] * 2})
    template.has_resource_properties("AWS::EKS::Cluster", {"ResourcesVpcConfig": {"EndpointPublicAccess": False}})
    template.resource_count_is("AWS::Lambda::Function", 0)


def test_its_docstring_says_how_manifests_reach_it(stranger: tuple[Stack, ec2.Vpc], tmp_path: Path) -> None:
    class Jobs(cdk8s.Chart):
        def __init__(self, scope: Construct, id: str) -> None:
            super().__init__(scope, id)
            cdk8s.ApiObject(self, "Account", api_version="v1", kind="ServiceAccount")

    stack, vpc = stranger
    layer = lambda_.LayerVersion.from_layer_version_arn(
        stack, "Layer", "arn:aws:lambda:eu-central-1:000000000000:layer:kubectl:1"
    )
    known = {
        "self": stack,
        "vpc": vpc,
        "layer": layer,
        "eks": eks,
        "cdk8s": cdk8s,
        "Jobs": Jobs,
        "TrainingCluster": TrainingCluster,
    }
    blocks = re.findall(r"::\n\n(.+?)\n\n(?=    \S)", TrainingCluster.__doc__ or "", re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        # CDK's own process has another working folder.
        exec(textwrap.dedent(block).replace("dist", str(tmp_path)), known)
    (written,) = tmp_path.glob("*.yaml")
    assert "kind: ServiceAccount" in written.read_text()
    applied = Template.from_stack(stack).find_resources("Custom::AWSCDK-EKS-KubernetesResource").values()
    kinds = [each["kind"] for resource in applied for each in json.loads(resource["Properties"]["Manifest"])]
    assert sorted(kinds) == ["Namespace", "ServiceAccount"]


def test_one_zone_is_refused(stranger: tuple[Stack, ec2.Vpc]) -> None:
    stack, vpc = stranger
    one = ec2.SubnetSelection(availability_zones=["eu-central-1a"])
    with pytest.raises(ValueError, match="is in 1 availability zone: EKS wants subnets in two at least"):
        TrainingCluster(stack, "Cluster", vpc=vpc, cluster_name="theirs", vpc_subnets=one)


def test_storage_in_a_strangers_stack(stranger: tuple[Stack, ec2.Vpc]) -> None:
    """Retained unless somebody says otherwise, and then emptied by one function alone; no ACL without our feature flags."""
    stack, vpc = stranger
    SharedFileSystem(stack, "Data", vpc=vpc)
    for id in ("Scratch", "More"):
        DataBucket(stack, id, removal_policy=RemovalPolicy.DESTROY)
    template = Template.from_stack(stack)
    template.has_resource("AWS::EFS::FileSystem", {"DeletionPolicy": "Retain"})
    template.resource_count_is("AWS::Lambda::Function", 1)
    template.resource_count_is("Custom::EmptyBucket", 4)
    assert "AccessControl" not in json.dumps(template.find_resources("AWS::S3::Bucket"))

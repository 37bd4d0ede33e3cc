"""The control plane: who reaches it, and what it leaves behind."""

import json
import re
import textwrap
from pathlib import Path
from typing import Any

import cdk8s
import pytest
from aws_cdk import Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_lambda as lambda_
from aws_cdk.assertions import Match, Template
from constructs import Construct

from constructs_lib.eks.addon import PodIdentity
from constructs_lib.eks.cluster import TrainingCluster
from constructs_lib.eks.cluster_access import AccessLevel, ClusterAccess
from k8s_charts.names import DATA_ACCOUNT


def test_the_endpoint_is_private_unless_ranges_are_named(shipped: Any, variant: Any) -> None:
    (cluster,) = shipped.resources("AWS::EKS::Cluster")
    access = cluster["ResourcesVpcConfig"]
    assert (access["EndpointPrivateAccess"], access["EndpointPublicAccess"]) == (True, False)
    (cluster,) = variant("self-managed").resources("AWS::EKS::Cluster")
    access = cluster["ResourcesVpcConfig"]
    assert (access["EndpointPrivateAccess"], access["PublicAccessCidrs"]) == (True, ["203.0.113.7/32"])


def test_logs_end_with_the_cluster(shipped: Any, otherwise: Any) -> None:
    """EKS would make the group itself and leave it: ours is there first and goes last."""
    ((name, group),) = shipped.whole("AWS::Logs::LogGroup", "cluster").items()
    assert group["Properties"]["LogGroupName"] == "/aws/eks/paddle/cluster"
    assert (group["DeletionPolicy"], group["Properties"]["RetentionInDays"]) == ("Delete", 90)
    (cluster,) = shipped.whole("AWS::EKS::Cluster").values()
    assert name in cluster["DependsOn"]
    (silent,) = otherwise.resources("AWS::EKS::Cluster")
    assert "Logging" not in silent


def test_no_function_and_no_custom_resource(each_variant: Any) -> None:
    for stack in ("access", "network", "cluster", "nodes", "watch"):
        types = [r["Type"] for r in each_variant.templates.get(stack, {}).get("Resources", {}).values()]
        assert [t for t in types if t.startswith(("Custom::", "AWS::Lambda", "AWS::CloudFormation::CustomResource"))] == []


def test_locked_versions_are_taken_where_none_is_named(otherwise: Any) -> None:
    versions = {addon["AddonName"]: addon.get("AddonVersion") for addon in otherwise.resources("AWS::EKS::Addon")}
    assert versions["coredns"] == "v1.0.0-locked"
    assert versions["vpc-cni"] == "v3.0.0-eksbuild.3"
    assert versions["kube-proxy"] is None, "the lock knows it for another Kubernetes version"


def test_the_oidc_provider_is_a_native_resource(variant: Any, shipped: Any) -> None:
    assert len(variant("self-managed").resources("AWS::IAM::OIDCProvider")) == 1
    assert shipped.resources("AWS::IAM::OIDCProvider") == []


def test_the_kubeconfig_works_for_who_deployed(shipped: Any) -> None:
    """CloudFormation's role made the cluster: without a role that has an entry nobody would get in."""
    command = json.dumps(shipped.templates["cluster"]["Outputs"]["KubeconfigCommand"]["Value"])
    assert "aws eks update-kubeconfig --name paddle --region us-west-2 --role-arn " in command
    assert "PeopleOperatorRole" in command


def test_levels_of_access(variant: Any) -> None:
    entries = variant("self-managed").resources("AWS::EKS::AccessEntry", "cluster")
    seen = {}
    for entry in entries:
        arn = entry["PrincipalArn"]
        who = arn.rpartition("/")[2] if isinstance(arn, str) else json.dumps(arn)
        (policy,) = entry["AccessPolicies"]
        name = json.dumps(policy["PolicyArn"]).rpartition("/")[2].split('"')[0]
        seen[who] = (name, policy["AccessScope"])
    everywhere, in_paddle = {"Type": "cluster"}, {"Type": "namespace", "Namespaces": ["paddle"]}
    assert seen["admin"] == ("AmazonEKSClusterAdminPolicy", everywhere)
    assert seen["deploy"] == ("AmazonEKSEditPolicy", in_paddle)
    assert seen["auditor"] == ("AmazonEKSViewPolicy", everywhere)
    # And the roles of the three teams.
    assert len(seen) == 6


def test_only_the_data_jobs_account_gets_rights(shipped: Any) -> None:
    (association,) = shipped.resources("AWS::EKS::PodIdentityAssociation")
    assert (association["Namespace"], association["ServiceAccount"]) == ("paddle", DATA_ACCOUNT)
    role = shipped.templates["cluster"]["Resources"][association["RoleArn"]["Fn::GetAtt"][0]]["Properties"]
    (trust,) = role["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Principal"] == {"Service": "pods.eks.amazonaws.com"}
    assert set(trust["Action"]) == {"sts:AssumeRole", "sts:TagSession"}
    (policy,) = [p for p in shipped.resources("AWS::IAM::ManagedPolicy", "cluster") if p["Description"] == "Reads training data"]
    assert [s["Action"] for s in policy["PolicyDocument"]["Statement"]] == ["s3:ListBucket", "s3:GetObject", "kms:Decrypt"]


def test_in_a_strangers_stack(stranger: tuple[Stack, ec2.Vpc]) -> None:
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

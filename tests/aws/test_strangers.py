"""Another team's stack: how parts work beside each other, and what is refused. test_alone.py tests
each part alone.
"""

from collections.abc import Callable
from typing import Any

import pytest
from aws_cdk import App, Environment, RemovalPolicies, RemovalPolicy, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_kms as kms
from aws_cdk.assertions import Match, Template
from constructs import Construct

from constructs_lib.ec2.node_shape import NodeShape
from constructs_lib.eks.cluster import TrainingCluster
from constructs_lib.eks.managed_nodes import ManagedNodes
from constructs_lib.eks.self_managed_nodes import SelfManagedNodes
from constructs_lib.k3s.cluster import SelfManagedCluster, SnapshotPlace
from constructs_lib.k3s.node_group import K3sNodeGroup
from constructs_lib.storage.bucket import DataBucket
from constructs_lib.storage.file_system import SharedFileSystem
from paddle_aws.stacks.k3s_cluster import release


@pytest.fixture
def stranger() -> tuple[Stack, ec2.Vpc]:
    """Another team's stack in their own app, with their own VPC and without our feature flags."""
    stack = Stack(App(analytics_reporting=False), "Theirs", env=Environment(region="eu-central-1"))
    return stack, ec2.Vpc(stack, "Vpc", availability_zones=["eu-central-1a", "eu-central-1b"])


def test_nodes_start_when_their_volume_can_be_mounted_and_cdks_own_beside_them(
    stranger: tuple[Stack, ec2.Vpc],
) -> None:
    stack, vpc = stranger
    cluster = TrainingCluster(stack, "Cluster", vpc=vpc, cluster_name="theirs")
    data = SharedFileSystem(stack, "Data", vpc=vpc)
    mount = {"security_groups": [data.client_security_group], "depends_on": [data.mount_targets]}
    ManagedNodes(stack, "Managed", cluster=cluster, vpc=vpc, **mount)
    SelfManagedNodes(stack, "Own", cluster=cluster, vpc=vpc, kubernetes_version="1.35", **mount)
    eks.Nodegroup(stack, "TheirNodes", cluster=cluster)
    template = Template.from_stack(stack)
    targets = set(template.find_resources("AWS::EFS::MountTarget"))
    groups = {
        kind: template.find_resources(f"AWS::{kind}")
        for kind in ("EKS::Nodegroup", "AutoScaling::AutoScalingGroup")
    }
    found = {name: group for made in groups.values() for name, group in made.items()}
    assert len(found) == 3
    for name, group in found.items():
        assert name.startswith("TheirNodes") or targets <= set(group["DependsOn"])
    template.has_resource_properties(
        "AWS::EKS::Cluster", {"ResourcesVpcConfig": {"EndpointPublicAccess": False}}
    )
    template.all_resources_properties(
        "AWS::EKS::Nodegroup", {"Subnets": [{"Ref": Match.any_value()}] * 2}
    )


def test_snapshots_are_sealed_with_the_key_of_their_bucket(
    stranger: tuple[Stack, ec2.Vpc], variant: Any
) -> None:
    """A restore decrypts the snapshots. The state is kept, and the address may be any of its
    subnet's.
    """
    stack, vpc = stranger
    runs = release(variant("self-managed-cluster").spec)
    arn = "arn:aws:kms:eu-central-1:123456789012:key/theirs"
    sealed = kms.Key.from_key_arn(stack, "TheirKey", arn)
    snapshots = SnapshotPlace(
        bucket_name="theirs", bucket_arn="arn:aws:s3:::theirs", encryption_key=sealed
    )
    cluster = SelfManagedCluster(
        stack, "Own", vpc=vpc, cluster_name="own", release=runs, snapshots=snapshots
    )
    K3sNodeGroup(stack, "Nodes", cluster=cluster, vpc=vpc, release=runs)
    template = Template.from_stack(stack)
    template.resource_count_is("AWS::EC2::EIPAssociation", 0)
    template.has_resource("AWS::EC2::Volume", {"DeletionPolicy": "Snapshot"})
    template.has_resource_properties(
        "AWS::EC2::NetworkInterface", {"PrivateIpAddress": Match.absent()}
    )
    policies = template.find_resources("AWS::IAM::ManagedPolicy").values()
    found = [
        statement
        for policy in policies
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]
    ]
    assert {statement["Action"] for statement in found if statement["Resource"] == arn} == {
        "kms:GenerateDataKey",
        "kms:Decrypt",
    }
    with pytest.raises(
        ValueError, match="CLUSTER_NAME is it's: a machine's variable holds no single quote"
    ):
        SelfManagedCluster(
            stack, "Misread", vpc=vpc, cluster_name="it's", release=runs, snapshots=snapshots
        )


EVERYBODY = ["0.0.0.0/1", "128.0.0.0/1"]
ONE_ZONE = ec2.SubnetSelection(availability_zones=["eu-central-1a"])


@pytest.mark.parametrize(
    ("made", "given", "sentence"),
    [
        (
            TrainingCluster,
            {"vpc_subnets": ONE_ZONE},
            "is in 1 availability zone: EKS wants subnets in two at least",
        ),
        (
            TrainingCluster,
            {"public_access_from": EVERYBODY},
            "the endpoint is never opened to everybody",
        ),
        (
            ManagedNodes,
            {"shape": NodeShape(key_pair="k", ssh_from=EVERYBODY)},
            "SSH is never opened to everybody",
        ),
        (ManagedNodes, {"shape": NodeShape(key_pair="k")}, "name who may connect"),
        (ManagedNodes, {"shape": NodeShape(mount_file_system="/efs")}, "name what the nodes mount"),
        (ManagedNodes, {"minimum_size": 4}, "Theirs/Made has no minimum_size"),
        (
            ManagedNodes,
            {"min_size": 4, "desired_size": 3},
            r"desired_size is 3, from min_size \(4\) to max_size \(6\) is allowed",
        ),
    ],
)
def test_what_cannot_be_is_refused(
    stranger: tuple[Stack, ec2.Vpc],
    made: Callable[..., Construct],
    given: dict[str, Any],
    sentence: str,
) -> None:
    stack, vpc = stranger
    if made is ManagedNodes:
        given = {
            **given,
            "cluster": TrainingCluster(stack, "Cluster", vpc=vpc, cluster_name="theirs"),
        }
    else:
        given = {**given, "cluster_name": "theirs"}
    with pytest.raises((TypeError, ValueError), match=sentence):
        made(stack, "Made", vpc=vpc, **given)


@pytest.mark.parametrize("whole_app", [False, True])
def test_a_bucket_that_is_kept_from_outside_is_not_emptied(
    stranger: tuple[Stack, ec2.Vpc], whole_app: bool
) -> None:
    """A company's rule for all buckets comes after ours: both at once would lose every object."""
    stack, _ = stranger
    bucket = DataBucket(stack, "Data", removal_policy=RemovalPolicy.DESTROY)
    if whole_app:
        kept = ["AWS::S3::Bucket"]
        RemovalPolicies.of(stack.node.root).retain(apply_to_resource_types=kept)
    else:
        bucket.apply_removal_policy(RemovalPolicy.RETAIN)
    with pytest.raises(
        RuntimeError, match=r"\[Theirs/Data\] removal_policy: .* set to Retain later"
    ):
        Template.from_stack(stack)

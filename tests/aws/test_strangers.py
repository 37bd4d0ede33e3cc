"""Another team's stack: how parts work beside each other, and what is refused. test_alone.py tests
each part alone.
"""

from collections.abc import Callable
from typing import Any

import pytest
from aws_cdk import (
    App,
    Aws,
    CfnParameter,
    Duration,
    Environment,
    Fn,
    RemovalPolicies,
    RemovalPolicy,
    Size,
    Stack,
    Stage,
)
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk.assertions import Match, Template
from constructs import Construct

from constructs_lib.ec2.machine import auto_mode_role
from constructs_lib.ec2.node_shape import NodeShape, NodeTaint
from constructs_lib.eks.addon import FsxDriver
from constructs_lib.eks.auto_mode import AutoModeNodes
from constructs_lib.eks.cluster import TrainingCluster
from constructs_lib.eks.cluster_access import AccessLevel, ClusterAccess
from constructs_lib.eks.managed_nodes import ManagedNodes
from constructs_lib.eks.self_managed_nodes import SelfManagedNodes
from constructs_lib.k3s.cluster import SelfManagedCluster, SnapshotPlace
from constructs_lib.k3s.node_group import K3sNodeGroup
from constructs_lib.network.endpoint_tunnel import EndpointTunnel
from constructs_lib.network.network import ServiceEndpoints, TrainingNetwork
from constructs_lib.people.team import Team
from constructs_lib.storage.bucket import DataBucket
from constructs_lib.storage.file_system import SharedFileSystem
from constructs_lib.storage.image_repository import ImageRepository
from constructs_lib.storage.log_group import EndingLogGroup
from constructs_lib.storage.lustre import LustreFileSystem
from constructs_lib.storage.shared_file_system import ISharedFileSystem
from constructs_lib.watch.dashboard import MonthlyBudget
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
    node_groups = {
        name: group for resources in groups.values() for name, group in resources.items()
    }
    assert len(node_groups) == 3
    for name, group in node_groups.items():
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
    statements = [
        statement
        for policy in policies
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]
    ]
    assert {statement["Action"] for statement in statements if statement["Resource"] == arn} == {
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
BLOCK = "cr-0123456789abcdef0"


def shape(**settings: Any) -> dict[str, Any]:
    return {"shape": NodeShape(**settings), "vpc_subnets": ONE_ZONE}


REFUSED: list[tuple[type[Construct], dict[str, Any], str]] = [
    (
        TrainingCluster,
        {"vpc_subnets": ONE_ZONE},
        "vpc_subnets is in 1 availability zone: EKS wants subnets in two zones at least",
    ),
    (
        TrainingCluster,
        {"public_access_from": EVERYBODY},
        "public_access_from is 0.0.0.0/1, 128.0.0.0/1: the endpoint is never opened to everybody",
    ),
    (
        TrainingCluster,
        {"public_access_from": ["::/0"]},
        "public_access_from is ::/0: allowed is an IPv4 range such as 10.0.0.0/16",
    ),
    (TrainingCluster, {"public_access_from": ["hello"]}, "is hello: allowed is an IPv4 range"),
    (
        TrainingCluster,
        {"public_access_from": "10.0.0.0/8"},
        "public_access_from is 10.0.0.0/8: allowed is a list, such as ['10.0.0.0/8']",
    ),
    (TrainingCluster, {"public_access_from": Aws.URL_SUFFIX}, "allowed is a list, such as"),
    (TrainingCluster, {"compute": "auto"}, "compute is auto: Made decides it: leave it out"),
    (TrainingCluster, {"log_days": 45}, "log_days is 45: allowed is 0, 1, 3, 5, 7, 14, 30"),
    (TrainingCluster, {"version": "36"}, "version is 36: allowed is text like 1.36"),
    (
        TrainingCluster,
        {"service_ipv4_cidr": "8.8.0.0/16"},
        "service_ipv4_cidr is 8.8.0.0/16: allowed is a private IPv4 range from /12 to /24",
    ),
    (ManagedNodes, shape(key_pair="k", ssh_from=EVERYBODY), "SSH is never opened to everybody"),
    (ManagedNodes, shape(key_pair="k"), "key_pair is k: name who may connect in shape.ssh_from"),
    (ManagedNodes, shape(mount_file_system="/efs"), "name what the nodes mount"),
    (ManagedNodes, shape(mount_file_system="/usr"), "that is the system's"),
    (ManagedNodes, {"minimum_size": 4}, "has no minimum_size"),
    (
        ManagedNodes,
        {"min_size": 4, "desired_size": 3},
        "desired_size is 3: allowed is min_size (4) to max_size (6)",
    ),
    (ManagedNodes, {"min_size": -1}, "min_size is -1: allowed is at least 0"),
    (ManagedNodes, {"min_size": 0, "max_size": 0}, "max_size is 0: allowed is at least 1"),
    (
        ManagedNodes,
        shape(instance_types="m5.large"),
        "shape.instance_types is m5.large: allowed is a list, such as ['m5.large']",
    ),
    (
        ManagedNodes,
        shape(instance_types=["m7g.large"]),
        "shape.instance_types is m7g.large: AL2023_x86_64_STANDARD is for x86-64",
    ),
    (
        ManagedNodes,
        shape(gpu=True),
        "shape.instance_types is m5.large: shape.gpu is true: allowed are NVIDIA types",
    ),
    (
        ManagedNodes,
        shape(efa=True),
        "shape.instance_types is m5.large: shape.efa is true, and it has no Elastic Fabric",
    ),
    (
        ManagedNodes,
        {"shape": NodeShape(efa=True, instance_types=["c5n.18xlarge"])},
        "shape.efa is true: it works within one zone: name exactly one in vpc_subnets",
    ),
    (
        ManagedNodes,
        shape(capacity_block=True),
        "shape.capacity_block is true: it wants shape.capacity_reservation",
    ),
    (
        SelfManagedNodes,
        shape(capacity_block=True, capacity_reservation=BLOCK),
        "shape.capacity_block is true: it wants shape.capacity_reservation, kind managed",
    ),
    (ManagedNodes, shape(volume_gib=5), "shape.volume_gib is 5: allowed is 20 to 16384"),
    (
        ManagedNodes,
        shape(taints=[NodeTaint("a", effect="noschedule")]),  # type: ignore[arg-type]
        "shape.taints.a.effect is noschedule: allowed are NoSchedule, PreferNoSchedule",
    ),
    (ManagedNodes, shape(labels={"k8s.io/x": "y"}), "kubelets may not set labels of k8s.io"),
    (AutoModeNodes, {"shapes": {"w": NodeShape(gpu=True)}}, "shapes.w.instance_types is m5.large"),
    (SharedFileSystem, {"posix_id": -5}, "posix_id is -5: allowed is 1 to 4294967295"),
    (
        LustreFileSystem,
        {"storage_capacity_gib": 3600},
        "storage_capacity_gib is 3600: allowed is 1200, or a multiple of 2400",
    ),
    (
        LustreFileSystem,
        {"per_unit_storage_throughput": 200},
        "per_unit_storage_throughput is 200: allowed is 125, 250, 500 or 1000",
    ),
    (DataBucket, {"versioned": False}, "versioned is false: Made decides it: leave it out"),
    (SharedFileSystem, {"encrypted": False}, "encrypted is false: Made decides it: leave it out"),
    (TrainingNetwork, {"availability_zones": ["a"], "enable_dns_support": False}, "decides it"),
    (
        SharedFileSystem,
        {"provisioned_throughput_per_second": Size.mebibytes(9)},
        "provisioned_throughput_per_second is set: allowed with throughput_mode PROVISIONED only",
    ),
    (DataBucket, {"keep_logs_days": 0}, "keep_logs_days is 0: allowed is at least 1"),
    (ImageRepository, {"keep_images": 0}, "keep_images is 0: allowed is at least 1"),
    (EndingLogGroup, {"days": 45}, "days is 45: allowed is 1, 3, 5, 7"),
    (
        TrainingNetwork,
        {"availability_zones": ["us-west-2a"], "nat_gateways": -1},
        "nat_gateways is -1: allowed is 0, 1, or 1 (one for each of availability_zones)",
    ),
    (
        TrainingNetwork,
        {"availability_zones": ["us-west-2a"], "cidr": Aws.URL_SUFFIX},
        "cidr is a token: allowed is an IPv4 range",
    ),
    (TrainingNetwork, {"availability_zones": "us-west-2a"}, "allowed is a list, such as"),
    (MonthlyBudget, {"emails": []}, "emails is a list of 0: allowed are 1 to 10 addresses"),
    (MonthlyBudget, {"emails": [f"a{n}@b.de" for n in range(11)]}, "emails is a list of 11"),
    (MonthlyBudget, {"emails": ["me"]}, "emails is me: allowed is an address"),
    (ClusterAccess, {"level": "READ"}, "level is READ: allowed are AccessLevel.ADMINISTER"),
    (SelfManagedCluster, {"instance_type": "t4g.small"}, "allowed is an x86-64 EC2 instance type"),
    (SelfManagedCluster, {"host_ports": ["7-1"]}, "host_ports is 7-1: allowed are ports"),
]
NEEDS: dict[Any, tuple[str, ...]] = {
    TrainingCluster: ("vpc", "cluster_name"),
    ManagedNodes: ("vpc", "cluster"),
    SelfManagedNodes: ("vpc", "cluster", "kubernetes_version"),
    AutoModeNodes: ("vpc", "cluster", "role"),
    SharedFileSystem: ("vpc",),
    LustreFileSystem: ("vpc",),
    MonthlyBudget: ("usd", "tag"),
    ClusterAccess: ("cluster", "principal_arn"),
    SelfManagedCluster: ("vpc", "cluster_name", "release", "snapshots"),
}


@pytest.mark.parametrize(
    ("construct", "props", "sentence"), REFUSED, ids=[line[2][:50] for line in REFUSED]
)
def test_what_cluster_yaml_refuses_is_refused_at_the_constructs_door(
    stranger: tuple[Stack, ec2.Vpc],
    construct: Callable[..., Construct],
    props: dict[str, Any],
    sentence: str,
    variant: Any,
) -> None:
    stack, vpc = stranger
    given: dict[str, Callable[[], Any]] = {
        "vpc": lambda: vpc,
        "cluster_name": lambda: "theirs",
        "cluster": lambda: TrainingCluster(stack, "Cluster", vpc=vpc, cluster_name="theirs"),
        "kubernetes_version": lambda: "1.36",
        "role": lambda: auto_mode_role(stack, "Role"),
        "usd": lambda: 5,
        "tag": lambda: ("team", "theirs"),
        "principal_arn": lambda: "arn:aws:iam::111122223333:role/them",
        "release": lambda: release(variant("self-managed-cluster").spec),
        "snapshots": lambda: SnapshotPlace("theirs", "arn:aws:s3:::theirs"),
    }
    needs = {name: given[name]() for name in NEEDS.get(construct, ())}
    with pytest.raises((TypeError, ValueError)) as caught:
        construct(stack, "Made", **needs, **props)
    assert sentence in str(caught.value)
    assert str(caught.value).startswith("Theirs/Made")


def test_what_only_the_deploy_knows_is_taken(stranger: tuple[Stack, ec2.Vpc]) -> None:
    stack, _ = stranger
    zones = Fn.split(",", Fn.import_value("zones"))
    subnets = Fn.split(",", Fn.import_value("subnets"))
    vpc = ec2.Vpc.from_vpc_attributes(
        stack, "Listed", vpc_id="vpc-1", availability_zones=zones, private_subnet_ids=subnets
    )
    most = CfnParameter(stack, "Most", type="Number").value_as_number
    kind = CfnParameter(stack, "Kind").value_as_string
    office = CfnParameter(stack, "Office").value_as_string
    cluster = TrainingCluster(
        stack, "Cluster", vpc=vpc, cluster_name="theirs", public_access_from=[office]
    )
    props: dict[str, Any] = {"max_size": most, "shape": NodeShape(instance_types=[kind], efa=True)}
    ManagedNodes(stack, "Managed", cluster=cluster, vpc=vpc, **props)
    SelfManagedNodes(stack, "Own", cluster=cluster, vpc=vpc, kubernetes_version="1.36", **props)
    MonthlyBudget(stack, "Budget", usd=5, tag=("a", "b"), emails=[office])
    template = Template.from_stack(stack)
    template.has_resource_properties(
        "AWS::EKS::Nodegroup",
        {
            "ScalingConfig": {"MinSize": 1, "DesiredSize": 3, "MaxSize": {"Ref": "Most"}},
            "InstanceTypes": [{"Ref": "Kind"}],
        },
    )
    template.has_resource_properties(
        "AWS::AutoScaling::AutoScalingGroup", {"MinSize": "1", "MaxSize": {"Ref": "Most"}}
    )


def test_no_endpoint_is_made_where_none_is_named(stranger: tuple[Stack, ec2.Vpc]) -> None:
    stack, vpc = stranger
    ServiceEndpoints(stack, "Endpoints", vpc=vpc, services={})
    Template.from_stack(stack).resource_count_is("AWS::EC2::VPCEndpoint", 0)


def test_parts_are_what_the_cdks_methods_take(stranger: tuple[Stack, ec2.Vpc]) -> None:
    """Rights go to a team and to nodes, connections to nodes, as to the CDK's own constructs."""
    stack, vpc = stranger
    cluster = TrainingCluster(stack, "Cluster", vpc=vpc, cluster_name="theirs")
    data = SharedFileSystem(stack, "Data", vpc=vpc)
    efa = NodeShape(efa=True, instance_types=["c5n.18xlarge"])
    groups = [
        ManagedNodes(stack, "Managed", cluster=cluster, vpc=vpc),
        ManagedNodes(stack, "Fabric", cluster=cluster, vpc=vpc, shape=efa, vpc_subnets=ONE_ZONE),
        SelfManagedNodes(stack, "Own", cluster=cluster, vpc=vpc, kubernetes_version="1.36"),
    ]
    bucket = s3.Bucket(stack, "Bucket")
    team = Team(stack, "Team", task="Looks at theirs")
    for grantee in (team, *groups):
        bucket.grant_read(grantee)
    for group in groups:
        data.connections.allow_default_port_from(group)
    template = Template.from_stack(stack)
    sources = template.find_resources(
        "AWS::EC2::SecurityGroupIngress", {"Properties": {"FromPort": 2049}}
    )
    names = str(sources)
    assert all(f"{group.node.id}SecurityGroup" in names for group in groups)
    for name, launched in template.find_resources("AWS::EC2::LaunchTemplate").items():
        assert f"{name.partition('Template')[0]}SecurityGroup" in str(launched)
    policies = template.find_resources(
        "AWS::IAM::ManagedPolicy", {"Properties": {"Description": "Looks at theirs: granted"}}
    )
    (policy,) = policies.values()
    assert "s3:GetObject*" in str(policy) and policy["Properties"]["Groups"]
    reads = [
        policy
        for policy in template.find_resources("AWS::IAM::Policy").values()
        if "s3:GetObject*" in str(policy)
    ]
    assert len(reads) == 3


PASSED_THROUGH = {
    "EKS::Cluster": {"Tags": Match.array_with([{"Key": "cost", "Value": "7"}])},
    "EFS::FileSystem": {"FileSystemTags": Match.array_with([{"Key": "Name", "Value": "genomes"}])},
    "EC2::VPC": {"Tags": Match.array_with([{"Key": "Name", "Value": "theirs"}])},
    "S3::Bucket": {
        "BucketName": "their-data",
        "LifecycleConfiguration": {
            "Rules": [
                Match.object_like({"ExpiredObjectDeleteMarker": True}),
                {"ExpirationInDays": 9, "Status": "Enabled"},
            ]
        },
    },
    "AutoScaling::AutoScalingGroup": {"MetricsCollection": Match.any_value()},
    "IAM::ManagedPolicy": {"Groups": ["them"], "Roles": ["them"]},
    "CloudWatch::Alarm": {"Namespace": "AWS/S3", "Period": 86400},
}


def test_what_we_do_not_decide_goes_through_to_the_cdk(stranger: tuple[Stack, ec2.Vpc]) -> None:
    stack, _ = stranger
    isolated = ec2.SubnetConfiguration(
        name="database", subnet_type=ec2.SubnetType.PRIVATE_ISOLATED, cidr_mask=24
    )
    network = TrainingNetwork(
        stack,
        "Network",
        availability_zones=["eu-central-1a", "eu-central-1b"],
        vpc_name="theirs",
        more_subnets=[isolated],
    )
    cluster = TrainingCluster(
        stack, "Cluster", vpc=network.vpc, cluster_name="theirs", tags={"cost": "7"}
    )
    arm = NodeShape(instance_types=["m7g.large"])
    workers = cluster.add_node_group(
        "arm",
        shape=arm,
        ami_type="AL2023_ARM_64_STANDARD",
        extra_user_data="sysctl -w vm.max_map_count=262144",
    )
    cluster.add_addon("coredns").node.add_dependency(workers.resource)
    self_managed = SelfManagedNodes(
        stack,
        "Own",
        cluster=cluster,
        vpc=network.vpc,
        kubernetes_version="1.36",
        shape=arm,
        ami_type="AL2023_ARM_64_STANDARD",
    )
    data = SharedFileSystem(stack, "Data", vpc=network.vpc, file_system_name="genomes")
    bucket = DataBucket(
        stack,
        "Bucket",
        bucket_name="their-data",
        lifecycle_rules=[s3.LifecycleRule(expiration=Duration.days(9))],
    )
    for number, metric in enumerate(
        [
            data.metric_percent_io_limit(),
            bucket.metric_size_bytes(),
            cluster.metric_node_count(),
            self_managed.metric_in_service(),
        ]
    ):
        metric.create_alarm(stack, f"Alarm{number}", threshold=1, evaluation_periods=1)
    with pytest.raises(TypeError, match="arm has no metric GroupInServiceInstances: EKS makes"):
        workers.metric_in_service()
    team = Team.from_group_and_role(
        stack,
        "Theirs",
        task="Theirs",
        group_name="them",
        role_arn="arn:aws:iam::111122223333:role/them",
    )
    bucket.grant_read(team)
    imported = TrainingNetwork.from_vpc(stack, "Existing", vpc=network.vpc)
    assert len(imported.private_subnets.subnets or ()) == 2
    template = Template.from_stack(stack)
    template.has_resource_properties(
        "AWS::EKS::Nodegroup",
        {"AmiType": "AL2023_ARM_64_STANDARD", "InstanceTypes": ["m7g.large"]},
    )
    for kind, props in PASSED_THROUGH.items():
        template.has_resource_properties(f"AWS::{kind}", props)
    machines = str(template.find_resources("AWS::EC2::LaunchTemplate"))
    assert "sysctl -w vm.max_map_count=262144" in machines
    assert "amazon-linux-2023/arm64/standard/recommended/image_id" in machines
    assert template.find_resources("AWS::EKS::Addon", {"DependsOn": Match.any_value()})


def test_lustre_is_mounted_by_nodes_that_carry_its_client_group(
    stranger: tuple[Stack, ec2.Vpc],
) -> None:
    """It fits where our EFS fits. FSx refuses to make it before the rules of its servers stand."""
    stack, vpc = stranger
    key = kms.Key(stack, "Key")
    bucket = DataBucket(stack, "Bucket", encryption_key=key)
    lustre = LustreFileSystem(stack, "Scratch", vpc=vpc, storage_capacity_gib=2400)
    lustre.add_data_repository("Bucket", bucket, bucket_key=key)
    shared: ISharedFileSystem = lustre
    efs: ISharedFileSystem = SharedFileSystem(stack, "Data", vpc=vpc)
    assert efs.volume_source.keys() >= {"file_system_id", "access_point_id"}
    cluster = TrainingCluster(stack, "Cluster", vpc=vpc, cluster_name="theirs")
    FsxDriver(stack, "FsxDriver", cluster=cluster)
    cluster.add_node_group(
        "workers",
        security_groups=[shared.client_security_group],
        depends_on=[shared.mount_targets],
        extra_user_data=lustre.prepare_script,
    )
    template = Template.from_stack(stack)
    ((name, system),) = template.find_resources("AWS::FSx::FileSystem").items()
    assert system["DeletionPolicy"] == system["UpdateReplacePolicy"] == "Retain"
    assert len(system["Properties"]["SubnetIds"]) == 1
    rules = {
        id: rule["Properties"]
        for kind in ("Ingress", "Egress")
        for id, rule in template.find_resources(f"AWS::EC2::SecurityGroup{kind}").items()
        if id.startswith("Scratch")
    }
    assert {(rule["FromPort"], rule["ToPort"]) for rule in rules.values()} == {
        (988, 988),
        (1018, 1023),
    }
    assert rules.keys() <= set(system["DependsOn"])
    (group,) = template.find_resources("AWS::EKS::Nodegroup").values()
    assert name in group["DependsOn"]
    machine = str(template.find_resources("AWS::EC2::LaunchTemplate"))
    assert "mount -t lustre" in machine and "LustreMountName" in machine
    template.has_resource_properties(
        "AWS::FSx::DataRepositoryAssociation",
        {"S3": {"AutoExportPolicy": Match.absent(), "AutoImportPolicy": Match.any_value()}},
    )
    assert "s3.data-source.lustre.fsx" in str(template.find_resources("AWS::KMS::Key"))


def test_a_group_of_nodes_keeps_its_logical_id_in_a_stage(variant: Any) -> None:
    """Its Auto Scaling group has a fixed name, which a second logical id would find taken."""
    runs = release(variant("self-managed-cluster").spec)

    def ids(scope: Construct) -> set[str]:
        stack = Stack(scope, "theirs-nodes", stack_name="theirs-nodes")
        vpc = ec2.Vpc(stack, "Vpc")
        place = SnapshotPlace("theirs", "arn:aws:s3:::theirs")
        cluster = SelfManagedCluster(
            stack, "Own", vpc=vpc, cluster_name="own", release=runs, snapshots=place
        )
        K3sNodeGroup(stack, "workers", cluster=cluster, vpc=vpc, release=runs, group_name="w")
        return set(Template.from_stack(stack).find_resources("AWS::AutoScaling::AutoScalingGroup"))

    app = App(analytics_reporting=False)
    assert ids(app) == ids(Stage(app, "Production"))


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


def test_a_vpc_that_is_not_looked_up_yet_is_not_judged() -> None:
    """The first synth has a stand-in, whose subnets have other names."""
    env = Environment(account="1" * 12, region="us-west-2")
    stack = Stack(App(analytics_reporting=False), "Theirs", env=env)
    vpc = ec2.Vpc.from_lookup(stack, "Vpc", vpc_id="vpc-0123456789abcdef0")
    chosen = ec2.SubnetSelection(subnet_group_name="workload-private")
    cluster = TrainingCluster(stack, "Cluster", vpc=vpc, vpc_subnets=chosen, cluster_name="theirs")
    cluster.add_node_group("workers", vpc_subnets=chosen)
    SharedFileSystem(stack, "Data", vpc=vpc, vpc_subnets=chosen)


def test_isolated_nodes_without_endpoints_are_annotated() -> None:
    app = App(analytics_reporting=False)
    stack = Stack(app, "Theirs", env=Environment(region="us-west-2"))
    only = ec2.SubnetConfiguration(name="only", subnet_type=ec2.SubnetType.PRIVATE_ISOLATED)
    closed = [
        ec2.Vpc(stack, id, max_azs=2, nat_gateways=0, subnet_configuration=[only])
        for id in ("Bare", "Reached")
    ]
    for vpc in closed:
        cluster = TrainingCluster(stack, f"{vpc.node.id}Cluster", vpc=vpc, cluster_name="c")
        cluster.add_node_group("workers")
    ServiceEndpoints(stack, "Endpoints", vpc=closed[1])
    closed[1].add_gateway_endpoint("S3", service=ec2.GatewayVpcEndpointAwsService.S3)
    app.synth()
    warned = {
        construct.node.path: str(entry.data)
        for construct in stack.node.find_all()
        for entry in construct.node.metadata
        if "paddle-aws:isolated-subnets" in str(entry.data)
    }
    assert list(warned) == ["Theirs/BareCluster/workers"]
    assert "no endpoint of s3, ec2, eks, eks-auth, ecr.api, " in warned.popitem()[1]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda t, v: TrainingCluster(t, "C", vpc=v, cluster_name="a b/c"),
            "cluster_name is a b",
        ),
        (lambda t, v: TrainingCluster(t, "C", vpc=v, cluster_name="c" * 101), "cluster_name is cc"),
        (
            lambda t, v: SharedFileSystem(t, "D", vpc=v, path="data"),
            "path is data: allowed",
        ),
        (
            lambda t, v: TrainingCluster(t, "C", vpc=v, cluster_name="c").add_addon(
                "coredns", configuration=["a"]
            ),
            "configuration is .*: allowed is a mapping",
        ),
        (
            lambda t, v: ManagedNodes(
                t,
                "N",
                cluster=TrainingCluster(t, "C", vpc=v, cluster_name="c"),
                vpc=v,
                shape={"spot": True},
            ),
            r"shape is \{'spot': True\}: allowed is a NodeShape",
        ),
        (
            lambda t, v: ManagedNodes(
                t,
                "N",
                cluster=TrainingCluster(t, "C", vpc=v, cluster_name="c"),
                vpc=v,
                shape=NodeShape(instance_types=[ec2.InstanceType("m5.large")]),
            ),
            "shape.instance_types is of InstanceType: allowed is text such as m5.large",
        ),
        (lambda t, v: ManagedNodes(t, "N", cluster="c", vpc=v), "cluster is c: allowed is a clust"),
        (
            lambda t, v: EndpointTunnel(t, "T", vpc=v, host="a'b", port=99999, document_name="d d"),
            "host is a'b: .*\n.*port is 99999: allowed is 1 to 65535\n.*document_name is d d",
        ),
        (
            lambda t, v: ClusterAccess(
                t,
                "A",
                cluster=TrainingCluster(t, "C", vpc=v, cluster_name="c"),
                principal_arn="x",
                level=AccessLevel.READ,
                namespaces=["My NS"],
            ),
            "principal_arn is x: .*\n.*namespaces is My NS: ",
        ),
        (lambda t, v: ImageRepository(t, "I", keep_tags=["a b"]), "keep_tags is a b: allowed"),
        (
            lambda t, v: DataBucket(t, "B", removal_policy=RemovalPolicy.SNAPSHOT),
            "removal_policy is SNAPSHOT: CloudFormation makes no snapshot",
        ),
        (
            lambda t, v: TrainingNetwork(t, "N", availability_zones=[]),
            "availability_zones is empty: allowed is at least one",
        ),
    ],
)
def test_what_a_deploy_would_refuse_is_refused_at_synth(
    make: Callable[[Stack, Any], Any],
    sentence: str,
    stranger: tuple[Stack, ec2.Vpc],
) -> None:
    with pytest.raises(ValueError, match=f"^Theirs/.*: {sentence}"):
        make(*stranger)

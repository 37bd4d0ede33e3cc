"""Each construct alone in a stranger's stack: no feature flag of ours, no region, no account, twice, and again in a stage."""

import functools
import importlib
import inspect
import json
import pkgutil
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, RemovalPolicy, Stack, Stage
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_kms as kms
from aws_cdk import aws_route53 as route53
from aws_cdk import aws_s3 as s3
from constructs import Construct

import constructs_lib
from constructs_lib.eks.addon import ClusterAddon, ContainerLogs, EfsDriver, PodIdentity
from constructs_lib.eks.cluster import TrainingCluster
from constructs_lib.eks.cluster_access import AccessLevel, ClusterAccess, EndpointName
from constructs_lib.eks.managed_nodes import ManagedNodes
from constructs_lib.eks.self_managed_nodes import SelfManagedNodes
from constructs_lib.k3s.cluster import SelfManagedCluster, SnapshotPlace
from constructs_lib.k3s.cluster_firewall import ClusterFirewall
from constructs_lib.k3s.cluster_secrets import ClusterSecrets
from constructs_lib.k3s.node_group import K3sNodeGroup
from constructs_lib.k3s.release import MachineFile, Release
from constructs_lib.k3s.state_volume import StateVolume
from constructs_lib.network.endpoint_tunnel import EndpointTunnel
from constructs_lib.network.network import FlowLogs, ServiceEndpoints, TrainingNetwork
from constructs_lib.people.team import Team
from constructs_lib.storage.bucket import DataBucket
from constructs_lib.storage.file_system import MountableFileSystem, SharedFileSystem
from constructs_lib.storage.image_repository import ImageRepository
from constructs_lib.storage.key import EncryptionKey, EndingLogGroup
from constructs_lib.watch.dashboard import ClusterDashboard, MonthlyBudget

pytestmark = pytest.mark.slow

# The distribution's own files are never read at synth.
DISTRIBUTION = {name: MachineFile(Path(__file__), "0" * 64) for name in ("k3s", "k3s-airgap-images-amd64.tar.zst")}
RELEASE = Release(version="v1.35.0+k3s1", files=DISTRIBUTION, images={})


class Theirs:
    """What a stranger has already: a VPC of the same stack and one of somebody else's, a cluster, a key."""

    def __init__(self, scope: Construct, id: str) -> None:
        self.stack = Stack(scope, id)

    @functools.cached_property
    def vpc(self) -> ec2.IVpc:
        """Its zones and ids are not known at synth."""
        return ec2.Vpc(self.stack, "Vpc", max_azs=2)

    @functools.cached_property
    def key(self) -> kms.IKey:
        return kms.Key(self.stack, "Key")

    @functools.cached_property
    def imported_vpc(self) -> ec2.IVpc:
        return ec2.Vpc.from_vpc_attributes(
            self.stack,
            "ImportedVpc",
            vpc_id="vpc-0123456789abcdef0",
            vpc_cidr_block="10.9.0.0/16",
            availability_zones=["eu-central-1a", "eu-central-1b"],
            private_subnet_ids=["subnet-0123456789abcdef0", "subnet-0123456789abcdef1"],
        )

    @functools.cached_property
    def cluster(self) -> eks.ICluster:
        return eks.Cluster.from_cluster_attributes(
            self.stack,
            "Cluster",
            cluster_name="theirs",
            cluster_endpoint="https://theirs.example",
            cluster_certificate_authority_data="QUJD",
            cluster_security_group_id="sg-0123456789abcdef0",
            vpc=self.imported_vpc,
        )


Make = Callable[[Theirs, str], Any]


def _existing_file_system(theirs: Theirs, id: str, vpc: ec2.IVpc) -> MountableFileSystem:
    group = ec2.SecurityGroup.from_security_group_id(theirs.stack, f"{id}Group", "sg-0123456789abcdef1")
    subnets = vpc.select_subnets().subnets
    return SharedFileSystem.from_file_system_attributes(
        theirs.stack,
        id,
        vpc=vpc,
        file_system_id="fs-0123456789abcdef0",
        security_group=group,
        missing_mount_targets=subnets,
    )


def _self_managed(theirs: Theirs, id: str) -> SelfManagedCluster:
    bucket = s3.Bucket(theirs.stack, f"{id}Snapshots")
    place = SnapshotPlace(bucket.bucket_name, bucket.bucket_arn)
    return SelfManagedCluster(theirs.stack, id, vpc=theirs.vpc, cluster_name=id.lower(), release=RELEASE, snapshots=place)


ALONE: dict[str, Make] = {
    "access": lambda t, id: ClusterAccess(
        t.stack, id, cluster=t.cluster, principal_arn=f"arn:aws:iam::111122223333:role/{id}", level=AccessLevel.READ
    ),
    "addon": lambda t, id: ClusterAddon(t.stack, id, cluster=t.cluster, addon_name="coredns"),
    "bucket": lambda t, id: DataBucket(t.stack, id),
    "bucket-their-key": lambda t, id: DataBucket(t.stack, id, encryption_key=t.key, removal_policy=RemovalPolicy.DESTROY),
    "budget": lambda t, id: MonthlyBudget(t.stack, id, usd=5, emails=["a@b.de"], tag=("team", "theirs")),
    "cluster": lambda t, id: TrainingCluster(t.stack, id, vpc=t.vpc, cluster_name=id.lower(), encryption_key=t.key),
    "cluster-imported-vpc": lambda t, id: TrainingCluster(t.stack, id, vpc=t.imported_vpc, cluster_name=id.lower()),
    "container-logs": lambda t, id: ContainerLogs(t.stack, id, cluster=t.cluster, cluster_name=id.lower(), days=30),
    "dashboard": lambda t, id: ClusterDashboard(
        t.stack, id, cluster_name="theirs", file_system_id="fs-0", emails=["a@b.de"], encryption_key=t.key
    ),
    "efs-driver": lambda t, id: EfsDriver(t.stack, id, cluster=t.cluster),
    "endpoint-name": lambda t, id: EndpointName(
        t.stack,
        id,
        zone=route53.HostedZone.from_hosted_zone_attributes(t.stack, f"{id}Zone", hosted_zone_id="Z0", zone_name="theirs"),
        cluster=t.cluster,
    ),
    "endpoints": lambda t, id: ServiceEndpoints(t.stack, id, vpc=t.vpc),
    "endpoints-imported-vpc": lambda t, id: ServiceEndpoints(t.stack, id, vpc=t.imported_vpc),
    "file-system": lambda t, id: SharedFileSystem(t.stack, id, vpc=t.vpc, encryption_key=t.key),
    "file-system-imported-vpc": lambda t, id: SharedFileSystem(t.stack, id, vpc=t.imported_vpc),
    "file-system-existing": lambda t, id: _existing_file_system(t, id, t.imported_vpc),
    "file-system-existing-new-vpc": lambda t, id: _existing_file_system(t, id, t.vpc),
    "firewall": lambda t, id: ClusterFirewall(t.stack, id, vpc=t.vpc),
    "flow-logs": lambda t, id: FlowLogs(t.stack, id, vpc=t.imported_vpc, encryption_key=t.key),
    "images": lambda t, id: ImageRepository(t.stack, id),
    "joining-nodes": lambda t, id: K3sNodeGroup(
        t.stack, id, cluster=_self_managed(t, f"{id}Cluster"), vpc=t.vpc, release=RELEASE, encryption_key=t.key
    ),
    "key": lambda t, id: EncryptionKey(t.stack, id),
    "log-group": lambda t, id: EndingLogGroup(t.stack, id, days=30, encryption_key=t.key),
    "managed-nodes": lambda t, id: ManagedNodes(t.stack, id, cluster=t.cluster, vpc=t.imported_vpc, encryption_key=t.key),
    "managed-nodes-our-cluster": lambda t, id: ManagedNodes(
        t.stack, id, vpc=t.vpc, cluster=TrainingCluster(t.stack, f"{id}Cluster", vpc=t.vpc, cluster_name=id.lower())
    ),
    "network": lambda t, id: TrainingNetwork(t.stack, id, availability_zones=["eu-central-1a", "eu-central-1b"]),
    "pod-identity": lambda t, id: s3.Bucket(t.stack, f"{id}Bucket", encryption_key=t.key).grant_read(
        PodIdentity(t.stack, id, cluster=t.cluster, namespace="theirs", service_account=id.lower())
    ),
    "secrets": lambda t, id: ClusterSecrets(t.stack, id, cluster_name=id.lower()),
    "self-managed-nodes": lambda t, id: SelfManagedNodes(
        t.stack, id, cluster=t.cluster, vpc=t.imported_vpc, kubernetes_version="1.35", encryption_key=t.key
    ),
    "team": lambda t, id: Team(t.stack, id, task="Looks at theirs"),
    "tunnel": lambda t, id: EndpointTunnel(t.stack, id, vpc=t.vpc, host="theirs", document_name=id, encryption_key=t.key),
    "volume": lambda t, id: StateVolume(t.stack, id, availability_zone="eu-central-1a"),
}

# Made by one of the others, never by a stranger.
PARTS = {"BucketEmptier", "SelfManagedNodeRole", "MachineFiles", "MountableFileSystem", "NodeGroup", "TokenNodeRole"}


@pytest.fixture(scope="module")
def templates() -> dict[str, dict[str, Any]]:
    """All in one app: (stack or stage)/case: template."""
    app = App(analytics_reporting=False)
    stage = Stage(app, "Production")
    for case, make in ALONE.items():
        once = Theirs(app, case)
        make(once, "Thing")
        make(once, "Other")
        make(Theirs(stage, case), "Thing")
    assembly = app.synth()
    found = {stack.stack_name: stack.template for stack in assembly.stacks}
    return found | {stack.stack_name: stack.template for stack in assembly.get_nested_assembly("assembly-Production").stacks}


def test_each_works_alone_and_twice(templates: dict[str, dict[str, Any]]) -> None:
    assert set(templates) == {*ALONE, *(f"Production-{case}" for case in ALONE)}
    for case in ALONE:
        resources = templates[case]["Resources"].items()
        thing, other = (sorted(r["Type"] for name, r in resources if name.startswith(id)) for id in ("Thing", "Other"))
        assert thing == other != [], case


def test_every_construct_is_among_them() -> None:
    shown = inspect.getsource(inspect.getmodule(test_every_construct_is_among_them) or object)
    for module in pkgutil.walk_packages(constructs_lib.__path__, "constructs_lib."):
        for name, each in vars(importlib.import_module(module.name)).items():
            ours = inspect.isclass(each) and issubclass(each, Construct) and each.__module__.startswith("constructs_lib.")
            if ours and not name.startswith("_") and name not in PARTS:
                assert f"{name}(" in shown, f"{name} is in no case: does it work alone?"


def test_no_region_and_no_partition_is_wired_in(templates: dict[str, dict[str, Any]]) -> None:
    for name, template in templates.items():
        theirs = ("eu-central-1a", "eu-central-1b", "arn:aws:iam::111122223333:role/")
        text = functools.reduce(lambda text, each: text.replace(each, ""), theirs, json.dumps(template))
        assert not re.search(r"arn:aws|\b(us|eu)-[a-z]+-\d", text), name


@pytest.mark.parametrize(
    ("case", "statements"),
    [
        ("bucket-their-key", {"LogGroups"}),
        ("cluster", {"LogGroups"}),
        ("dashboard", {"Alarms"}),
        ("flow-logs", {"LogGroups"}),
        ("joining-nodes", {"NodeVolumes", "NodeVolumeGrants"}),
        ("log-group", {"LogGroups"}),
        ("managed-nodes", {"NodeVolumes", "NodeVolumeGrants"}),
        ("self-managed-nodes", {"NodeVolumes", "NodeVolumeGrants"}),
        ("tunnel", {"NodeVolumes", "NodeVolumeGrants"}),
    ],
)
def test_their_own_key_is_opened_to_who_must_use_it(
    templates: dict[str, dict[str, Any]], case: str, statements: set[str]
) -> None:
    """Else the deploy fails at the log group, or no node ever starts."""
    (key,) = [r for n, r in templates[case]["Resources"].items() if r["Type"] == "AWS::KMS::Key" and n.startswith("Key")]
    named = [each["Sid"] for each in key["Properties"]["KeyPolicy"]["Statement"] if "Sid" in each]
    assert sorted(named) == sorted(statements)

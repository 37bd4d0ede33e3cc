"""Each construct works alone in a stranger's stack: without our feature flags, region or account,
twice, and again in a stage.
"""

import functools
import importlib
import inspect
import json
import os
import pkgutil
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import yaml
from aws_cdk import App, CfnResource, RemovalPolicy, Stack, Stage
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_kms as kms
from aws_cdk import aws_route53 as route53
from aws_cdk import aws_s3 as s3
from constructs import Construct

import constructs_lib
from constructs_lib.ec2.machine import auto_mode_role
from constructs_lib.ec2.node_shape import NodeShape
from constructs_lib.eks.addon import PodIdentity
from constructs_lib.eks.cluster import TrainingCluster
from constructs_lib.eks.cluster_access import AccessLevel
from constructs_lib.k3s.cluster import SelfManagedCluster, SnapshotPlace
from constructs_lib.k3s.release import MachineFile, Release
from constructs_lib.storage.file_system import SharedFileSystem
from k8s_charts.pods.pod import PodChart
from paddle_aws.stacks.cluster import ClusterStack
from paddle_aws.stacks.distribution_lock import IMAGES
from paddle_aws.stacks.k3s_cluster import K3sNodesStack
from paddle_aws.stacks.network import NetworkStack
from paddle_aws.stacks.nodes import NodesStack
from paddle_aws.stacks.storage import StorageStack

pytestmark = pytest.mark.slow

# Synth never reads the distribution's own files.
DISTRIBUTION = {
    name: MachineFile(Path(__file__), "0" * 64)
    for name in ("k3s", "k3s-airgap-images-amd64.tar.zst")
}
RELEASE = Release(
    version="v1.35.0+k3s1", files=DISTRIBUTION, images=dict.fromkeys(IMAGES, "theirs")
)
ZONES = ["eu-central-1a", "eu-central-1b"]
# Base classes, and constructs that one of the others makes.
NOT_ALONE = {
    "BucketEmptier",
    "ClusterNetwork",
    "MachineFiles",
    "MountableFileSystem",
    "NodeGroup",
    "StackEndFunction",
    "StackFunction",
}
# Sets of equals.
NO_SINGLE_RESOURCE = {"AutoModeNodes", "ClusterFirewall", "ClusterSecrets", "ServiceEndpoints"}
WITHOUT_DEFAULT_CHILD = set[str]()
CONSTRUCTS: dict[str, type[Construct]] = {
    name: attribute
    for module in pkgutil.walk_packages(constructs_lib.__path__, "constructs_lib.")
    for name, attribute in vars(importlib.import_module(module.name)).items()
    if inspect.isclass(attribute)
    and issubclass(attribute, Construct)
    and attribute.__module__ == module.name
    and name not in NOT_ALONE
    and not name.startswith("_")
}


class Theirs:
    """What a stranger already has: made in the same stack (zones and ids unknown at synth), or
    imported.
    """

    def __init__(self, scope: Construct, case: str) -> None:
        self.stack, self.imports = Stack(scope, case), case.endswith("-imported")

    @functools.cached_property
    def key(self) -> kms.IKey:
        return kms.Key(self.stack, "Key")

    @functools.cached_property
    def vpc(self) -> ec2.IVpc:
        if not self.imports:
            return ec2.Vpc(self.stack, "Vpc", max_azs=2)
        ids = [f"subnet-0123456789abcdef{number}" for number in (0, 1)]
        attributes = {
            "vpc_id": "vpc-0123456789abcdef0",
            "vpc_cidr_block": "10.9.0.0/16",
            "private_subnet_ids": ids,
        }
        return ec2.Vpc.from_vpc_attributes(
            self.stack, "Vpc", availability_zones=ZONES, **attributes
        )

    @functools.cached_property
    def cluster(self) -> eks.ICluster:
        if not self.imports:
            return TrainingCluster(self.stack, "Cluster", vpc=self.vpc, cluster_name="theirs")
        attributes = {
            "cluster_certificate_authority_data": "QUJD",
            "cluster_security_group_id": "sg-0123456789abcdef0",
        }
        return eks.Cluster.from_cluster_attributes(
            self.stack,
            "Cluster",
            cluster_name="theirs",
            cluster_endpoint="https://theirs.example",
            vpc=self.vpc,
            **attributes,
        )

    @functools.cached_property
    def self_managed(self) -> SelfManagedCluster:
        place = SnapshotPlace("theirs", "arn:theirs")
        return SelfManagedCluster(
            self.stack, "Own", vpc=self.vpc, cluster_name="own", release=RELEASE, snapshots=place
        )


# Arguments by name: those without a default, and a key and a removal policy for each construct that
# takes them.
GIVEN: dict[str, Callable[[Theirs, str], Any]] = {
    "addon_name": lambda t, id: "coredns",
    "availability_zone": lambda t, id: ZONES[0],
    "availability_zones": lambda t, id: ZONES,
    "cluster": lambda t, id: t.cluster,
    "cluster_name": lambda t, id: id.lower(),
    "days": lambda t, id: 30,
    "document_name": lambda t, id: id,
    "emails": lambda t, id: ["a@b.de"],
    "encryption_key": lambda t, id: None if t.imports else t.key,
    "file_system_id": lambda t, id: "fs-0",
    "host": lambda t, id: "theirs",
    "kubernetes_version": lambda t, id: "1.35",
    "level": lambda t, id: AccessLevel.READ,
    "name": lambda t, id: id.lower(),
    "namespace": lambda t, id: "theirs",
    "principal_arn": lambda t, id: f"arn:aws:iam::111122223333:role/{id}",
    "release": lambda t, id: RELEASE,
    "role": lambda t, id: auto_mode_role(t.stack, f"{id}Role"),
    "removal_policy": lambda t, id: RemovalPolicy.RETAIN if t.imports else RemovalPolicy.DESTROY,
    "service_account": lambda t, id: id.lower(),
    "shapes": lambda t, id: {
        "w": NodeShape(instance_types=["c5n.18xlarge"], efa=True, placement_group=True)
    },
    "snapshots": lambda t, id: SnapshotPlace("theirs", "arn:theirs"),
    "stacks": lambda t, id: ["theirs"],
    "tag": lambda t, id: ("team", "theirs"),
    "task": lambda t, id: "Looks at theirs",
    "usd": lambda t, id: 5,
    "vpc": lambda t, id: t.vpc,
    "zone": lambda t, id: route53.HostedZone.from_hosted_zone_attributes(
        t.stack, f"{id}Zone", hosted_zone_id="Z0", zone_name="theirs"
    ),
}


def make(kind: str, theirs: Theirs, id: str) -> None:
    if kind == "existing-file-system":
        group = ec2.SecurityGroup.from_security_group_id(
            theirs.stack, f"{id}Group", "sg-0123456789abcdef1"
        )
        attributes = {
            "file_system_id": "fs-0123456789abcdef0",
            "missing_mount_targets": theirs.vpc.select_subnets().subnets,
        }
        SharedFileSystem.from_file_system_attributes(
            theirs.stack, id, vpc=theirs.vpc, security_group=group, **attributes
        )
        return
    taken = dict(inspect.signature(CONSTRUCTS[kind].__init__).parameters)
    props = taken.pop("props", None)
    given = {
        name: GIVEN[name](theirs, id)
        for name, parameter in taken.items()
        if (parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty)
        or name in ("encryption_key", "removal_policy")
    }
    if props:
        given["encryption_key"] = GIVEN["encryption_key"](theirs, id)
    if "cluster" in given and ".k3s." in CONSTRUCTS[kind].__module__:
        given["cluster"] = theirs.self_managed
    construct = CONSTRUCTS[kind](theirs.stack, id, **given)
    if kind not in NO_SINGLE_RESOURCE and not isinstance(construct.node.default_child, CfnResource):
        WITHOUT_DEFAULT_CHILD.add(kind)
    if isinstance(construct, PodIdentity):
        s3.Bucket(theirs.stack, f"{id}Bucket", encryption_key=theirs.key).grant_read(construct)


@pytest.fixture(scope="module")
def templates() -> dict[str, dict[str, Any]]:
    """Templates by stack name, all from one app; the names of the stage's stacks begin with
    `Production-`.
    """
    app = App(analytics_reporting=False)
    stage = Stage(app, "Production")
    for kind in (*CONSTRUCTS, "existing-file-system"):
        for case in (kind, f"{kind}-imported"):
            once = Theirs(app, case)
            make(kind, once, "Thing")
            make(kind, once, "Other")
            make(kind, Theirs(stage, case), "Thing")
    assembly = app.synth()
    by_name = {stack.stack_name: stack.template for stack in assembly.stacks}
    return by_name | {
        stack.stack_name: stack.template
        for stack in assembly.get_nested_assembly("assembly-Production").stacks
    }


def test_each_works_alone_and_twice(templates: dict[str, dict[str, Any]]) -> None:
    assert len(templates) == 4 * (len(CONSTRUCTS) + 1) > 100
    for case, template in templates.items():
        resources = template["Resources"].items()
        thing, other = (
            sorted(r["Type"] for name, r in resources if name.startswith(id))
            for id in ("Thing", "Other")
        )
        assert thing == other != [] or case.startswith("Production-"), case


def test_each_has_a_default_child(templates: dict[str, dict[str, Any]]) -> None:
    """The CDK's way to whatever no property reaches."""
    assert set() == WITHOUT_DEFAULT_CHILD


def test_no_region_and_no_partition_is_wired_in(templates: dict[str, dict[str, Any]]) -> None:
    for name, template in templates.items():
        theirs = (*ZONES, "arn:aws:iam::111122223333:role/")
        text = functools.reduce(
            lambda text, part: text.replace(part, ""), theirs, json.dumps(template)
        )
        assert not re.search(r"arn:aws|\b(us|eu)-[a-z]+-\d", text), name


SNAPSHOT = Path(__file__).with_name("snapshots") / "constructs.yaml"
PAGE = (Path(__file__).parents[2] / "docs" / "stability.md").read_text()


def _props(construct: type[Construct]) -> list[str]:
    """Returns the names of a construct's props, with those that go through to its base."""
    names: list[str] = []
    for name, parameter in inspect.signature(construct.__init__).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            (options,) = get_args(get_type_hints(construct.__init__)[name])
            names += get_type_hints(options)
        elif parameter.kind is parameter.KEYWORD_ONLY:
            names.append(name)
    return sorted(names)


def test_the_promised_names_are_as_they_were(templates: dict[str, dict[str, Any]]) -> None:
    """docs/stability.md promises them. UPDATE_SNAPSHOTS=1 pytest tests/aws/test_alone.py -m slow
    writes the file: read the difference, and announce what is lost.
    """
    table = PAGE[PAGE.index("## Constructs, by name") : PAGE.index("## How a break")]
    promised = re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| `constructs.*$", table, re.M)))
    names = {
        kind: {
            "module": CONSTRUCTS[kind].__module__,
            "props": " ".join(_props(CONSTRUCTS[kind])),
            "resources": {
                name: resource["Type"]
                for name, resource in sorted(templates[kind]["Resources"].items())
                if name.startswith("Thing")
            },
        }
        for kind in sorted(promised)
    }
    if os.environ.get("UPDATE_SNAPSHOTS"):
        SNAPSHOT.write_text(yaml.safe_dump(names, width=100))
    assert yaml.safe_load(SNAPSHOT.read_text()) == names
    for module, name in re.findall(r"`((?:constructs_lib|paddle_aws)[\w.]+)\.([A-Z]\w+)`", table):
        assert inspect.isclass(getattr(importlib.import_module(module), name)), name
    stacks = (ClusterStack, K3sNodesStack, NetworkStack, NodesStack, StorageStack, PodChart)
    homes = {kind.__name__: kind for kind in stacks}
    methods = re.findall(r"`([A-Z]\w+)\.([a-z_]+)`", table)
    assert methods and all(callable(getattr(homes[home], name)) for home, name in methods)


NODES = ("EndpointTunnel", "K3sNodeGroup", "ManagedNodes", "SelfManagedNodes")
OPENED = {
    "Alarms": ("ClusterDashboard", "StackProtection"),
    "LogGroups": (
        "ContainerLogs",
        "DataBucket",
        "EndingLogGroup",
        "FlowLogs",
        "StackProtection",
        "TrainingCluster",
        "TrainingNetwork",
    ),
    "NodeVolumes": NODES,
    "NodeVolumeGrants": NODES,
}


def test_their_own_key_is_opened_to_who_must_use_it(templates: dict[str, dict[str, Any]]) -> None:
    """Otherwise the deploy fails at the log group, or no node ever starts."""
    for kind in CONSTRUCTS:
        keys = [
            r
            for n, r in templates[kind]["Resources"].items()
            if r["Type"] == "AWS::KMS::Key" and n.startswith("Key")
        ]
        named = {
            statement["Sid"]
            for key in keys
            for statement in key["Properties"]["KeyPolicy"]["Statement"]
            if "Sid" in statement
        }
        assert named == {statement for statement, kinds in OPENED.items() if kind in kinds}, kind

"""The platform in other people's apps: two of them, in Stages, for two accounts, beside their own
stacks and synthesizer, with parts replaced.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, CfnResource, DefaultStackSynthesizer, Environment, Stack, Stage
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms
from aws_cdk import aws_route53 as route53
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from aws_cdk.assertions import Template

from constructs_lib.ec2.node_group import NodeGroupProps
from constructs_lib.ec2.node_shape import NodeShape
from constructs_lib.eks.addon import ClusterAddon
from constructs_lib.eks.cluster import TrainingCluster
from constructs_lib.eks.managed_nodes import ManagedNodes
from constructs_lib.eks.self_managed_nodes import SelfManagedNodes
from constructs_lib.network.network import TrainingNetworkOptions
from constructs_lib.people.team import Team
from constructs_lib.storage.bucket import BucketOptions
from constructs_lib.storage.file_system import MountableFileSystem, SharedFileSystem
from paddle_aws.stacks.cluster_spec import ClusterSpec
from paddle_aws.stacks.network import NetworkStack
from paddle_aws.stacks.node_settings import NodeGroup
from paddle_aws.stacks.nodes import NodesStack
from paddle_aws.stacks.platform import TrainingPlatform
from paddle_aws.stacks.storage import StorageStack
from paddle_settings.errors import SettingError

from .built import CONTEXT, build

ONE, OTHER = (Environment(account=digit * 12, region="us-west-2") for digit in "12")


def spec(**settings: Any) -> ClusterSpec:
    return ClusterSpec.model_validate({"retain": False, "name": "ml", **settings})


def deployed_by(stack: Any) -> str:
    """Returns the bootstrap by whose role cdk deploys a stack."""
    return str(stack.assume_role_arn).partition(":role/cdk-")[2].partition("-deploy-role")[0]


def test_two_beside_the_apps_own_stacks_share_nothing() -> None:
    app = App(context=CONTEXT, analytics_reporting=False)
    sqs.Queue(Stack(app, "before"), "Queue")
    build(app, spec())
    TrainingPlatform(app, "Second", spec(name="second"))
    sqs.Queue(Stack(app, "after"), "Queue")
    stacks = {stack.stack_name: stack for stack in app.synth().stacks}
    parts = [
        f"{name}-{part}"
        for name in ("ml", "second")
        for part in ("access", "network", "storage", "cluster", "nodes")
    ]
    assert set(stacks) == {"before", "after", *parts}
    assert {name.split("-")[0]: deployed_by(stack) for name, stack in stacks.items()} == {
        "before": "hnb659fds",
        "ml": "ml",
        "second": "second",
        "after": "hnb659fds",
    }
    assert stacks["ml-nodes"].template["Outputs"]["TrainingPlatform"] == {"Value": "ml"}


def test_stages_of_two_accounts_have_the_names_that_policies_and_commands_know() -> None:
    app = App(context=CONTEXT, analytics_reporting=False)
    for name, env in (("Dev", ONE), ("Prod", OTHER)):
        TrainingPlatform(Stage(app, name, env=env), "Ml", spec())
    assembly = app.synth()
    for name, env in (("Dev", ONE), ("Prod", OTHER)):
        for stack in assembly.get_nested_assembly(f"assembly-{name}").stacks:
            assert stack.stack_name.startswith("ml-") and deployed_by(stack) == "ml"
            assert stack.environment.account == env.account


@pytest.mark.parametrize(
    ("first", "second", "sentence"),
    [
        ({}, {}, "Dev/Ml/ml-access and Prod/Ml/ml-access would be one stack"),
        ({"env": ONE}, {"env": ONE}, "would be one stack"),
        ({}, {"env": ONE, "account": "2" * 12}, "account is 2{12}: Prod deploys to 1{12}"),
        (
            {},
            {"env": Environment(region="eu-west-1")},
            "region is us-west-2: Prod deploys to eu-west-1",
        ),
    ],
)
def test_stages_that_would_overwrite_each_other_are_refused(
    first: dict[str, Any], second: dict[str, Any], sentence: str
) -> None:
    app = App(analytics_reporting=False)
    with pytest.raises(SettingError, match=sentence):
        for name, given in (("Dev", first), ("Prod", second)):
            stage = Stage(app, name, env=given.pop("env", None))
            TrainingPlatform(stage, "Ml", spec(**given))


@pytest.mark.parametrize(
    ("qualifier", "app", "sentence"),
    [
        (None, {"default_stack_synthesizer": True}, "has a default_stack_synthesizer"),
        (None, {"context": True}, "bootstrapQualifier is corp in this app's context"),
        ("corp", {"default_stack_synthesizer": True}, None),
        ("corp", {"context": True}, None),
        ("corp", {}, None),
    ],
)
def test_an_organizations_bootstrap_is_named_in_the_settings_or_refused(
    qualifier: str | None, app: dict[str, Any], sentence: str | None
) -> None:
    """Otherwise people's rights and commands would be about roles that deploy nothing."""
    context: dict[str, Any] = {**CONTEXT}
    if app.pop("context", None):
        context["@aws-cdk/core:bootstrapQualifier"] = "corp"
    if "default_stack_synthesizer" in app:
        app["default_stack_synthesizer"] = DefaultStackSynthesizer(qualifier="corp")
    theirs = App(context=context, analytics_reporting=False, **app)
    settings = {"bootstrap_qualifier": qualifier} if qualifier else {}
    if sentence:
        with pytest.raises(SettingError, match=sentence):
            build(theirs, spec(**settings))
        return
    build(theirs, spec(**settings))
    stacks = theirs.synth().stacks
    assert {deployed_by(stack) for stack in stacks} == {"corp"}
    rights = str(next(stack.template for stack in stacks if stack.stack_name == "ml-access"))
    assert "role/cdk-corp-*" in rights and "cdk-ml-" not in rights


class OfTheirOwn(DefaultStackSynthesizer):
    """Another kind of synthesizer, with the qualifier of the cluster's own bootstrap."""

    @property
    def bootstrap_qualifier(self) -> str:
        return "ml"


def test_a_synthesizer_of_another_kind_is_never_ignored() -> None:
    """The CDK's AppStagingSynthesizer, too, takes its qualifier from the context."""
    theirs = App(context=CONTEXT, analytics_reporting=False, default_stack_synthesizer=OfTheirOwn())
    with pytest.raises(SettingError, match="has a default_stack_synthesizer of its own"):
        build(theirs, spec())


def test_what_is_granted_to_a_team_lies_where_no_cycle_is() -> None:
    """The platform's bucket, and their own with the platform's key, to the platform's team and to
    their own.
    """
    app = App(context=CONTEXT, analytics_reporting=False)
    platform = TrainingPlatform(app, "Ml", spec())
    own = Stack(app, "own", env=Environment(region="us-west-2"))
    bucket = s3.Bucket(own, "Bucket", encryption_key=platform.access.key)
    for team in (platform.teams["trainer"], Team(own, "Guests", task="Look at the data")):
        platform.bucket.grant_read(team)
        bucket.grant_read(team)
    granted = {
        (stack.stack_name, "Guests" in name)
        for stack in app.synth().stacks
        for name, resource in stack.template["Resources"].items()
        if resource["Type"] == "AWS::IAM::ManagedPolicy" and "Granted" in name
    }
    assert granted == {
        ("ml-access", False), ("ml-storage", False), ("own", False), ("own", True)
    }  # fmt: skip


class Archive(StorageStack):
    """Their house rules: another folder of the file system."""

    def make_file_system(self, vpc: ec2.IVpc, key: kms.IKey) -> MountableFileSystem:
        return SharedFileSystem(self, "Archive", vpc=vpc, encryption_key=key, path="/archive")


class Theirs(Stack):
    """A network that is there already."""

    def __init__(self, scope: App, id: str) -> None:
        super().__init__(scope, id, env=Environment(region="us-west-2"))
        zones = ["us-west-2a", "us-west-2b"]
        self.vpc: ec2.IVpc = ec2.Vpc(self, "Vpc", availability_zones=zones, nat_gateways=1)
        self.zone: route53.IHostedZone = route53.PrivateHostedZone(
            self, "Zone", vpc=self.vpc, zone_name="theirs"
        )
        self.cluster = TrainingCluster(self, "Cluster", vpc=self.vpc, cluster_name="ml")


def test_each_part_is_replaced_by_a_subclass_or_handed_in() -> None:
    app = App(context=CONTEXT, analytics_reporting=False)
    theirs = Theirs(app, "theirs")
    platform = TrainingPlatform(
        app, "Ml", spec(), network=theirs, storage=Archive, cluster=theirs.cluster
    )
    assert platform.file_system is platform.storage.file_system
    assert platform.cluster is theirs.cluster and list(platform.node_groups) == ["workers"]
    assert list(platform.teams) == ["operator", "trainer", "reader"]
    stacks = {stack.stack_name: stack for stack in app.synth().stacks}
    assert set(stacks) == {
        "theirs", "ml-access", "ml-storage", "ml-cluster", "ml-nodes"
    }  # fmt: skip
    # What commands read is there, whoever made the part.
    outputs = {name for stack in stacks.values() for name in stack.template.get("Outputs", ())}
    assert set(platform.outputs) | {"VpcId", "ZoneName", "BucketName"} <= outputs
    Template.from_json(stacks["ml-storage"].template).has_resource_properties(
        "AWS::EFS::AccessPoint", {"RootDirectory": {"Path": "/archive"}}
    )
    Template.from_json(stacks["ml-cluster"].template).resource_count_is("AWS::EKS::Cluster", 0)


class Hooked(NodesStack):
    """Their agent in each node, another image, and one more add-on."""

    def group_props(self, name: str, group: NodeGroup) -> NodeGroupProps:
        arm = NodeShape(instance_types=["m7g.large"])
        props = super().group_props(name, group)
        return {**props, "shape": arm, "extra_user_data": "#!/bin/bash\ntrue\n"}

    def make_group(
        self, name: str, group: NodeGroup, *, ami_type: str | None = None
    ) -> ManagedNodes | SelfManagedNodes:
        return super().make_group(name, group, ami_type="AL2023_ARM_64_STANDARD")

    def make_addons(self) -> list[CfnResource]:
        cluster = self.platform.control_plane.cluster
        addon = ClusterAddon(self, "Snapshots", cluster=cluster, addon_name="snapshot-controller")
        return [*super().make_addons(), addon.resource]


class Named(StorageStack):
    def bucket_options(self) -> BucketOptions:
        return {"bucket_name": "their-data"}


class Wide(NetworkStack):
    def network_options(self) -> TrainingNetworkOptions:
        isolated = ec2.SubnetType.PRIVATE_ISOLATED
        more = ec2.SubnetConfiguration(name="database", subnet_type=isolated, cidr_mask=27)
        return {"more_subnets": [more]}


def test_each_thing_has_a_hook() -> None:
    app = App(context=CONTEXT, analytics_reporting=False)
    platform = TrainingPlatform(app, "Ml", spec(), nodes=Hooked, storage=Named, network=Wide)
    platform.bucket.grant_write(platform.data_job)
    stacks = {stack.stack_name: stack.template for stack in app.synth().stacks}
    templates = {name: str(template) for name, template in stacks.items()}
    assert "'BucketName': 'their-data'" in templates["ml-storage"]
    assert "databaseSubnet1" in templates["ml-network"]
    for part in ("snapshot-controller", "AL2023_ARM_64_STANDARD", "'UserData'"):
        assert part in templates["ml-nodes"], part
    assert "DataJobPolicy" in templates["ml-cluster"] and "s3:PutObject" in templates["ml-cluster"]


def test_a_cluster_that_commands_would_not_find_is_refused() -> None:
    app = App(analytics_reporting=False)
    theirs = Theirs(app, "theirs")
    with pytest.raises(SettingError, match="theirs/Cluster is called ml: people's rights"):
        TrainingPlatform(app, "Ml", spec(name="other"), network=theirs, cluster=theirs.cluster)


def test_an_app_may_judge_scanners_findings_itself() -> None:
    context = {**CONTEXT, "paddle-aws:acknowledgements": False}
    app = App(context=context, analytics_reporting=False)
    build(app, spec())
    templates = [str(stack.template) for stack in app.synth().stacks]
    assert not [text for text in templates if "'checkov'" in text or "'cfn-lint'" in text]


def test_an_account_asks_nothing_of_aws() -> None:
    app = App(context=CONTEXT, analytics_reporting=False)
    build(app, spec(account="1" * 12))
    written = json.loads((Path(app.synth().directory) / "manifest.json").read_text())
    assert "missing" not in written

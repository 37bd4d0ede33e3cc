"""The real cdk creates, changes and destroys each kind of cluster that cluster.yaml can describe,
against the emulator.

The tests look up in the services, with boto3, what was asked for; a stack's status is no proof.
Each test has its own emulator, so that tests run in parallel. This process synthesizes the stacks,
as app.py does, which takes a third of the time; rehearsals run app.py itself.
"""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jmespath
import pytest
import yaml

from paddle_aws.rehearsal.account import Inventory
from paddle_aws.rehearsal.cloud import ACCOUNT, Cloud, CloudError
from paddle_aws.rehearsal.deployed_account import record_image

from ..aws.built import CONTEXT, App, ClusterSpec, build
from .conftest import PARTS, settled

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[2]
VARIANTS = PROJECT / "tests" / "aws" / "variants"
LIVES = yaml.safe_load(Path(__file__).with_name("lives.yaml").read_text())

Settings = dict[str, Any]


def merged(settings: Settings, change: Settings) -> Settings:
    both = {
        name: merged(settings.get(name) or {}, value) if isinstance(value, dict) else value
        for name, value in change.items()
    }
    return {name: value for name, value in (settings | both).items() if value is not None}


class Account(Cloud):
    """An account to which cdk deploys what this process has synthesized."""

    def cdk(self, command: str, *arguments: str, config: Path) -> list[str]:
        settings = (config.resolve(), config.read_bytes())
        assembly = str(self.state / "cdk.out")
        if self._synthesized != settings:
            shutil.rmtree(assembly, ignore_errors=True)
            app = App(context=CONTEXT, analytics_reporting=False, outdir=assembly)
            build(app, ClusterSpec.load(config), locks=PROJECT / "locks")
            app.synth()
            self._synthesized = settings
        return self._cdk(command, *arguments, "--app", assembly)


@dataclass
class Life:
    """One cluster's life in its own account."""

    cloud: Cloud
    config: Path
    settings: Settings
    before: Inventory
    outputs: dict[str, str] = field(default_factory=dict)

    def write(self) -> None:
        self.config.write_text(yaml.safe_dump(self.settings))

    def deploy(self) -> None:
        self.write()
        outputs_file = self.config.with_name("outputs.json")
        self.cloud.deploy(self.config, outputs_file)
        self.outputs = {
            key: value
            for stack in json.loads(outputs_file.read_text()).values()
            for key, value in stack.items()
        }

    def differing_stacks(self) -> int:
        [line] = [
            line
            for line in self.cloud.cdk("diff", config=self.config)
            if "Number of stacks with differences" in line
        ]
        return int(line.split()[-1])

    def change(self, **change: Any) -> None:
        """Deploys a change of the settings."""
        self.settings = merged(self.settings, change)
        self.deploy()

    def change_as_diff_sees(self, **change: Any) -> None:
        """Deploys a change of the settings, which `cdk diff` sees before."""
        self.settings = merged(self.settings, change)
        self.write()
        assert self.differing_stacks() > 0
        self.deploy()

    def stacks(self) -> dict[str, str]:
        descriptions = self.cloud.client("cloudformation").describe_stacks()["Stacks"]
        return {stack["StackName"]: stack["StackStatus"] for stack in descriptions}

    def end(self) -> set[tuple[str, str]]:
        """Destroys the cluster. Returns (service, type) of the resources that are left."""
        self.cloud.destroy(self.config)
        return {
            (resource.service, resource.type) for resource in self.cloud.inventory() - self.before
        }


@pytest.fixture
def begin(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., Life]:
    """`begin(file, prepare)` makes an account, prepares it by hand, and deploys the settings of
    `file` in it.
    """

    def begun(
        file: Path,
        prepare: Callable[[Cloud, Settings], None] = lambda cloud, settings: None,
        deploy: bool = True,
    ) -> Life:
        cloud = Account(project=PROJECT, state=tmp_path / "state", parts=PARTS)
        cloud.__enter__()
        request.addfinalizer(cloud.__exit__)
        settings = yaml.safe_load(file.read_text())
        prepare(cloud, settings)
        config = tmp_path / "cluster.yaml"
        config.write_text(yaml.safe_dump(settings))
        cloud.bootstrap(config)
        life = Life(cloud, config, settings, cloud.inventory())
        if deploy:
            life.deploy()
        return life

    return begun


def node_groups(cloud: Cloud, cluster: str) -> dict[str, Any]:
    eks = cloud.client("eks")
    names = eks.list_nodegroups(clusterName=cluster)["nodegroups"]
    return {
        name: eks.describe_nodegroup(clusterName=cluster, nodegroupName=name)["nodegroup"]
        for name in names
    }


def newest_templates(cloud: Cloud) -> list[dict[str, Any]]:
    """Returns the newest version of each launch template."""
    ec2 = cloud.client("ec2")
    ids = [
        template["LaunchTemplateId"]
        for template in ec2.describe_launch_templates()["LaunchTemplates"]
    ]
    return [
        ec2.describe_launch_template_versions(LaunchTemplateId=id, Versions=["$Latest"])[
            "LaunchTemplateVersions"
        ][0]
        for id in ids
    ]


def user_data(cloud: Cloud) -> list[str]:
    """Returns the user data of each launch template that has any."""
    texts = [template["LaunchTemplateData"].get("UserData") for template in newest_templates(cloud)]
    return [base64.b64decode(text).decode() for text in texts if text]


KEPT = {("s3", "bucket"), ("efs", "file system"), ("kms", "key"), ("ecr", "repository")}
"""Exactly what `retain: true` keeps."""


def seen(life: Life) -> dict[str, Any]:
    """Returns what the services say about a cluster."""
    cloud, cluster, outputs = life.cloud, life.outputs["ClusterName"], life.outputs
    ec2, efs, eks = cloud.client("ec2"), cloud.client("efs"), cloud.client("eks")
    on_eks = cluster in eks.list_clusters()["clusters"]
    in_vpc = [{"Name": "vpc-id", "Values": [outputs["VpcId"]]}]
    groups = cloud.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    entries = eks.list_access_entries(clusterName=cluster)["accessEntries"] if on_eks else []
    zone = (life.settings.get("zone") or {}).get("public")
    records = (
        cloud.client("route53").list_resource_record_sets(HostedZoneId=zone["id"]) if zone else {}
    )
    endpoints = ec2.describe_vpc_endpoints(Filters=in_vpc)["VpcEndpoints"]
    attached = [{"Name": "attachment.vpc-id", "Values": [outputs["VpcId"]]}]
    return {
        "outputs": outputs,
        "cluster": eks.describe_cluster(name=cluster)["cluster"] if on_eks else None,
        "nodes": list(node_groups(cloud, cluster).values()) if on_eks else [],
        "user_data": user_data(cloud),
        "machines": [template["LaunchTemplateData"] for template in newest_templates(cloud)],
        "volumes": ec2.describe_volumes()["Volumes"],
        "addresses": [address["PublicIp"] for address in ec2.describe_addresses()["Addresses"]],
        "rules": ec2.describe_security_group_rules()["SecurityGroupRules"],
        "public_records": records.get("ResourceRecordSets", []),
        "scaling_groups": groups,
        "access": [
            eks.describe_access_entry(clusterName=cluster, principalArn=entry)["accessEntry"]
            for entry in entries
        ],
        "file_systems": efs.describe_file_systems()["FileSystems"],
        "mount_targets": efs.describe_mount_targets(FileSystemId=outputs["FileSystemId"])[
            "MountTargets"
        ],
        "subnets": ec2.describe_subnets(Filters=in_vpc)["Subnets"],
        "nat_gateways": ec2.describe_nat_gateways()["NatGateways"],
        "internet_gateways": ec2.describe_internet_gateways(Filters=attached)["InternetGateways"],
        "services": [endpoint["ServiceName"].partition("us-west-2.")[2] for endpoint in endpoints],
        "flow_logs": ec2.describe_flow_logs()["FlowLogs"],
        "placement_groups": ec2.describe_placement_groups()["PlacementGroups"],
        "providers": cloud.client("iam").list_open_id_connect_providers()[
            "OpenIDConnectProviderList"
        ],
        "budgets": cloud.client("budgets").describe_budgets(AccountId=ACCOUNT).get("Budgets", []),
    }


def make_named(cloud: Cloud, settings: Settings) -> None:
    """Makes by hand what settings name that has to exist: a KMS key, an SSH key pair, a public
    zone.
    """
    if "existing_arn" in settings.get("key", {}):
        key = cloud.client("kms").create_key(Description="theirs")
        settings["key"]["existing_arn"] = key["KeyMetadata"]["Arn"]
    if pair := (settings.get("cluster", {}).get("ssh") or {}).get("key_pair"):
        cloud.client("ec2").create_key_pair(KeyName=pair)
    if public := settings.get("zone", {}).get("public"):
        name = public["host"].partition(".")[2]
        hosted_zone = cloud.client("route53").create_hosted_zone(
            Name=name, CallerReference="theirs"
        )
        public["id"] = hosted_zone["HostedZone"]["Id"].rpartition("/")[2]


@pytest.mark.long
@pytest.mark.parametrize(
    "row",
    LIVES,
    ids=lambda row: "-".join([Path(row["settings"]).stem, *row.get("with", {}).values()]),
)
def test_a_life(begin: Callable[..., Life], row: dict[str, Any]) -> None:
    def prepare(cloud: Cloud, settings: Settings) -> None:
        settings.update(row.get("with", {}))
        make_named(cloud, settings)

    life = begin(PROJECT / row["settings"], prepare)
    before = seen(life)
    assert {query: jmespath.search(query, before) for query in row["made"]} == row["made"]
    life.change(**row["change"])
    after = seen(life)
    assert {query: jmespath.search(query, after) for query in row["changed"]} == row["changed"]
    assert jmespath.search(row["stays"], before) == jmespath.search(row["stays"], after), (
        "changed in place, nothing lost"
    )
    assert {" ".join(resource) for resource in life.end()} == set(row["left"])


def theirs(cloud: Cloud, settings: Settings) -> None:
    """Creates somebody else's VPC, key, bucket, file system, cluster and zone (theirs.yaml), and
    names them in `settings`.
    """
    cloudformation = cloud.client("cloudformation")
    cloudformation.create_stack(
        StackName="theirs",
        TemplateBody=Path(__file__).with_name("theirs.yaml").read_text(),
        Capabilities=["CAPABILITY_IAM"],
    )
    stack = settled(cloudformation, "theirs")
    assert stack["StackStatus"] == "CREATE_COMPLETE"
    has = {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}
    subnets = {"us-west-2a": has["SubnetA"], "us-west-2b": has["SubnetB"]}
    settings["network"]["existing"] |= {"id": has["Vpc"], "private_subnets": subnets}
    if "file_system" in settings:
        settings["key"]["existing_arn"] = has["Key"]
        settings["file_system"]["existing"] |= {
            "id": has["FileSystem"],
            "security_group": has["Group"],
        }
    else:
        settings["cluster"]["existing"]["security_group"] = has["Group"]
        settings["zone"]["existing"]["id"] = has["Zone"]


@pytest.mark.long
def test_existing_network_key_bucket_and_file_system(begin: Callable[..., Life]) -> None:
    """Their resources are used, completed where asked, and still there afterwards."""
    life = begin(VARIANTS / "existing.yaml", theirs)
    cloud, settings = life.cloud, life.settings
    assert life.outputs["VpcId"] == settings["network"]["existing"]["id"]
    assert life.outputs["FileSystemId"] == settings["file_system"]["existing"]["id"]
    assert life.outputs["BucketName"] == "somebody-elses-data"
    assert life.outputs["KeyArn"] == settings["key"]["existing_arn"]
    created = {(resource.service, resource.type) for resource in cloud.inventory() - life.before}
    assert not created & {
        ("ec2", "vpc"),
        ("ec2", "subnet"),
        ("kms", "key"),
        ("s3", "bucket"),
        ("efs", "file system"),
    }
    targets = cloud.client("efs").describe_mount_targets(FileSystemId=life.outputs["FileSystemId"])[
        "MountTargets"
    ]
    assert {target["AvailabilityZoneName"] for target in targets} == {"us-west-2a", "us-west-2b"}

    life.change_as_diff_sees(nodes={"workers": {"min": 0, "desired": 1, "max": 2}})
    assert life.differing_stacks() == 0
    [workers] = node_groups(cloud, life.outputs["ClusterName"]).values()
    assert workers["scalingConfig"]["desiredSize"] == 1
    assert life.end() == {("ecr", "repository")}
    assert life.before <= cloud.inventory(), "nothing of theirs is gone"


@pytest.mark.long
def test_an_existing_cluster(begin: Callable[..., Life]) -> None:
    """Storage and nodes are deployed beside somebody's cluster and zone."""
    life = begin(VARIANTS / "borrowed-cluster.yaml", theirs)
    cloud = life.cloud
    assert life.outputs["ClusterName"] == "shared"
    assert len(node_groups(cloud, "shared")) == 1
    assert len(cloud.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]) == 1
    assert life.end() == set()
    assert cloud.client("eks").list_clusters()["clusters"] == ["shared"]


def test_what_a_destroy_kept_is_adopted(begin: Callable[..., Life]) -> None:
    """With `retain: true`, a deploy after a destroy uses the old data, images and key, and the next
    destroy keeps them again.
    """
    life = begin(PROJECT / "cluster.yaml", lambda cloud, settings: settings.update(retain=True))
    cloud, outputs = life.cloud, life.outputs
    cloud.client("s3").put_object(Bucket=outputs["BucketName"], Key="data", Body=b"ours")
    digest = record_image(
        cloud, outputs["RepositoryUri"], life.config.with_name("image.json")
    ).rpartition("@")[2]
    assert life.end() == KEPT | {("s3", "object version")}
    keys = cloud.client("kms").list_keys()["Keys"]
    life.settings |= {
        "file_system": {"existing": {"id": outputs["FileSystemId"]}},
        "bucket": {"existing_name": outputs["BucketName"]},
        "key": {"existing_arn": keys[0]["KeyArn"]},
        "images": {"existing": True},
    }
    life.deploy()
    for output in ("FileSystemId", "BucketName", "RepositoryUri"):
        assert life.outputs[output] == outputs[output]
    assert (
        cloud.client("s3").get_object(Bucket=outputs["BucketName"], Key="data")["Body"].read()
        == b"ours"
    )
    images = cloud.client("ecr").describe_images(repositoryName="paddle/trainer")["imageDetails"]
    assert digest in {image["imageDigest"] for image in images}
    targets = cloud.client("efs").describe_mount_targets(FileSystemId=outputs["FileSystemId"])[
        "MountTargets"
    ]
    assert {target["AvailabilityZoneName"] for target in targets} == {"us-west-2a", "us-west-2b"}
    assert life.end() == KEPT | {("s3", "object version")}


@pytest.mark.long
def test_deploys_that_fail_in_the_middle_and_a_change_of_what_other_stacks_hold_on_to(
    begin: Callable[..., Life],
) -> None:
    """Each failure undoes what its deploy made and keeps what existed; the same command works once
    the cause is gone.
    """
    life = begin(PROJECT / "cluster.yaml", deploy=False)
    cloud, cluster, shipped = life.cloud, life.settings["name"], json.dumps(life.settings)
    ecr, eks, efs = (cloud.client(name) for name in ("ecr", "eks", "efs"))
    ecr.create_repository(repositoryName=f"{cluster}/trainer")
    with pytest.raises(CloudError, match=f"{cluster}/trainer' already exists"):
        life.deploy()
    assert life.stacks()[f"{cluster}-storage"] == "ROLLBACK_COMPLETE"
    resources = cloud.inventory() - life.before
    functions = {resource.id for resource in resources if resource.type == "function"}
    assert len(functions) == 2 and all("access" in name for name in functions), "no emptier"
    left = {(resource.service, resource.type) for resource in resources}
    assert not left & {
        ("efs", "file system"),
        ("efs", "mount target"),
        ("s3", "bucket"),
    }
    ecr.delete_repository(repositoryName=f"{cluster}/trainer")
    life.deploy()
    assert set(life.stacks().values()) == {"CREATE_COMPLETE"}

    deployed = cloud.inventory()
    # Made by hand, this entry blocks one resource of the cluster's stack.
    entry = {"clusterName": cluster, "principalArn": "arn:aws:iam::000000000000:role/late"}
    eks.create_access_entry(**entry)
    life.settings["cluster"]["administrators"] = [entry["principalArn"]]
    life.settings["file_system"] = {"throughput": "bursting"}
    with pytest.raises(CloudError, match="Access entry already exists"):
        life.deploy()
    assert life.stacks()[f"{cluster}-cluster"] == "UPDATE_ROLLBACK_COMPLETE"
    eks.delete_access_entry(**entry)
    assert cloud.inventory() == deployed
    life.deploy()
    assert (
        eks.list_access_entries(clusterName=cluster)["accessEntries"].count(entry["principalArn"])
        == 1
    )
    assert efs.describe_file_systems()["FileSystems"][0]["ThroughputMode"] == "bursting"

    # A change of an export in use is refused and rolled back. A change that needs more or fewer
    # exports is deployed.
    life.settings = json.loads(shipped) | {"zone": {"name": "other"}}
    with pytest.raises(CloudError, match=r"Update canceled\. Cannot update export"):
        life.deploy()
    assert life.stacks()[f"{cluster}-network"] == "UPDATE_ROLLBACK_COMPLETE"
    life.settings = json.loads(shipped)
    life.settings["nodes"]["workers"]["kind"] = "self-managed"
    life.deploy()
    assert node_groups(cloud, cluster) == {}
    groups = cloud.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    assert (
        len([group for group in groups if f"{cluster}-nodes-" in group["AutoScalingGroupName"]])
        == 1
    )
    life.settings = json.loads(shipped) | {"budget": {"emails": ["a@b.de"]}}
    life.deploy()
    assert len(node_groups(cloud, cluster)) == 1
    del life.settings["budget"]
    life.deploy()
    cloud.client("cloudformation").delete_stack(StackName=f"{cluster}-watch")
    assert life.end() == set()


def another_release(life: Life, version: str) -> dict[str, str]:
    """Copies the variant's stand-ins and their lock for another version. Returns the settings that
    name them.
    """
    source = VARIANTS / "distribution"
    lock = json.loads((source / "lock.json").read_text())
    folder = life.config.parent / "distribution"
    shutil.copytree(source / lock["version"], folder / version)
    (folder / "lock.json").write_text(json.dumps(lock | {"version": version}))
    return {"lock": str(folder / "lock.json"), "files": str(folder)}


def test_a_self_managed_cluster(begin: Callable[..., Life]) -> None:
    """The tutorials' own kind: control plane, nodes, an upgrade, and nothing left of volume,
    interface, address and secrets.

    (tests/aws/templates.yaml says what its templates hold.)
    """
    life = begin(VARIANTS / "self-managed-cluster.yaml")
    cloud, outputs = life.cloud, life.outputs
    ec2, secrets = cloud.client("ec2"), cloud.client("secretsmanager")
    addresses = {address["PublicIp"] for address in ec2.describe_addresses()["Addresses"]}
    assert outputs["ClusterEndpoint"].removeprefix("https://").removesuffix(":6443") in addresses
    [volume] = ec2.describe_volumes()["Volumes"]
    text = "".join(user_data(cloud))
    assert f"STATE_VOLUME='{volume['VolumeId']}'" in text

    token = secrets.get_secret_value(SecretId="tutorial/server-token")["SecretString"]
    assert len(token) == 48 and token not in text
    [pair] = ec2.describe_key_pairs()["KeyPairs"]
    assert (
        cloud.client("ssm").get_parameter(Name=f"/ec2/keypair/{pair['KeyPairId']}")["Parameter"][
            "Type"
        ]
        == "SecureString"
    )
    # What the control plane has written by then must outlive every later deploy.
    secrets.put_secret_value(SecretId="tutorial/ca-hash", SecretString="a" * 64)

    change = {
        "nodes": {"workers": {"desired": 4}},
        "cluster": {"volume_gib": 40},
        "owner": "somebody-else",
    }
    life.change_as_diff_sees(
        **merged(change, {"cluster": {"distribution": another_release(life, "v1.36.0+k3s0")}})
    )
    assert all("DISTRIBUTION_VERSION='v1.36.0+k3s0'" in text for text in user_data(cloud))
    [same] = ec2.describe_volumes()["Volumes"]
    assert (same["VolumeId"], same["Size"], same["State"]) == (
        volume["VolumeId"],
        40,
        "available",
    ), "the state stays where it is"
    assert secrets.get_secret_value(SecretId="tutorial/server-token")["SecretString"] == token
    assert secrets.get_secret_value(SecretId="tutorial/ca-hash")["SecretString"] == "a" * 64
    assert [pair["KeyPairId"]] == [
        other["KeyPairId"] for other in ec2.describe_key_pairs()["KeyPairs"]
    ]

    assert life.end() == set()

"""Key, bucket, file system, repository: closed, and either kept or gone."""

import json
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import RemovalPolicy, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk.assertions import Template

from constructs_lib.storage.bucket import HANDLER, DataBucket
from constructs_lib.storage.file_system import SharedFileSystem


def test_services_use_the_key_for_this_account_alone(shipped: Any) -> None:
    (key,) = shipped.resources("AWS::KMS::Key")
    root, *services = key["KeyPolicy"]["Statement"]
    assert "root" in json.dumps(root["Principal"])
    assert {s["Sid"] for s in services} == {"LogGroups", "NodeVolumes", "NodeVolumeGrants", "Alarms"}
    for statement in services:
        assert "AWS::AccountId" in json.dumps(statement["Condition"]), statement["Sid"]


def test_an_existing_key_is_used_and_not_made(variant: Any) -> None:
    existing = variant("existing")
    assert existing.resources("AWS::KMS::Key") == []
    (repository,) = existing.resources("AWS::ECR::Repository")
    assert repository["EncryptionConfiguration"]["KmsKey"] == existing.spec.key.existing_arn
    # Its policy is not ours: Auto Scaling might not be able to open disks that it seals.
    for template in existing.resources("AWS::EC2::LaunchTemplate"):
        assert "KmsKeyId" not in template["LaunchTemplateData"]["BlockDeviceMappings"][0]["Ebs"]


@pytest.mark.parametrize(("name", "retain", "policy"), [("gpu", True, "Retain"), ("shipped", False, "Delete")])
def test_one_setting_decides_what_outlives_a_destroy(variant: Any, name: str, retain: bool, policy: str) -> None:
    cluster = variant(name)
    assert cluster.spec.retain is retain
    for kind in ("KMS::Key", "S3::Bucket", "EFS::FileSystem", "ECR::Repository"):
        for logical, resource in cluster.whole(f"AWS::{kind}").items():
            assert resource["DeletionPolicy"] == policy, logical
    emptied = cluster.whole("Custom::EmptyBucket")
    assert len(emptied) == (0 if retain else 2)
    assert len(cluster.resources("AWS::Lambda::Function")) == (0 if retain else 1)
    (repository,) = cluster.resources("AWS::ECR::Repository")
    assert repository.get("EmptyOnDelete", False) is not retain


def test_the_emptier_may_touch_its_two_buckets_and_runs_before_they_lose_their_policy(shipped: Any) -> None:
    emptied = shipped.whole("Custom::EmptyBucket")
    policies = shipped.whole("AWS::S3::BucketPolicy")
    for resource in emptied.values():
        assert set(resource["DependsOn"]) & set(policies)
    (function,) = shipped.resources("AWS::Lambda::Function")
    assert function["Code"]["ZipFile"] == HANDLER.read_text()
    assert len(function["Code"]["ZipFile"]) <= 4096
    policy = shipped.whole("AWS::IAM::ManagedPolicy", "storage")
    assert "'Resource': '*'" not in str(policy)


def test_the_file_system_opens_2049_to_its_client_group_alone(each_variant: Any) -> None:
    rules = [
        rule
        for kind in ("AWS::EC2::SecurityGroupIngress",)
        for rule in each_variant.resources(kind)
        if (rule.get("FromPort"), rule.get("ToPort")) == (2049, 2049)
    ]
    assert len(rules) == 1
    assert "SourceSecurityGroupId" in rules[0]
    assert not {"CidrIp", "CidrIpv6", "SourcePrefixListId"} & set(rules[0])
    for group in each_variant.resources("AWS::EC2::SecurityGroup", "storage"):
        assert "SecurityGroupIngress" not in group
        # The placeholder of a group that lets nothing out.
        assert [rule["CidrIp"] for rule in group.get("SecurityGroupEgress", [])] in ([], ["255.255.255.255/32"])


def test_every_node_carries_the_client_group(each_variant: Any) -> None:
    templates = each_variant.resources("AWS::EC2::LaunchTemplate", "nodes")
    assert len(templates) == len(each_variant.spec.nodes)
    for template in templates:
        data = template["LaunchTemplateData"]
        groups = data.get("SecurityGroupIds") or data["NetworkInterfaces"][0]["Groups"]
        assert "FileSystemClients" in json.dumps(groups)


def test_one_mount_target_in_each_zone(each_variant: Any) -> None:
    existing = each_variant.spec.file_system.existing
    wanted = len(existing.zones_without_mount_target) if existing else len(each_variant.spec.network.zones)
    assert len(each_variant.resources("AWS::EFS::MountTarget")) == wanted


def test_backups_go_with_retain_unless_said_otherwise(shipped: Any, variant: Any, otherwise: Any) -> None:
    seen = []
    for cluster in (shipped, variant("gpu"), otherwise):
        (file_system,) = cluster.resources("AWS::EFS::FileSystem")
        status = file_system.get("BackupPolicy", {"Status": "DISABLED"})["Status"]
        seen.append((cluster.spec.retain, cluster.spec.file_system.backup, status))
    assert seen == [(False, None, "DISABLED"), (True, None, "ENABLED"), (False, True, "ENABLED")]


def test_plain_nfs_is_said_in_the_synth(variant: Any) -> None:
    plain = variant("self-managed")
    (file_system,) = plain.resources("AWS::EFS::FileSystem")
    assert [s["Effect"] for s in file_system["FileSystemPolicy"]["Statement"]] == ["Allow"]
    said = (Path(plain.assembly.directory) / "self-storage.metadata.json").read_text()
    assert "require_tls is false: plain NFS is taken, and data crosses the VPC in the clear" in said


def test_infrequent_access_can_be_off(otherwise: Any) -> None:
    (file_system,) = otherwise.resources("AWS::EFS::FileSystem")
    assert "LifecyclePolicies" not in file_system


def test_an_existing_file_system_gets_what_it_lacks(variant: Any) -> None:
    existing = variant("existing")
    assert existing.resources("AWS::EFS::FileSystem") == []
    (target,) = existing.resources("AWS::EFS::MountTarget")
    assert target["SubnetId"] == "subnet-0123456789abcdef1"
    (rule,) = existing.resources("AWS::EC2::SecurityGroupIngress", "storage")
    assert rule["GroupId"] == "sg-0123456789abcdef0"
    assert existing.resources("AWS::EFS::AccessPoint")[0]["FileSystemId"] == "fs-0123456789abcdef0"
    assert existing.resources("AWS::S3::Bucket") == []


def test_in_a_strangers_stack(stranger: tuple[Stack, ec2.Vpc]) -> None:
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

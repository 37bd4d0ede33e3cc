"""Each type that the project adds to the emulator, and each repair: deployed by a template, looked at by boto3, deleted again.

Templates go straight to the emulator's CloudFormation: no cdk, so that these are quick.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from rehearsal.cloud import Cloud

pytestmark = pytest.mark.slow

Stack = Callable[..., dict[str, Any]]


def resource(kind: str, **properties: Any) -> dict[str, Any]:
    return {"Type": kind, "Properties": properties}


def ref(logical_id: str) -> dict[str, str]:
    return {"Ref": logical_id}


def att(logical_id: str, name: str) -> dict[str, list[str]]:
    return {"Fn::GetAtt": [logical_id, name]}


NETWORK = {
    "Vpc": resource("AWS::EC2::VPC", CidrBlock="10.0.0.0/16"),
    "A": resource("AWS::EC2::Subnet", VpcId=ref("Vpc"), CidrBlock="10.0.0.0/24", AvailabilityZone="us-west-2a"),
    "B": resource("AWS::EC2::Subnet", VpcId=ref("Vpc"), CidrBlock="10.0.1.0/24", AvailabilityZone="us-west-2b"),
}

TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "eks.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}

CLUSTER = NETWORK | {
    "Role": resource("AWS::IAM::Role", AssumeRolePolicyDocument=TRUST),
    "Key": resource("AWS::KMS::Key", KeyPolicy={"Version": "2012-10-17", "Statement": []}),
    "Cluster": resource(
        "AWS::EKS::Cluster",
        Name="made",
        Version="1.35",
        RoleArn=att("Role", "Arn"),
        ResourcesVpcConfig={"SubnetIds": [ref("A"), ref("B")]},
        EncryptionConfig=[{"Provider": {"KeyArn": att("Key", "Arn")}, "Resources": ["secrets"]}],
    ),
}


@pytest.fixture(autouse=True)
def nothing_left(cloud: Cloud) -> Iterator[None]:
    """Every test of this file ends with the account as it began (`stack` deletes its stacks before this looks)."""
    before = cloud.inventory()
    yield
    assert sorted(cloud.inventory() - before) == []


def test_security_group_rules_of_their_own(cloud: Cloud, stack: Stack) -> None:
    groups = NETWORK | {
        "Server": resource("AWS::EC2::SecurityGroup", GroupDescription="server", VpcId=ref("Vpc")),
        "Client": resource("AWS::EC2::SecurityGroup", GroupDescription="client", VpcId=ref("Vpc")),
        "Nfs": resource(
            "AWS::EC2::SecurityGroupIngress",
            GroupId=ref("Server"),
            IpProtocol="tcp",
            FromPort=2049,
            ToPort=2049,
            SourceSecurityGroupId=ref("Client"),
        ),
    }
    out = stack(groups, {"Server": ref("Server"), "Client": ref("Client")})
    server = cloud.client("ec2").describe_security_groups(GroupIds=[out["Server"]])["SecurityGroups"][0]
    [rule] = server["IpPermissions"]
    assert (rule["FromPort"], rule["UserIdGroupPairs"][0]["GroupId"]) == (2049, out["Client"])

    with pytest.raises(AssertionError, match=r"InvalidPermission\.Duplicate"):
        stack(groups | {"Again": groups["Nfs"]})


def test_a_cluster_in_one_zone_is_refused(stack: Stack) -> None:
    one = json.loads(json.dumps(CLUSTER))
    one["Cluster"]["Properties"]["ResourcesVpcConfig"]["SubnetIds"] = [ref("A")]
    with pytest.raises(AssertionError, match="at least two different AZs"):
        stack(one)


def test_a_private_zone_belongs_to_its_vpc(cloud: Cloud, stack: Stack) -> None:
    zone = resource("AWS::Route53::HostedZone", Name="paddle", VPCs=[{"VPCId": ref("Vpc"), "VPCRegion": "us-west-2"}])
    out = stack(NETWORK | {"Zone": zone}, {"Zone": ref("Zone"), "Vpc": ref("Vpc")})
    found = cloud.client("route53").get_hosted_zone(Id=out["Zone"])
    assert found["HostedZone"]["Config"]["PrivateZone"] is True
    assert [vpc["VPCId"] for vpc in found["VPCs"]] == [out["Vpc"]]


def test_a_bucket_keeps_what_it_was_told(cloud: Cloud, stack: Stack) -> None:
    out = stack(
        {
            "Key": resource("AWS::KMS::Key", KeyPolicy={"Version": "2012-10-17", "Statement": []}),
            "Logs": resource("AWS::S3::Bucket"),
            "Bucket": resource(
                "AWS::S3::Bucket",
                BucketEncryption={
                    "ServerSideEncryptionConfiguration": [
                        {
                            "BucketKeyEnabled": True,
                            "ServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": att("Key", "Arn")},
                        }
                    ]
                },
                LifecycleConfiguration={"Rules": [{"Status": "Enabled", "NoncurrentVersionExpiration": {"NoncurrentDays": 30}}]},
                LoggingConfiguration={"DestinationBucketName": ref("Logs"), "LogFilePrefix": "bucket/"},
                OwnershipControls={"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]},
            ),
        },
        {"Bucket": ref("Bucket"), "Key": att("Key", "Arn"), "Logs": ref("Logs")},
    )
    s3, name = cloud.client("s3"), out["Bucket"]
    [rule] = s3.get_bucket_encryption(Bucket=name)["ServerSideEncryptionConfiguration"]["Rules"]
    assert rule["ApplyServerSideEncryptionByDefault"] == {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": out["Key"]}
    [rule] = s3.get_bucket_lifecycle_configuration(Bucket=name)["Rules"]
    assert rule["NoncurrentVersionExpiration"] == {"NoncurrentDays": 30}
    logging = s3.get_bucket_logging(Bucket=name)["LoggingEnabled"]
    assert (logging["TargetBucket"], logging["TargetPrefix"]) == (out["Logs"], "bucket/")
    [rule] = s3.get_bucket_ownership_controls(Bucket=name)["OwnershipControls"]["Rules"]
    assert rule["ObjectOwnership"] == "BucketOwnerEnforced"


@pytest.mark.parametrize("kind", ["AWS::Nowhere::Thing", "AWS::EKS::FargateProfile"])
def test_a_type_that_nobody_knows_is_refused_by_name(stack: Stack, kind: str) -> None:
    with pytest.raises((AssertionError, ClientError), match=kind):
        stack({"Thing": resource(kind, Name="x")})


@pytest.mark.parametrize(
    ("kind", "properties", "named"),
    [
        ("AWS::EC2::EIP", {"Domian": "vpc"}, "Domian"),
        ("AWS::EKS::Addon", {"ClusterName": "c", "AddonName": "a", "AddonVersoin": "1"}, "AddonVersoin"),
        ("AWS::Budgets::Budget", {"Budget": {"BudgetType": "COST", "TimeUnit": "MONTHLY", "Limit": 1}}, "Limit"),
    ],
)
def test_a_misspelled_property_is_refused_by_name(stack: Stack, kind: str, properties: dict[str, Any], named: str) -> None:
    with pytest.raises(AssertionError, match=named):
        stack({"Thing": resource(kind, **properties)})


def full_bucket(cloud: Cloud, name: str) -> None:
    cloud.client("s3").put_object(Bucket=name, Key="data", Body=b"1")


def full_repository(cloud: Cloud, name: str) -> None:
    cloud.client("ecr").put_image(repositoryName=name, imageManifest=json.dumps({"schemaVersion": 2}), imageTag="1")


@pytest.mark.parametrize(
    ("kind", "properties", "fill", "reason"),
    [
        ("AWS::S3::Bucket", {"BucketName": "full"}, full_bucket, "BucketNotEmpty"),
        ("AWS::ECR::Repository", {"RepositoryName": "full"}, full_repository, "not empty"),
    ],
)
def test_what_holds_data_is_not_deleted_with_its_stack(
    cloud: Cloud, stack: Stack, kind: str, properties: dict[str, str], fill: Callable[[Cloud, str], None], reason: str
) -> None:
    """As on AWS: otherwise a destroy that forgets to empty a bucket would look fine here."""
    name = stack({"Thing": resource(kind, **properties)})["StackName"]
    fill(cloud, "full")
    cloudformation = cloud.client("cloudformation")
    cloudformation.delete_stack(StackName=name)
    assert cloudformation.describe_stacks(StackName=name)["Stacks"][0]["StackStatus"] == "DELETE_FAILED"
    events = cloudformation.describe_stack_events(StackName=name)["StackEvents"]
    assert any(reason in event.get("ResourceStatusReason", "") for event in events)
    if kind == "AWS::S3::Bucket":
        cloud.client("s3").delete_object(Bucket="full", Key="data")
    else:
        cloud.client("ecr").batch_delete_image(repositoryName="full", imageIds=[{"imageTag": "1"}])


def test_what_is_in_use_is_not_deleted(cloud: Cloud, stack: Stack) -> None:
    """A stack that loses the group its neighbour's nodes carry fails as on AWS, and goes on when the user is gone."""
    group = NETWORK | {"Group": resource("AWS::EC2::SecurityGroup", GroupDescription="nodes", VpcId=ref("Vpc"))}
    out = stack(group, {"Group": ref("Group"), "A": ref("A"), "B": ref("B")})
    data = {"InstanceType": "m5.large", "SecurityGroupIds": [out["Group"]]}
    user = {
        "Role": CLUSTER["Role"],
        "Cluster": resource(
            "AWS::EKS::Cluster", Name="user", RoleArn=att("Role", "Arn"), ResourcesVpcConfig={"SubnetIds": [out["A"], out["B"]]}
        ),
        "Template": resource("AWS::EC2::LaunchTemplate", LaunchTemplateData=data),
        "Workers": resource(
            "AWS::EKS::Nodegroup",
            ClusterName=ref("Cluster"),
            NodegroupName="workers",
            NodeRole=att("Role", "Arn"),
            Subnets=[out["A"]],
            LaunchTemplate={"Id": ref("Template"), "Version": att("Template", "LatestVersionNumber")},
        ),
    }
    users = stack(user)["StackName"]
    cloudformation = cloud.client("cloudformation")
    cloudformation.delete_stack(StackName=out["StackName"])
    assert cloudformation.describe_stacks(StackName=out["StackName"])["Stacks"][0]["StackStatus"] == "DELETE_FAILED"
    events = cloudformation.describe_stack_events(StackName=out["StackName"])["StackEvents"]
    reasons = " ".join(event.get("ResourceStatusReason", "") for event in events)
    assert f"security group {out['Group']} has a dependent object: node group user/workers" in reasons
    assert f"subnet {out['A']} has a dependent object: cluster user, node group user/workers" in reasons
    cloudformation.delete_stack(StackName=users)
    cloudformation.delete_stack(StackName=out["StackName"])

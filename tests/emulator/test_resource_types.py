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


def test_addresses_and_nat_gateways(cloud: Cloud, stack: Stack) -> None:
    out = stack(
        NETWORK
        | {
            "Ip": resource("AWS::EC2::EIP", Domain="vpc", Tags=[{"Key": "Name", "Value": "nat"}]),
            "Nat": resource("AWS::EC2::NatGateway", SubnetId=ref("A"), AllocationId=att("Ip", "AllocationId")),
        },
        {"Ip": ref("Ip"), "Nat": ref("Nat"), "Subnet": ref("A")},
    )
    gateway = cloud.client("ec2").describe_nat_gateways(NatGatewayIds=[out["Nat"]])["NatGateways"][0]
    address = cloud.client("ec2").describe_addresses()["Addresses"][0]
    assert (gateway["SubnetId"], address["PublicIp"]) == (out["Subnet"], out["Ip"])
    assert {"Key": "owner", "Value": "tests"} in gateway["Tags"]


def test_flow_logs_and_placement_groups(cloud: Cloud, stack: Stack) -> None:
    out = stack(
        NETWORK
        | {
            "Logs": resource("AWS::Logs::LogGroup"),
            "Flow": resource(
                "AWS::EC2::FlowLog", ResourceId=ref("Vpc"), ResourceType="VPC", TrafficType="REJECT", LogGroupName=ref("Logs")
            ),
            "Near": resource("AWS::EC2::PlacementGroup", Strategy="cluster"),
        },
        {"Vpc": ref("Vpc"), "Near": ref("Near")},
    )
    ec2 = cloud.client("ec2")
    assert [(log["ResourceId"], log["TrafficType"]) for log in ec2.describe_flow_logs()["FlowLogs"]] == [(out["Vpc"], "REJECT")]
    assert ec2.describe_placement_groups(GroupNames=[out["Near"]])["PlacementGroups"][0]["Strategy"] == "cluster"


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


def test_a_cluster_as_eks_makes_it(cloud: Cloud, stack: Stack) -> None:
    """Its security group is in EC2, it knows its VPC and its key; add-ons, access entries and pod identities hang on it."""
    out = stack(
        CLUSTER
        | {
            "Admin": resource(
                "AWS::EKS::AccessEntry",
                ClusterName=ref("Cluster"),
                PrincipalArn=att("Role", "Arn"),
                AccessPolicies=[
                    {
                        "PolicyArn": "arn:aws:eks::aws:cluster-access-policy/AmazonEKSViewPolicy",
                        "AccessScope": {"Type": "namespace", "Namespaces": ["jobs"]},
                    }
                ],
            ),
            "Driver": resource(
                "AWS::EKS::Addon",
                ClusterName=ref("Cluster"),
                AddonName="aws-efs-csi-driver",
                PodIdentityAssociations=[{"RoleArn": att("Role", "Arn"), "ServiceAccount": "efs-csi-controller-sa"}],
            ),
            "Identity": resource(
                "AWS::EKS::PodIdentityAssociation",
                ClusterName=ref("Cluster"),
                Namespace="jobs",
                ServiceAccount="data",
                RoleArn=att("Role", "Arn"),
            ),
            "Workers": resource(
                "AWS::EKS::Nodegroup",
                ClusterName=ref("Cluster"),
                NodegroupName="workers",
                NodeRole=att("Role", "Arn"),
                Subnets=[ref("A")],
                CapacityType="SPOT",
                ScalingConfig={"MinSize": 1, "DesiredSize": 2, "MaxSize": 3},
                NodeRepairConfig={"Enabled": True},
            ),
        },
        {
            "Vpc": ref("Vpc"),
            "Group": att("Cluster", "ClusterSecurityGroupId"),
            "Key": att("Key", "Arn"),
            "Role": att("Role", "Arn"),
            "Workers": ref("Workers"),
        },
    )
    eks = cloud.client("eks")
    cluster = eks.describe_cluster(name="made")["cluster"]
    assert cluster["resourcesVpcConfig"]["vpcId"] == out["Vpc"]
    assert cluster["resourcesVpcConfig"]["clusterSecurityGroupId"] == out["Group"]
    assert cluster["encryptionConfig"] == [{"provider": {"keyArn": out["Key"]}, "resources": ["secrets"]}]
    assert cloud.client("ec2").describe_security_groups(GroupIds=[out["Group"]])["SecurityGroups"][0]["VpcId"] == out["Vpc"]
    [policy] = eks.list_associated_access_policies(clusterName="made", principalArn=out["Role"])["associatedAccessPolicies"]
    assert policy["accessScope"] == {"type": "namespace", "namespaces": ["jobs"]}
    assert eks.list_addons(clusterName="made")["addons"] == ["aws-efs-csi-driver"]
    [identity] = eks.list_pod_identity_associations(clusterName="made")["associations"]
    assert (identity["namespace"], identity["serviceAccount"]) == ("jobs", "data")
    assert out["Workers"] == "made/workers"
    workers = eks.describe_nodegroup(clusterName="made", nodegroupName="workers")["nodegroup"]
    assert (workers["capacityType"], workers["nodeRepairConfig"]) == ("SPOT", {"enabled": True})


def test_a_cluster_in_one_zone_is_refused(stack: Stack) -> None:
    one = json.loads(json.dumps(CLUSTER))
    one["Cluster"]["Properties"]["ResourcesVpcConfig"]["SubnetIds"] = [ref("A")]
    with pytest.raises(AssertionError, match="at least two different AZs"):
        stack(one)


def test_groups_providers_and_budgets(cloud: Cloud, stack: Stack) -> None:
    allow = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:ListBucket", "Resource": "*"}]}
    notify = {
        "Notification": {"ComparisonOperator": "GREATER_THAN", "NotificationType": "ACTUAL", "Threshold": 80},
        "Subscribers": [{"Address": "someone@example.org", "SubscriptionType": "EMAIL"}],
    }
    resources = {
        "Policy": resource("AWS::IAM::ManagedPolicy", PolicyDocument=allow, Groups=[ref("People")]),
        "People": resource("AWS::IAM::Group"),
        "Issuer": resource("AWS::IAM::OIDCProvider", Url="https://issuer.example", ClientIdList=["sts.amazonaws.com"]),
        "Budget": resource(
            "AWS::Budgets::Budget",
            Budget={
                "BudgetName": "monthly",
                "BudgetType": "COST",
                "TimeUnit": "MONTHLY",
                "BudgetLimit": {"Amount": 100, "Unit": "USD"},
            },
            NotificationsWithSubscribers=[notify],
        ),
    }
    out = stack(resources, {"People": ref("People"), "Policy": ref("Policy"), "Issuer": ref("Issuer")})
    iam, budgets = cloud.client("iam"), cloud.client("budgets")
    [attached] = iam.list_attached_group_policies(GroupName=out["People"])["AttachedPolicies"]
    assert attached["PolicyArn"] == out["Policy"]
    assert iam.get_open_id_connect_provider(OpenIDConnectProviderArn=out["Issuer"])["ClientIDList"] == ["sts.amazonaws.com"]
    assert budgets.describe_budget(AccountId="000000000000", BudgetName="monthly")["Budget"]["BudgetLimit"]["Amount"] == "100"

    resources["Budget"]["Properties"]["Budget"]["BudgetLimit"]["Amount"] = 200
    stack(resources, name=out["StackName"])
    assert budgets.describe_budget(AccountId="000000000000", BudgetName="monthly")["Budget"]["BudgetLimit"]["Amount"] == "200"


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

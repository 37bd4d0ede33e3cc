"""Repairs MiniStack's own CloudFormation types where they differ from AWS in ways that a deploy or
a destroy would hide.

Promises: a repair wraps MiniStack's handler, or says what MiniStack's tables lack, and nothing
else; boto3 sees what it adds.
docs/emulator.md lists what is still missing.
"""

from __future__ import annotations

import json
from typing import Any

from calls import client
from ministack import app
from ministack.core.responses import new_uuid
from ministack.services import ec2, eks, s3
from ministack.services.cloudformation import provisioners
from resource_types import Call, Properties, after, around


def apply() -> None:
    """Applies every repair."""
    around("AWS::S3::Bucket", delete=_bucket_delete)
    after("AWS::S3::Bucket", _bucket_tagged)
    # MiniStack's change sets say of each property that it may replace the bucket (its schema: only
    # the name does).
    provisioners._REPLACING_PROPERTIES["AWS::S3::Bucket"] = ("BucketName",)
    provisioners._REPLACING_PROPERTIES["AWS::S3::BucketPolicy"] = ("Bucket",)
    # Likewise of a key, whose policy changes in place.
    provisioners._REPLACING_PROPERTIES["AWS::KMS::Key"] = ("Origin",)
    # Fn::GetAtt CidrBlock: MiniStack has only the VPC's defaults.
    after("AWS::EC2::VPC", lambda vpc, old, new: {"CidrBlock": ec2._vpcs[vpc]["CidrBlock"]})
    after("AWS::EKS::Cluster", _cluster_completed)
    around("AWS::EKS::Cluster", delete=_cluster_delete)
    after("AWS::EKS::Nodegroup", _nodegroup_completed)
    # MiniStack has no FSx, and says so in no form that AWS's clients read.
    app.SERVICE_HANDLERS.setdefault("fsx", _no_such_service)


# FSx.


async def _no_such_service(*request: Any) -> tuple[int, dict[str, str], bytes]:
    """Answers as AWS's JSON services answer an operation that they do not have."""
    body = {"__type": "UnknownOperationException", "message": "the emulator has no FSx"}
    return 400, {"Content-Type": "application/x-amz-json-1.1"}, json.dumps(body).encode()


# S3.


def _bucket_delete(delete: Call, bucket: str, props: Properties) -> None:
    """AWS refuses to delete a bucket with objects or old versions; MiniStack's stack delete would
    delete it.
    """
    if bucket in s3._buckets:
        client("s3").delete_bucket(Bucket=bucket)


def _bucket_tagged(bucket: str, old: Properties, new: Properties) -> dict[str, Any]:
    """Sets the template's tags, which MiniStack drops."""
    if new.get("Tags"):
        client("s3").put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": new["Tags"]})
    return {}


# EKS.


def _subnets(props: Properties) -> list[str]:
    return list((props.get("ResourcesVpcConfig") or {}).get("SubnetIds") or [])


def _cluster_completed(name: str, old: Properties, new: Properties) -> dict[str, Any]:
    """Creates the cluster's security group in EC2, sets the cluster's VPC and keeps the properties
    that MiniStack drops.
    """
    cluster = eks._clusters[name]
    network = cluster["resourcesVpcConfig"]
    if not old:
        vpc = ec2._subnets[_subnets(new)[0]]["VpcId"]
        network["vpcId"] = vpc
        group = client("ec2").create_security_group(
            GroupName=f"eks-cluster-sg-{name}-{new_uuid()[:8]}",
            Description="EKS created security group applied to ENI that is attached to EKS "
            "Control Plane "
            "master nodes",
            VpcId=vpc,
        )["GroupId"]
        itself = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}
        client("ec2").authorize_security_group_ingress(GroupId=group, IpPermissions=[itself])
        network["clusterSecurityGroupId"] = group
    for kept in ("EncryptionConfig", "ComputeConfig", "StorageConfig"):
        if kept in new:
            cluster[kept[0].lower() + kept[1:]] = provisioners._pascal_to_camel(new[kept])
    return dict(provisioners._eks_cluster_attrs(cluster))


def _cluster_delete(delete: Call, physical_id: str, props: Properties) -> None:
    """Deletes a cluster with its security group and add-ons."""
    cluster = eks._clusters.get(physical_id)
    if cluster is None:
        return
    for key in [key for key in eks._addons if key.startswith(f"{physical_id}/")]:
        addon = eks._addons.pop(key)
        eks._tags.pop(addon["addonArn"], None)
    eks._delete_cluster(physical_id)
    group = cluster["resourcesVpcConfig"].get("clusterSecurityGroupId")
    if group in ec2._security_groups:
        client("ec2").delete_security_group(GroupId=group)


def _nodegroup_completed(name: str, old: Properties, new: Properties) -> dict[str, Any]:
    """Keeps the properties of a node group that MiniStack drops."""
    group = eks._nodegroups[f"{new['ClusterName']}/{name}"]
    for kept in ("CapacityType", "LaunchTemplate", "NodeRepairConfig"):
        if kept in new:
            group[kept[0].lower() + kept[1:]] = provisioners._pascal_to_camel(new[kept])
    return {"Id": f"{new['ClusterName']}/{name}"}

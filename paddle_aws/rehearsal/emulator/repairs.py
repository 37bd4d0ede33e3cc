"""Repairs of MiniStack's own CloudFormation types, where they differ from AWS in ways that a deploy
or a destroy would hide; and long polling, so that a deploy does not wait for cdk's next question.

Promises: a repair only wraps a handler of MiniStack, or completes its tables. boto3 sees what a
repair adds. docs/emulator.md lists what is still missing.
"""

from __future__ import annotations

import asyncio
import functools
import json
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

from calls import client
from ministack import app
from ministack.core import router
from ministack.core.responses import new_uuid
from ministack.services import cloudformation, ec2, eks, iam, s3
from ministack.services.cloudformation import provisioners
from resource_types import Handler, Properties, complete_after, wrap_handlers


def apply() -> None:
    """Applies every repair."""
    _answer_settled_stacks()
    wrap_handlers("AWS::S3::Bucket", delete=_delete_bucket)
    complete_after("AWS::S3::Bucket", _tag_bucket)
    # In AWS's schema only the name replaces a bucket; MiniStack's change sets say that each
    # property may.
    provisioners._REPLACING_PROPERTIES["AWS::S3::Bucket"] = ("BucketName",)
    provisioners._REPLACING_PROPERTIES["AWS::S3::BucketPolicy"] = ("Bucket",)
    # A key's policy changes in place, too.
    provisioners._REPLACING_PROPERTIES["AWS::KMS::Key"] = ("Origin",)
    # Fn::GetAtt CidrBlock: MiniStack has only the VPC's defaults.
    complete_after(
        "AWS::EC2::VPC", lambda vpc, old, new: {"CidrBlock": ec2._vpcs[vpc]["CidrBlock"]}
    )
    complete_after("AWS::EKS::Cluster", _complete_cluster)
    wrap_handlers("AWS::EKS::Cluster", delete=_delete_cluster)
    complete_after("AWS::EKS::Nodegroup", _complete_nodegroup)
    for kind, why in KEPT.items():
        wrap_handlers(kind, delete=functools.partial(_delete_unless_kept, why))
    # What comes back after its delete: aws/aws-cdk#31487.
    wrap_handlers("AWS::Lambda::Function", delete=_remember_writer)
    wrap_handlers("AWS::Logs::LogGroup", delete=_delete_log_group)
    # MiniStack has no FSx, and its refusal has no form that AWS's clients can read.
    app.SERVICE_HANDLERS.setdefault("fsx", _no_such_service)
    # MiniStack reads botocore's models of all services, four seconds of processor time, at the
    # first request to a service that its router does not know.
    router.SERVICE_PATTERNS.setdefault("fsx", {"target_prefixes": ["AWSSimbaAPIService"]})


# What AWS refuses to delete.


def _users(group: str, props: Properties) -> str:
    users = iam._groups.get(group, {}).get("Users", [])
    return "Cannot delete entity, must remove users from group first." if users else ""


def _policies_of_others(role: str, props: Properties) -> str:
    attached = set(iam._roles.get(role, {}).get("AttachedPolicies", []))
    foreign = attached - set(props.get("ManagedPolicyArns") or [])
    return "Cannot delete entity, must detach all policies first." if foreign else ""


def _users_of_security_group(group: str, props: Properties) -> str:
    rules = [
        rule
        for other in ec2._security_groups.values()
        if other["GroupId"] != group
        for rule in (*other["IpPermissions"], *other["IpPermissionsEgress"])
    ]
    named = any(
        pair["GroupId"] == group for rule in rules for pair in rule.get("UserIdGroupPairs", ())
    )
    used = any(
        group in (worn["GroupId"] for worn in interface.get("Groups", ()))
        for interface in ec2._network_interfaces.values()
    )
    return f"resource {group} has a dependent object" if named or used else ""


KEPT: dict[str, Callable[[str, Properties], str]] = {
    # IAM API, DeleteGroup; go-to-k/delstack#40.
    "AWS::IAM::Group": _users,
    # IAM API, DeleteRole, DeleteConflict.
    "AWS::IAM::Role": _policies_of_others,
    # EC2 API, DeleteSecurityGroup, DependencyViolation.
    "AWS::EC2::SecurityGroup": _users_of_security_group,
}
"""By type: why AWS would not delete a resource, in its words; empty: it would."""


def _delete_unless_kept(
    why: Callable[[str, Properties], str], delete: Handler, physical_id: str, props: Properties
) -> None:
    if reason := why(physical_id, props):
        raise ValueError(reason)
    delete(physical_id, props)


# What comes back after its delete.

_late: set[str] = set()
"""Log groups whose functions may make them again."""


def _remember_writer(delete: Handler, function: str, props: Properties) -> None:
    """Notes whether the function's role may make its log group."""
    group = (props.get("LoggingConfig") or {}).get("LogGroup") or f"/aws/lambda/{function}"
    asked = {"PolicySourceArn": props["Role"], "ActionNames": ["logs:CreateLogGroup"]}
    [answer] = client("iam").simulate_principal_policy(**asked)["EvaluationResults"]
    if answer["EvalDecision"] == "allowed":
        _late.add(group)
    delete(function, props)


def _delete_log_group(delete: Handler, group: str, props: Properties) -> None:
    """Lambda writes a function's last lines after its delete."""
    delete(group, props)
    if group in _late:
        _late.remove(group)
        client("logs").create_log_group(logGroupName=group)


# FSx.


async def _no_such_service(*request: Any) -> tuple[int, dict[str, str], bytes]:
    """Answers as AWS's JSON services answer an operation that they do not have."""
    body = {"__type": "UnknownOperationException", "message": "the emulator has no FSx"}
    return 400, {"Content-Type": "application/x-amz-json-1.1"}, json.dumps(body).encode()


# S3.


def _delete_bucket(delete: Handler, bucket: str, props: Properties) -> None:
    """Deletes through S3's API, which refuses a bucket with objects or old versions, as on AWS."""
    if bucket in s3._buckets:
        client("s3").delete_bucket(Bucket=bucket)


def _tag_bucket(bucket: str, old: Properties, new: Properties) -> dict[str, Any]:
    """Sets the template's tags, which MiniStack drops."""
    if new.get("Tags"):
        client("s3").put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": new["Tags"]})
    return {}


# EKS.


def _complete_cluster(name: str, old: Properties, new: Properties) -> dict[str, Any]:
    """Adds what MiniStack drops: the cluster's security group in EC2, its VPC, its properties."""
    cluster = eks._clusters[name]
    network = cluster["resourcesVpcConfig"]
    if not old:
        vpc = ec2._subnets[new["ResourcesVpcConfig"]["SubnetIds"][0]]["VpcId"]
        network["vpcId"] = vpc
        group = client("ec2").create_security_group(
            GroupName=f"eks-cluster-sg-{name}-{new_uuid()[:8]}",
            Description="EKS created security group applied to ENI that is attached to EKS "
            "Control Plane master nodes",
            VpcId=vpc,
        )["GroupId"]
        itself = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}
        client("ec2").authorize_security_group_ingress(GroupId=group, IpPermissions=[itself])
        network["clusterSecurityGroupId"] = group
    _keep(cluster, new, "EncryptionConfig", "ComputeConfig", "StorageConfig")
    return dict(provisioners._eks_cluster_attrs(cluster))


def _delete_cluster(delete: Handler, physical_id: str, props: Properties) -> None:
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


def _complete_nodegroup(name: str, old: Properties, new: Properties) -> dict[str, Any]:
    """Keeps the properties of a node group that MiniStack drops."""
    physical_id = f"{new['ClusterName']}/{name}"
    group = eks._nodegroups[physical_id]
    _keep(group, new, "CapacityType", "LaunchTemplate", "NodeRepairConfig")
    return {"Id": physical_id}


def _keep(record: dict[str, Any], props: Properties, *names: str) -> None:
    kept = {name: props[name] for name in names if name in props}
    record |= provisioners._pascal_to_camel(kept)


# CloudFormation's own answers.

LONGEST_WAIT = 20.0
"""Seconds; clients time out after 60 or more."""


def _answer_settled_stacks() -> None:
    """Lets DescribeStacks answer once no operation on the stack is in progress: cdk, which asks
    every five seconds, learns within 50 ms that a stack is finished. The answer is MiniStack's own,
    only later, and always before a client times out. A Lambda function gets its answer at once,
    because the stack itself may be waiting for the function.
    """
    answer = cloudformation.handle_request

    async def answer_when_settled(
        method: str, path: str, headers: dict[str, str], body: bytes, query: dict[str, Any]
    ) -> Any:
        describes = b"Action=DescribeStacks&" in body + b"&"
        parameters = parse_qs(body.decode(errors="replace")) if describes else {}
        name = parameters.get("StackName", [""])[0]
        deadline = time.monotonic() + LONGEST_WAIT
        # MiniStack's functions do not identify themselves, but they use bare botocore, which no
        # command-line client does.
        function = headers.get("user-agent", "").startswith("Botocore/")
        while name and not function and _in_progress(name) and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        return await answer(method, path, headers, body, query)

    cloudformation.handle_request = answer_when_settled


def _in_progress(name: str) -> bool:
    """Returns whether the stack with this name or ARN is being created, changed or deleted."""
    for stack in cloudformation._stacks.values():
        if name in (stack.get("StackName"), stack.get("StackId")):
            status = stack.get("StackStatus", "")
            return bool(status.endswith("_IN_PROGRESS") and status != "REVIEW_IN_PROGRESS")
    return False

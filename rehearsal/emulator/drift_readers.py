"""What `cdk drift` compares: the present state of the app's own resources, which MiniStack reads for a few types only.

Promises: a machine count, a rule, a policy or a throughput that was changed by hand is found, and so is a resource that was
deleted by hand; a type that is not read is reported as unchecked by cdk.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from ministack.services import autoscaling, cloudformation, ec2, ecr, efs, eks, iam, kms, route53, s3, secretsmanager
from ministack.services.cloudformation import drift, provisioners

Properties = Mapping[str, Any]
Reader = Callable[[str, Properties], dict[str, Any] | None]


def apply() -> None:
    """Add the readers to MiniStack's."""
    for kind, (reader, properties) in READERS.items():
        drift._DRIFT_READERS[kind] = (reader, frozenset(properties))


def _there(store: Any) -> Reader:
    return lambda physical_id, props: {} if physical_id in store else None


def _vpc(physical_id: str, props: Properties) -> dict[str, Any] | None:
    found = ec2._vpcs.get(physical_id)
    return None if found is None else {"CidrBlock": found["CidrBlock"]}


def _subnet(physical_id: str, props: Properties) -> dict[str, Any] | None:
    found = ec2._subnets.get(physical_id)
    if found is None:
        return None
    return {
        "AvailabilityZone": found["AvailabilityZone"],
        "CidrBlock": found["CidrBlock"],
        "MapPublicIpOnLaunch": bool(found.get("MapPublicIpOnLaunch")),
    }


def _security_group(physical_id: str, props: Properties) -> dict[str, Any] | None:
    """The template's rules that are there, and any rule that no stack has made."""
    found = ec2._security_groups.get(physical_id)
    if found is None:
        return None
    made = {
        resource.get("PhysicalResourceId")
        for stack in cloudformation._stacks.values()
        for resource in (stack.get("_resources") or {}).values()
    }
    current: dict[str, Any] = {}
    for name, stored, egress in (
        ("SecurityGroupIngress", "IpPermissions", False),
        ("SecurityGroupEgress", "IpPermissionsEgress", True),
    ):
        left = [rule for rule in found[stored] if ec2._sg_rule_id(physical_id, egress, rule) not in made]
        there = []
        for rule in props.get(name) or []:
            same = next((one for one in left if ec2._rules_match(provisioners._ec2_sg_permissions([rule])[0], one)), None)
            if same is not None:
                left.remove(same)
                there.append(rule)
        current[name] = there + [_as_template(rule) for rule in left]
    return current


def _as_template(rule: Properties) -> dict[str, Any]:
    told = {key: rule[key] for key in ("IpProtocol", "FromPort", "ToPort") if key in rule}
    for ranges, name in (("IpRanges", "CidrIp"), ("Ipv6Ranges", "CidrIpv6")):
        for one in rule.get(ranges) or []:
            told[name] = one[name]
    for pair in rule.get("UserIdGroupPairs") or []:
        told["SourceSecurityGroupId"] = pair.get("GroupId")
    return told


def _file_system(physical_id: str, props: Properties) -> dict[str, Any] | None:
    found = efs._file_systems.get(physical_id)
    if found is None:
        return None
    current = {key: found[key] for key in ("Encrypted", "ThroughputMode", "KmsKeyId") if key in found}
    if found.get("ProvisionedThroughputInMibps") is not None:
        current["ProvisionedThroughputInMibps"] = found["ProvisionedThroughputInMibps"]
    return current


def _mount_target(physical_id: str, props: Properties) -> dict[str, Any] | None:
    found = efs._mount_targets.get(physical_id)
    return None if found is None else {"SubnetId": found["SubnetId"], "SecurityGroups": found.get("SecurityGroups", [])}


def _cluster(physical_id: str, props: Properties) -> dict[str, Any] | None:
    found = eks._clusters.get(physical_id)
    return None if found is None else {"Version": found["version"]}


def _nodegroup(physical_id: str, props: Properties) -> dict[str, Any] | None:
    found = eks._nodegroups.get(physical_id)
    if found is None:
        return None
    return {
        "CapacityType": found.get("capacityType", "ON_DEMAND"),
        "InstanceTypes": found.get("instanceTypes", []),
        "Labels": found.get("labels", {}),
        "ScalingConfig": {key[0].upper() + key[1:]: value for key, value in found["scalingConfig"].items()},
    }


def _auto_scaling_group(physical_id: str, props: Properties) -> dict[str, Any] | None:
    found = autoscaling._asgs.get(physical_id)
    return None if found is None else {key: str(found[key]) for key in ("MinSize", "MaxSize", "DesiredCapacity")}


def _managed_policy(physical_id: str, props: Properties) -> dict[str, Any] | None:
    found = iam._policies.get(physical_id)
    if found is None:
        return None
    document = found["Versions"][found["DefaultVersionId"]]["Document"]
    return {"PolicyDocument": json.loads(document) if isinstance(document, str) else document}


def _key(physical_id: str, props: Properties) -> dict[str, Any] | None:
    found = kms._keys.get(physical_id)
    if found is None or found.get("KeyState") == "PendingDeletion":
        return None
    return {"EnableKeyRotation": bool(found.get("KeyRotationEnabled"))}


def _repository(physical_id: str, props: Properties) -> dict[str, Any] | None:
    found = ecr._repositories.get(physical_id)
    return None if found is None else {"ImageTagMutability": found["imageTagMutability"]}


def _secret(physical_id: str, props: Properties) -> dict[str, Any] | None:
    found = next((secret for secret in secretsmanager._secrets.values() if secret["ARN"] == physical_id), None)
    return None if found is None else {"Description": found["Description"], "KmsKeyId": found["KmsKeyId"]}


def _volume(physical_id: str, props: Properties) -> dict[str, Any] | None:
    found = ec2._volumes.get(physical_id)
    return None if found is None else {"Encrypted": found["Encrypted"], "Size": found["Size"], "VolumeType": found["VolumeType"]}


def _network_interface(physical_id: str, props: Properties) -> dict[str, Any] | None:
    found = ec2._network_interfaces.get(physical_id)
    if found is None:
        return None
    return {"GroupSet": [group["GroupId"] for group in found["Groups"]], "PrivateIpAddress": found["PrivateIpAddress"]}


def _bucket_policy(physical_id: str, props: Properties) -> dict[str, Any] | None:
    found = s3._bucket_policies.get(props.get("Bucket", ""))
    return None if found is None else {"PolicyDocument": json.loads(found)}


READERS: Mapping[str, tuple[Reader, tuple[str, ...]]] = {
    "AWS::AutoScaling::AutoScalingGroup": (_auto_scaling_group, ("MinSize", "MaxSize", "DesiredCapacity")),
    "AWS::EC2::InternetGateway": (_there(ec2._internet_gateways), ()),
    "AWS::EC2::NetworkInterface": (_network_interface, ("GroupSet", "PrivateIpAddress")),
    "AWS::EC2::Volume": (_volume, ("Encrypted", "Size", "VolumeType")),
    "AWS::SecretsManager::Secret": (_secret, ("Description", "KmsKeyId")),
    "AWS::EC2::LaunchTemplate": (_there(ec2._launch_templates), ()),
    "AWS::EC2::RouteTable": (_there(ec2._route_tables), ()),
    "AWS::EC2::SecurityGroup": (_security_group, ("SecurityGroupIngress", "SecurityGroupEgress")),
    "AWS::EC2::Subnet": (_subnet, ("AvailabilityZone", "CidrBlock", "MapPublicIpOnLaunch")),
    "AWS::EC2::VPC": (_vpc, ("CidrBlock",)),
    "AWS::EC2::VPCEndpoint": (_there(ec2._vpc_endpoints), ()),
    "AWS::ECR::Repository": (_repository, ("ImageTagMutability",)),
    "AWS::EFS::AccessPoint": (_there(efs._access_points), ()),
    "AWS::EFS::FileSystem": (_file_system, ("Encrypted", "ThroughputMode", "ProvisionedThroughputInMibps", "KmsKeyId")),
    "AWS::EFS::MountTarget": (_mount_target, ("SubnetId", "SecurityGroups")),
    "AWS::EKS::Cluster": (_cluster, ("Version",)),
    "AWS::EKS::Nodegroup": (_nodegroup, ("CapacityType", "InstanceTypes", "Labels", "ScalingConfig")),
    "AWS::IAM::InstanceProfile": (_there(iam._instance_profiles), ()),
    "AWS::IAM::ManagedPolicy": (_managed_policy, ("PolicyDocument",)),
    "AWS::KMS::Key": (_key, ("EnableKeyRotation",)),
    "AWS::Route53::HostedZone": (_there(route53._zones), ()),
    "AWS::S3::BucketPolicy": (_bucket_policy, ("PolicyDocument",)),
}
"""A type's reader and the properties that it reads."""

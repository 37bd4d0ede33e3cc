"""What `cdk drift` compares: the present state of the app's own resources, which MiniStack reads for a few types only.

Promises: a machine count, a rule, a policy or a throughput that was changed by hand is found, and so is a resource that was
deleted by hand; a type that is not read is reported as unchecked by cdk.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from ministack.services import autoscaling, budgets, cloudformation, ec2, ecr, efs, eks, iam, kms, route53, s3, secretsmanager
from ministack.services.cloudformation import drift, provisioners
from resource_types import rules

Properties = Mapping[str, Any]
Reader = Callable[[str, Properties], dict[str, Any] | None]


def apply() -> None:
    """Add the readers to MiniStack's."""
    for kind, (reader, properties) in READERS.items():
        drift._DRIFT_READERS[kind] = (reader, frozenset(properties))


def _record(
    store: Mapping[str, Any],
    *names: str,
    by: Callable[[Any], str] | None = None,
    **told: Callable[[Any], Any],
) -> tuple[Reader, tuple[str, ...]]:
    """A reader of the store's records: members by their names, and what a function of the record tells.

    `by` gives a record's physical id where that is not its key, and nothing for a record that counts as gone.
    """

    def read(physical_id: str, props: Properties) -> dict[str, Any] | None:
        found = store.get(physical_id) if by is None else next((one for one in store.values() if by(one) == physical_id), None)
        if found is None:
            return None
        members = {name: found[name] for name in names if found.get(name) is not None}
        return members | {name: tell(found) for name, tell in told.items()}

    return read, (*names, *told)


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


def _rule(physical_id: str, props: Properties) -> dict[str, Any] | None:
    return {} if physical_id in rules(props["GroupId"]) else None


def _default_version(policy: Mapping[str, Any]) -> Any:
    document = policy["Versions"][policy["DefaultVersionId"]]["Document"]
    return json.loads(document) if isinstance(document, str) else document


def _bucket_policy(physical_id: str, props: Properties) -> dict[str, Any] | None:
    found = s3._bucket_policies.get(props.get("Bucket", ""))
    return None if found is None else {"PolicyDocument": json.loads(found)}


READERS: Mapping[str, tuple[Reader, tuple[str, ...]]] = {
    "AWS::AutoScaling::AutoScalingGroup": _record(autoscaling._asgs, "MinSize", "MaxSize", "DesiredCapacity"),
    "AWS::Budgets::Budget": _record(budgets._budgets),
    "AWS::EC2::EIP": _record(ec2._addresses, by=lambda address: address["PublicIp"]),
    "AWS::EC2::EIPAssociation": _record(ec2._addresses, by=lambda address: address["AssociationId"]),
    "AWS::EC2::FlowLog": _record(ec2._flow_logs),
    "AWS::EC2::InternetGateway": _record(ec2._internet_gateways),
    "AWS::EC2::LaunchTemplate": _record(ec2._launch_templates),
    "AWS::EC2::NatGateway": _record(
        ec2._nat_gateways, by=lambda gateway: gateway["NatGatewayId"] if gateway["State"] == "available" else ""
    ),
    "AWS::EC2::NetworkInterface": _record(
        ec2._network_interfaces, "PrivateIpAddress", GroupSet=lambda found: [group["GroupId"] for group in found["Groups"]]
    ),
    "AWS::EC2::PlacementGroup": _record(ec2._placement_groups),
    "AWS::EC2::RouteTable": _record(ec2._route_tables),
    "AWS::EC2::SecurityGroup": (_security_group, ("SecurityGroupIngress", "SecurityGroupEgress")),
    "AWS::EC2::SecurityGroupEgress": (_rule, ()),
    "AWS::EC2::SecurityGroupIngress": (_rule, ()),
    "AWS::EC2::Subnet": _record(
        ec2._subnets,
        "AvailabilityZone",
        "CidrBlock",
        MapPublicIpOnLaunch=lambda subnet: bool(subnet.get("MapPublicIpOnLaunch")),
    ),
    "AWS::EC2::VPC": _record(ec2._vpcs, "CidrBlock"),
    "AWS::EC2::VPCEndpoint": _record(ec2._vpc_endpoints),
    "AWS::EC2::Volume": _record(ec2._volumes, "Encrypted", "Size", "VolumeType"),
    "AWS::ECR::Repository": _record(ecr._repositories, ImageTagMutability=lambda repository: repository["imageTagMutability"]),
    "AWS::EFS::AccessPoint": _record(efs._access_points),
    "AWS::EFS::FileSystem": _record(efs._file_systems, "Encrypted", "ThroughputMode", "ProvisionedThroughputInMibps", "KmsKeyId"),
    "AWS::EFS::MountTarget": _record(
        efs._mount_targets, "SubnetId", SecurityGroups=lambda target: target.get("SecurityGroups", [])
    ),
    "AWS::EKS::AccessEntry": _record(eks._access_entries, by=lambda entry: f"{entry['principalArn']}|{entry['clusterName']}"),
    "AWS::EKS::Addon": _record(eks._addons, by=lambda addon: f"{addon['clusterName']}|{addon['addonName']}"),
    "AWS::EKS::Cluster": _record(eks._clusters, Version=lambda cluster: cluster["version"]),
    "AWS::EKS::Nodegroup": _record(
        eks._nodegroups,
        CapacityType=lambda group: group.get("capacityType", "ON_DEMAND"),
        InstanceTypes=lambda group: group.get("instanceTypes", []),
        Labels=lambda group: group.get("labels", {}),
        ScalingConfig=lambda group: {key[0].upper() + key[1:]: value for key, value in group["scalingConfig"].items()},
    ),
    "AWS::EKS::PodIdentityAssociation": _record(
        eks._pod_identity_associations, by=lambda association: association["associationArn"]
    ),
    "AWS::IAM::Group": _record(iam._groups),
    "AWS::IAM::InstanceProfile": _record(iam._instance_profiles),
    "AWS::IAM::ManagedPolicy": _record(iam._policies, PolicyDocument=_default_version),
    "AWS::IAM::OIDCProvider": _record(iam._oidc_providers),
    "AWS::KMS::Key": _record(
        kms._keys,
        by=lambda key: key["KeyId"] if key["KeyState"] != "PendingDeletion" else "",
        EnableKeyRotation=lambda key: bool(key.get("KeyRotationEnabled")),
    ),
    "AWS::Route53::HostedZone": _record(route53._zones),
    "AWS::S3::BucketPolicy": (_bucket_policy, ("PolicyDocument",)),
    "AWS::SecretsManager::Secret": _record(secretsmanager._secrets, "Description", "KmsKeyId", by=lambda secret: secret["ARN"]),
}
"""A type's reader and the properties that it reads."""

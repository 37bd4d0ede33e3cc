"""Which actions AWS's own handler of a resource type calls: the resource schemas say it, not we.

Promises: the list comes from `handlers.*.permissions` of AWS's schemas (cfn-lint brings them along). They name every
action of every property: TRIGGERS says which property an action is for; the name says it of one that tags; any other is needed.
A type without a schema is refused by name.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Properties = Mapping[str, Any]

READ = re.compile(r"^[a-z0-9-]+:(Describe|Get|List|View|BatchGet)")

NEVER: tuple[str, ...] = ()

TAGS = ("Tags", "FileSystemTags", "AccessPointTags", "HostedZoneTags", "ResourceTags", "TagSpecifications")
TAGGING = re.compile(r":(Tag\w+|AddTagsToResource|CreateTags|CreateOrUpdateTags|ChangeTagsForResource|PutBucketTagging)$")
UNTAGGING = re.compile(r":(Untag\w+|DeleteTags|RemoveTagsFromResource)$")

FOR_NOTHING: Mapping[str, str] = {
    "autoscaling": "StartInstanceRefresh CancelInstanceRefresh SuspendProcesses ResumeProcesses",
    "ec2": (
        "AssignPrivateNatGatewayAddress AssociateNatGatewayAddress DisassociateNatGatewayAddress "
        "ReplaceRouteTableAssociation UnassignPrivateNatGatewayAddress UpdateSecurityGroupRuleDescriptionsEgress "
        "UpdateSecurityGroupRuleDescriptionsIngress"
    ),
    "ecr": "DeleteLifecyclePolicy DeleteRepositoryPolicy",
    "eks": "ActivateCertificateAuthority",
    "elasticfilesystem": "DeleteFileSystemPolicy",
    "firehose": "TagDeliveryStream",
    "iam": "TagInstanceProfile DeletePolicyVersion UpdateRoleDescription",
    "lambda": "AssociateRuntimeAlias DeleteFunctionCodeSigningConfig DeleteFunctionConcurrency PublishVersion",
    "logs": "DeleteIndexPolicy DeleteRetentionPolicy",
    "route53": "DisassociateVPCFromHostedZone",
    "s3": (
        "REST.PUT.OBJECT DeleteBucketAnalyticsConfiguration DeleteBucketCors DeleteBucketEncryption "
        "DeleteBucketLifecycle DeleteBucketMetadataTableConfiguration DeleteBucketMetricsConfiguration "
        "DeleteBucketReplication DeleteBucketWebsite DeleteObject PutObjectAcl "
        "UpdateBucketMetadataAnnotationTableConfiguration UpdateBucketMetadataInventoryTableConfiguration "
        "UpdateBucketMetadataJournalTableConfiguration"
    ),
    "vpc-lattice": "DeregisterTargets RegisterTargets",
}
"""By service, actions that are needed for nothing that a property of the template asks for (moves between accounts and such)."""

TRIGGERS: Mapping[str, tuple[str, ...]] = {
    "autoscaling:DeleteTags": TAGS,
    "budgets:UntagResource": TAGS,
    "cloudwatch:UntagResource": TAGS,
    # EC2.
    "ec2:AcceptAddressTransfer": ("TransferAddress",),
    "ec2:AssociateAddress": ("InstanceId", "NetworkInterfaceId"),
    "ec2:AssociateSubnetCidrBlock": ("Ipv6CidrBlock",),
    "ec2:AttachInternetGateway": ("InternetGatewayId",),
    "ec2:AttachVpnGateway": ("VpnGatewayId",),
    "ec2:AuthorizeSecurityGroupEgress": ("SecurityGroupEgress", "GroupId"),
    "ec2:AuthorizeSecurityGroupIngress": ("SecurityGroupIngress", "GroupId"),
    "ec2:CreateVpcEncryptionControl": ("VpcEncryptionControl",),
    "ec2:DetachInternetGateway": ("InternetGatewayId",),
    "ec2:DetachVpnGateway": ("VpnGatewayId",),
    "ec2:DisassociateAddress": ("InstanceId", "NetworkInterfaceId"),
    "ec2:DisassociateSubnetCidrBlock": ("Ipv6CidrBlock",),
    "ec2:AssignIpv6Addresses": ("Ipv6Addresses", "Ipv6AddressCount"),
    "ec2:AssignPrivateIpAddresses": ("PrivateIpAddresses", "SecondaryPrivateIpAddressCount"),
    "ec2:CopyVolumes": ("SourceVolumeId",),
    "AWS::EC2::Volume ec2:CreateSnapshot": NEVER,
    "AWS::EC2::KeyPair ec2:CreateTags": NEVER,
    "ec2:ModifyNetworkInterfaceAttribute": ("GroupSet", "SourceDestCheck", "Description"),
    "ec2:ModifyPublicIpDnsNameOptions": ("PublicIpDnsHostnameTypeSpecification",),
    "ec2:ModifyVolume": ("Size", "VolumeType", "Iops", "Throughput"),
    "ec2:ModifyVolumeAttribute": ("AutoEnableIO",),
    "ec2:UnassignIpv6Addresses": ("Ipv6Addresses", "Ipv6AddressCount"),
    "ec2:UnassignPrivateIpAddresses": ("PrivateIpAddresses", "SecondaryPrivateIpAddressCount"),
    "ec2:ImportKeyPair": ("PublicKeyMaterial",),
    "ec2:ModifySubnetAttribute": ("MapPublicIpOnLaunch", "AssignIpv6AddressOnCreation", "PrivateDnsNameOptionsOnLaunch"),
    "ec2:ModifyVpcAttribute": ("EnableDnsHostnames", "EnableDnsSupport"),
    "ec2:ModifyVpcTenancy": ("InstanceTenancy",),
    "ec2:RevokeSecurityGroupEgress": ("SecurityGroupEgress", "GroupId"),
    "ec2:RevokeSecurityGroupIngress": ("SecurityGroupIngress", "GroupId"),
    "AWS::EKS::Nodegroup ec2:CreateTags": NEVER,
    "AWS::EKS::Nodegroup ec2:RunInstances": ("LaunchTemplate",),
    "vpc-lattice:CreateServiceNetworkVpcEndpointAssociation": ("ServiceNetworkArn",),
    "vpce:AllowMultiRegion": ("ServiceRegion",),
    "logs:CreateLogDelivery": ("DeliverCrossAccountRole",),
    "logs:DeleteLogDelivery": ("DeliverCrossAccountRole",),
    "AWS::EC2::FlowLog iam:CreateServiceLinkedRole": NEVER,
    "AWS::EC2::FlowLog s3:PutBucketPolicy": NEVER,
    # Auto Scaling.
    "autoscaling:AttachLoadBalancerTargetGroups": ("TargetGroupARNs",),
    "autoscaling:AttachLoadBalancers": ("LoadBalancerNames",),
    "autoscaling:AttachTrafficSources": ("TrafficSources",),
    "autoscaling:DeleteLifecycleHook": ("LifecycleHookSpecificationList",),
    "autoscaling:DetachLoadBalancerTargetGroups": ("TargetGroupARNs",),
    "autoscaling:DetachLoadBalancers": ("LoadBalancerNames",),
    "autoscaling:DetachTrafficSources": ("TrafficSources",),
    "autoscaling:DeleteNotificationConfiguration": ("NotificationConfigurations",),
    "autoscaling:EnableMetricsCollection": ("MetricsCollection",),
    "autoscaling:DisableMetricsCollection": ("MetricsCollection",),
    "autoscaling:PutLifecycleHook": ("LifecycleHookSpecificationList",),
    "autoscaling:PutNotificationConfiguration": ("NotificationConfigurations",),
    "AWS::AutoScaling::AutoScalingGroup cloudwatch:PutMetricAlarm": NEVER,
    "AWS::AutoScaling::AutoScalingGroup iam:PassRole": ("ServiceLinkedRoleARN",),
    # ECR, EFS, EKS.
    "ecr:PutImageScanningConfiguration": ("ImageScanningConfiguration",),
    "ecr:PutImageTagMutability": ("ImageTagMutability",),
    "ecr:PutLifecyclePolicy": ("LifecyclePolicy",),
    "ecr:SetRepositoryPolicy": ("RepositoryPolicyText",),
    "elasticfilesystem:CreateReplicationConfiguration": ("ReplicationConfiguration",),
    "elasticfilesystem:DeleteReplicationConfiguration": ("ReplicationConfiguration",),
    "elasticfilesystem:PutBackupPolicy": ("BackupPolicy",),
    "elasticfilesystem:PutFileSystemPolicy": ("FileSystemPolicy",),
    "elasticfilesystem:PutLifecycleConfiguration": ("LifecyclePolicies",),
    "elasticfilesystem:UpdateFileSystem": ("ThroughputMode", "ProvisionedThroughputInMibps"),
    "elasticfilesystem:UpdateFileSystemProtection": ("FileSystemProtection",),
    "AWS::EFS::FileSystem iam:PassRole": ("ReplicationConfiguration",),
    "eks:AssociateAccessPolicy": ("AccessPolicies",),
    "eks:DisassociateAccessPolicy": ("AccessPolicies",),
    "AWS::EKS::Addon eks:CreatePodIdentityAssociation": ("PodIdentityAssociations",),
    "AWS::EKS::Addon eks:DeletePodIdentityAssociation": ("PodIdentityAssociations",),
    "AWS::EKS::Addon eks:UpdatePodIdentityAssociation": ("PodIdentityAssociations",),
    "AWS::EKS::Cluster eks:CreateAccessEntry": NEVER,
    "AWS::EKS::Cluster iam:PassRole": ("RoleArn",),
    "eks:UpdateClusterConfig": ("ResourcesVpcConfig", "Logging", "AccessConfig", "UpgradePolicy", "DeletionProtection"),
    "eks:UpdateClusterVersion": ("Version",),
    "eks:UpdateNodegroupConfig": ("ScalingConfig", "Labels", "Taints", "UpdateConfig", "NodeRepairConfig"),
    "eks:UpdateNodegroupVersion": ("Version", "ReleaseVersion", "LaunchTemplate"),
    # EKS manages the instance profile of Auto Mode's nodes; node groups bring their own role.
    "AWS::EKS::Cluster iam:CreateInstanceProfile": ("ComputeConfig.Enabled",),
    "AWS::EKS::Cluster iam:AddRoleToInstanceProfile": ("ComputeConfig.Enabled",),
    "AWS::EKS::Cluster iam:DeleteInstanceProfile": ("ComputeConfig.Enabled",),
    "AWS::EKS::Cluster iam:RemoveRoleFromInstanceProfile": ("ComputeConfig.Enabled",),
    # IAM.
    "iam:AttachGroupPolicy": ("Groups", "ManagedPolicyArns"),
    "iam:AttachRolePolicy": ("Roles", "ManagedPolicyArns"),
    "iam:AttachUserPolicy": ("Users",),
    "iam:DetachGroupPolicy": ("Groups", "ManagedPolicyArns"),
    "iam:DetachRolePolicy": ("Roles", "ManagedPolicyArns"),
    "iam:DetachUserPolicy": ("Users",),
    "iam:DeleteGroupPolicy": ("Policies", "Groups"),
    "iam:DeleteRolePolicy": ("Policies", "Roles"),
    "iam:DeleteUserPolicy": ("Users",),
    "iam:PutGroupPolicy": ("Policies", "Groups"),
    "iam:PutRolePolicy": ("Policies", "Roles"),
    "iam:PutUserPolicy": ("Users",),
    "iam:CreatePolicyVersion": ("PolicyDocument",),
    "iam:DeleteRolePermissionsBoundary": ("PermissionsBoundary",),
    "iam:PutRolePermissionsBoundary": ("PermissionsBoundary",),
    "iam:UpdateAssumeRolePolicy": ("AssumeRolePolicyDocument",),
    "iam:UpdateGroup": ("GroupName", "Path"),
    "iam:UpdateRole": ("Description", "MaxSessionDuration"),
    # KMS, and the key of another type's property.
    "kms:CreateGrant": ("KmsKeyId", "EncryptionConfiguration", "EncryptionConfig", "KmsKeyArn"),
    "kms:Decrypt": ("KmsKeyArn",),
    "kms:DisableKey": ("Enabled",),
    "kms:DisableKeyRotation": ("EnableKeyRotation",),
    "kms:EnableKey": ("Enabled",),
    "kms:EnableKeyRotation": ("EnableKeyRotation",),
    "kms:Encrypt": ("KmsKeyArn",),
    "kms:GenerateDataKey": ("KmsKeyArn",),
    "kms:GenerateDataKeyWithoutPlaintext": ("KmsKeyId",),
    "AWS::KMS::Key kms:PutKeyPolicy": ("KeyPolicy",),
    "kms:ReEncryptFrom": ("SnapshotId",),
    "kms:ReEncryptTo": ("SnapshotId",),
    "kms:RetireGrant": ("EncryptionConfiguration",),
    "kms:UpdateKeyDescription": ("Description",),
    # Lambda.
    "lambda:PassCapacityProvider": ("CapacityProviderConfig",),
    "lambda:PutFunctionCodeSigningConfig": ("CodeSigningConfigArn",),
    "lambda:PutFunctionConcurrency": ("ReservedConcurrentExecutions",),
    "lambda:PutFunctionRecursionConfig": ("RecursiveLoop",),
    "lambda:PutFunctionScalingConfig": ("FunctionScalingConfig",),
    "lambda:PutRuntimeManagementConfig": ("RuntimeManagementConfig",),
    "lambda:UpdateFunctionCode": ("Code",),
    # Logs.
    "AWS::Logs::LogGroup logs:CreateLogDelivery": NEVER,
    "logs:AssociateKmsKey": ("KmsKeyId",),
    "logs:DeleteDataProtectionPolicy": ("DataProtectionPolicy",),
    "logs:DeleteResourcePolicy": ("ResourcePolicyDocument",),
    "logs:DisassociateKmsKey": ("KmsKeyId",),
    "logs:PutBearerTokenAuthentication": ("BearerTokenAuthenticationEnabled",),
    "logs:PutDataProtectionPolicy": ("DataProtectionPolicy",),
    "logs:PutIndexPolicy": ("FieldIndexPolicies",),
    "logs:PutLogGroupDeletionProtection": ("DeletionProtectionEnabled",),
    "logs:PutResourcePolicy": ("ResourcePolicyDocument", "PolicyDocument"),
    "logs:PutRetentionPolicy": ("RetentionInDays",),
    # Route 53.
    "route53:AssociateVPCWithHostedZone": ("VPCs",),
    "route53:CreateQueryLoggingConfig": ("QueryLoggingConfig",),
    "route53:DeleteQueryLoggingConfig": ("QueryLoggingConfig",),
    "route53:UpdateHostedZoneComment": ("HostedZoneConfig",),
    "route53:UpdateHostedZoneFeatures": ("HostedZoneFeatures",),
    # S3.
    "AWS::S3::Bucket iam:PassRole": ("ReplicationConfiguration",),
    "s3:CreateBucketMetadataTableConfiguration": ("MetadataTableConfiguration",),
    "s3:PutAccelerateConfiguration": ("AccelerateConfiguration",),
    "s3:PutAnalyticsConfiguration": ("AnalyticsConfigurations",),
    "s3:PutBucketAbac": ("AbacStatus",),
    "s3:PutBucketAcl": ("AccessControl",),
    "s3:PutBucketCORS": ("CorsConfiguration",),
    "s3:PutBucketLogging": ("LoggingConfiguration",),
    "s3:PutBucketNotification": ("NotificationConfiguration",),
    "s3:PutBucketObjectLockConfiguration": ("ObjectLockConfiguration",),
    "s3:PutBucketOwnershipControls": ("OwnershipControls",),
    "s3:PutBucketPublicAccessBlock": ("PublicAccessBlockConfiguration",),
    "s3:PutBucketReplication": ("ReplicationConfiguration",),
    "s3:PutBucketVersioning": ("VersioningConfiguration",),
    "s3:PutBucketWebsite": ("WebsiteConfiguration",),
    "s3:PutEncryptionConfiguration": ("BucketEncryption",),
    "s3:PutIntelligentTieringConfiguration": ("IntelligentTieringConfigurations",),
    "s3:PutInventoryConfiguration": ("InventoryConfigurations",),
    "s3:PutLifecycleConfiguration": ("LifecycleConfiguration",),
    "s3:PutMetricsConfiguration": ("MetricsConfigurations",),
    "s3:PutObjectLockConfiguration": ("ObjectLockConfiguration",),
    "s3:PutReplicationConfiguration": ("ReplicationConfiguration",),
    # Secrets Manager.
    "secretsmanager:GetRandomPassword": ("GenerateSecretString",),
    "secretsmanager:RemoveRegionsFromReplication": ("ReplicaRegions",),
    "secretsmanager:ReplicateSecretToRegions": ("ReplicaRegions",),
    # SNS, SSM.
    "AWS::SNS::Topic iam:PassRole": ("DeliveryStatusLogging",),
    "AWS::SNS::Subscription iam:PassRole": ("SubscriptionRoleArn",),
    "sns:PutDataProtectionPolicy": ("DataProtectionPolicy",),
    "AWS::SNS::Topic sns:Subscribe": ("Subscription",),
    "sns:Unsubscribe": ("Subscription", "TopicArn"),
    "AWS::EC2::KeyPair ssm:PutParameter": ("KeyName",),
    "AWS::EC2::KeyPair ssm:DeleteParameter": ("KeyName",),
}

IN_THE_CALLERS_NAME: Mapping[tuple[str, str], tuple[str, ...]] = {
    # EFS works on a mount target's network interface with its caller's rights (EFS API reference, CreateMountTarget and so on).
    ("AWS::EFS::MountTarget", "create"): ("ec2:CreateNetworkInterface",),
    ("AWS::EFS::MountTarget", "update"): ("ec2:ModifyNetworkInterfaceAttribute",),
    ("AWS::EFS::MountTarget", "delete"): ("ec2:DeleteNetworkInterface",),
}
"""(type, operation) -> what the service asks for beside what the schema of its type names."""

_schemas: list[Path] = []


def read_schemas_from(folder: Path) -> None:
    """Name the folder of AWS's schemas, once."""
    _schemas[:] = [folder]


@functools.cache
def _schema(kind: str) -> dict[str, Any] | None:
    """AWS's schema of a type."""
    names = _names()
    if kind not in names:
        return None
    found: dict[str, Any] = json.loads((_schemas[0] / "resources" / f"{names[kind]}.json").read_text())
    return found


@functools.cache
def _names() -> dict[str, str]:
    names: dict[str, str] = json.loads((_schemas[0] / "providers" / "us-east-1.json").read_text())
    return names


def needed(kind: str, operation: str, old: Properties, new: Properties) -> list[str]:
    """The actions that AWS's handler of `kind` calls for this operation."""
    schema = _schema(kind)
    handlers = (schema or {}).get("handlers")
    if handlers is None:
        raise ValueError(f"the emulator knows no permissions of {kind}: AWS's schema of it names none")
    actions = [*handlers.get(operation, {}).get("permissions", []), *IN_THE_CALLERS_NAME.get((kind, operation), ())]
    found = []
    for action in actions:
        if READ.match(action) or action.startswith(("s3tables:", "managed-fleets:")):
            continue
        properties = _triggers(kind, action)
        if properties is None or _touched(properties, operation, old, new):
            found.append(action)
    # Every handler ends with a look at what it did.
    found += [
        action for action in (handlers.get("read") or {}).get("permissions", []) if READ.match(action) and _own(kind, action)
    ]
    return sorted(set(found))


def _triggers(kind: str, action: str) -> tuple[str, ...] | None:
    """The properties that an action is for; None: it is always needed."""
    for known in (f"{kind} {action}", action):
        if known in TRIGGERS:
            return TRIGGERS[known]
    service, _, name = action.partition(":")
    if UNTAGGING.search(action) or name in FOR_NOTHING.get(service, "").split():
        return NEVER
    return TAGS if TAGGING.search(action) else None


def _own(kind: str, action: str) -> bool:
    """Reads of the type's own service; what belongs to features that the template does not use is read with them."""
    service = {"EFS": "elasticfilesystem"}.get(kind.split("::")[1], kind.split("::")[1].lower())
    return action.split(":")[0] == service


def _touched(properties: tuple[str, ...], operation: str, old: Properties, new: Properties) -> bool:
    if operation == "update":
        return any(_value(old, path) != _value(new, path) for path in properties)
    return any(_value(new, path) not in (None, "", [], {}, False, "false") for path in properties)


def _value(props: Properties, path: str) -> Any:
    """A property, or one inside it: `ComputeConfig.Enabled`."""
    found: Any = props
    for part in path.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found

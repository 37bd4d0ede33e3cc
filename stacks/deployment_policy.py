"""What CloudFormation may do when it deploys one cluster: policy files for `cdk bootstrap --cloudformation-execution-policies`.

Promises: made from cluster.yaml alone, before anything is deployed; each file is below IAM's 6,144 characters; a star
stands in an action for Describe, List and Get alone; roles are handed on by name and to named services; what is named in
IAM, S3, ECR, EKS, SNS, Lambda and CloudWatch carries the cluster's name. Imports no aws_cdk.

    python -m stacks.deployment_policy --config cluster.yaml --out dist/policies

writes the files and prints the commands that make the policies and bootstrap with them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stacks.cluster_spec import ClusterSpec
from stacks.settings import SettingError

LIMIT = 6144
"""IAM's limit of a managed policy, characters, white space not counted."""

AWS_POLICIES = (
    "AmazonEKSClusterPolicy",
    "AmazonEKSWorkerNodePolicy",
    "AmazonEKS_CNI_Policy",
    "AmazonEC2ContainerRegistryPullOnly",
    "CloudWatchAgentServerPolicy",
)
"""AWS's managed policies that our roles hold: no other may be attached."""


@dataclass(frozen=True)
class Statement:
    """One statement and its reason."""

    sid: str
    why: str
    actions: tuple[str, ...]
    resources: tuple[str, ...] = ("*",)
    conditions: dict[str, dict[str, Any]] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """As IAM takes it."""
        document: dict[str, Any] = {
            "Sid": self.sid,
            "Effect": "Allow",
            "Action": list(self.actions),
            "Resource": list(self.resources),
        }
        if self.conditions:
            document["Condition"] = self.conditions
        return document


def statements(spec: ClusterSpec) -> Iterator[Statement]:
    """Every statement that deploying, changing and destroying `spec`'s stacks takes, and no other."""
    yield from _look(spec)
    yield from _network(spec)
    yield from _storage(spec)
    yield from _people_and_roles(spec)
    if spec.cluster.self_managed:
        yield from _own_control_plane(spec)
    else:
        yield from _cluster(spec)
    yield from _nodes(spec)
    yield from _watch(spec)


def documents(spec: ClusterSpec) -> dict[str, dict[str, Any]]:
    """The policies by file name, as few as hold all statements."""
    files: list[list[dict[str, Any]]] = [[]]
    for statement in statements(spec):
        document = statement.document()
        if size({"Version": "2012-10-17", "Statement": [*files[-1], document]}) > LIMIT:
            files.append([])
        files[-1].append(document)
    return {
        f"{spec.name}-deploy-{number}.json": {"Version": "2012-10-17", "Statement": found}
        for number, found in enumerate(files, 1)
    }


def size(document: dict[str, Any]) -> int:
    """Characters as IAM counts them."""
    return len(json.dumps(document, separators=(",", ":")))


def table(*specs: ClusterSpec) -> str:
    """The statements of all of `specs` and their reasons, for docs/deployment-policy.md."""
    rows = {f"| `{each.sid}` | {each.why} |": None for spec in specs for each in statements(spec)}
    return "\n".join(["| statement | why it is needed |", "|---|---|", *rows])


def _emptier(spec: ClusterSpec) -> bool:
    return not (spec.retain or spec.bucket.existing_name)


def _arn(spec: ClusterSpec, service: str, resource: str, *, region: bool = True, account: bool = True) -> str:
    # The account is whoever's the policy is in: an identity's policy reaches no other.
    return f"arn:{_partition(spec)}:{service}:{spec.region if region else ''}:{'*' if account else ''}:{resource}"


def _partition(spec: ClusterSpec) -> str:
    return {"cn": "aws-cn", "us-gov": "aws-us-gov"}.get(spec.region.rpartition("-")[0].rpartition("-")[0], "aws")


def _look(spec: ClusterSpec) -> Iterator[Statement]:
    own = spec.cluster.self_managed
    yield Statement(
        "Look",
        "CloudFormation looks at what is there before and after each change; nothing here reads data",
        (
            "autoscaling:Describe*",
            "billing:GetBillingViewData",
            "budgets:ListTagsForResource",
            "budgets:ViewBudget",
            "cloudwatch:DescribeAlarms",
            "cloudwatch:GetDashboard",
            "cloudwatch:ListTagsForResource",
            "ec2:Describe*",
            "ecr:Describe*",
            "ecr:GetLifecyclePolicy",
            "ecr:GetRepositoryPolicy",
            "ecr:ListTagsForResource",
            *(() if own else ("eks:Describe*", "eks:List*")),
            "elasticfilesystem:Describe*",
            "elasticfilesystem:ListTagsForResource",
            "iam:Get*",
            "iam:List*",
            "kms:DescribeKey",
            "kms:GetKeyPolicy",
            "kms:GetKeyRotationStatus",
            "kms:List*",
            "lambda:Get*",
            "lambda:List*",
            "logs:Describe*",
            "logs:GetDataProtectionPolicy",
            "logs:ListTagsForResource",
            "route53:Get*",
            "route53:List*",
            "s3:GetAccelerateConfiguration",
            "s3:GetAnalyticsConfiguration",
            "s3:GetBucket*",
            "s3:GetEncryptionConfiguration",
            "s3:GetIntelligentTieringConfiguration",
            "s3:GetInventoryConfiguration",
            "s3:GetLifecycleConfiguration",
            "s3:GetMetricsConfiguration",
            "s3:GetReplicationConfiguration",
            "s3:ListBucket",
            "s3:ListTagsForResource",
            *(("secretsmanager:DescribeSecret", "secretsmanager:GetRandomPassword") if own else ()),
            "sns:Get*",
            "sns:List*",
            "ssm:ListTagsForResource",
        ),
    )
    images = "ami-amazon-linux-latest" if own else "eks"
    yield Statement(
        "Parameters",
        "templates name the version of the bootstrap, and the parameter of a self-managed node's image",
        ("ssm:GetParameters",),
        (_arn(spec, "ssm", "parameter/cdk-bootstrap/*"), _arn(spec, "ssm", f"parameter/aws/service/{images}/*", account=False)),
    )
    if not (spec.cluster.existing or own):
        yield Statement(
            "Marker",
            "the CDK leaves a marker in the stack of a cluster",
            (
                "ssm:AddTagsToResource",
                "ssm:DeleteParameter",
                "ssm:GetParameters",
                "ssm:PutParameter",
                "ssm:RemoveTagsFromResource",
            ),
            (_arn(spec, "ssm", "parameter/CFN-*"),),
        )


def _network(spec: ClusterSpec) -> Iterator[Statement]:
    def ec2(*kinds: str) -> tuple[str, ...]:
        return tuple(_arn(spec, "ec2", f"{kind}/*") for kind in kinds)

    if not spec.network.existing:
        yield Statement(
            "Vpc",
            "the VPC, its subnets and their routes",
            (
                "ec2:AssociateRouteTable",
                "ec2:CreateRouteTable",
                "ec2:CreateSubnet",
                "ec2:CreateVpc",
                "ec2:DeleteRouteTable",
                "ec2:DeleteSubnet",
                "ec2:DeleteVpc",
                "ec2:DisassociateRouteTable",
                "ec2:ModifySubnetAttribute",
                "ec2:ModifyVpcAttribute",
                "ec2:ReplaceRouteTableAssociation",
            ),
            ec2("route-table", "subnet", "vpc"),
        )
        if spec.cluster.self_managed:
            yield Statement(
                "DhcpOptions",
                "a self-managed cluster's VPC has DHCP options of its own",
                ("ec2:AssociateDhcpOptions", "ec2:CreateDhcpOptions", "ec2:DeleteDhcpOptions"),
                ec2("dhcp-options", "vpc"),
            )
        if spec.network.nat_gateways:
            yield Statement(
                "WayOut",
                "the addresses, gateways and routes that lead out of it",
                (
                    "ec2:AllocateAddress",
                    "ec2:AttachInternetGateway",
                    "ec2:CreateInternetGateway",
                    "ec2:CreateNatGateway",
                    "ec2:CreateRoute",
                    "ec2:DeleteInternetGateway",
                    "ec2:DeleteNatGateway",
                    "ec2:DeleteRoute",
                    "ec2:DetachInternetGateway",
                    "ec2:DisassociateAddress",
                    "ec2:ReleaseAddress",
                    "ec2:ReplaceRoute",
                ),
                ec2("elastic-ip", "internet-gateway", "natgateway", "network-interface", "route-table", "subnet", "vpc"),
            )
    if not spec.network.existing or spec.network.interface_endpoints:
        yield Statement(
            "VpcEndpoints",
            "S3 and, where asked for, AWS's other services by private addresses (their names resolve by a hosted zone)",
            (
                "ec2:CreateVpcEndpoint",
                "ec2:DeleteVpcEndpoints",
                "ec2:ModifyVpcEndpoint",
                "route53:AssociateVPCWithHostedZone",
            ),
            (
                *ec2("route-table", "security-group", "subnet", "vpc", "vpc-endpoint"),
                _arn(spec, "route53", "hostedzone/*", region=False, account=False),
            ),
        )
    yield Statement(
        "SecurityGroups",
        "who may connect to whom: file system, cluster, endpoints, SSH and fabric where asked for",
        (
            "ec2:AuthorizeSecurityGroupEgress",
            "ec2:AuthorizeSecurityGroupIngress",
            "ec2:CreateSecurityGroup",
            "ec2:DeleteSecurityGroup",
            "ec2:RevokeSecurityGroupEgress",
            "ec2:RevokeSecurityGroupIngress",
            "ec2:UpdateSecurityGroupRuleDescriptionsEgress",
            "ec2:UpdateSecurityGroupRuleDescriptionsIngress",
        ),
        ec2("security-group", "security-group-rule", "vpc"),
    )
    yield Statement(
        "NetworkTags",
        "everything is tagged with the cluster's name when it is made, and untagged when a tag goes",
        ("ec2:CreateTags", "ec2:DeleteTags"),
        (_arn(spec, "ec2", "*"),),
    )
    if spec.network.flow_log_days:
        yield Statement(
            "FlowLogs",
            "records of the VPC's traffic",
            ("ec2:CreateFlowLogs", "ec2:DeleteFlowLogs"),
            ec2("vpc", "vpc-flow-log"),
        )
    zones = _arn(
        spec, "route53", f"hostedzone/{spec.zone.existing.id if spec.zone.existing else '*'}", region=False, account=False
    )
    yield Statement("EndpointName", "the endpoint's name in the zone", ("route53:ChangeResourceRecordSets",), (zones,))
    if not spec.zone.existing:
        yield Statement("NewZone", "a zone that does not exist has no ARN yet", ("route53:CreateHostedZone",))
        yield Statement(
            "Zone",
            "the private zone",
            (
                "route53:AssociateVPCWithHostedZone",
                "route53:ChangeTagsForResource",
                "route53:DeleteHostedZone",
                "route53:UpdateHostedZoneComment",
            ),
            (zones, *ec2("vpc")),
        )


def _storage(spec: ClusterSpec) -> Iterator[Statement]:
    keys = (spec.key.existing_arn,) if spec.key.existing_arn else (_arn(spec, "kms", "key/*"),)
    if not spec.key.existing_arn:
        yield Statement("NewKey", "the key; one that does not exist has no ARN yet", ("kms:CreateKey",))
        yield Statement(
            "Key",
            "its policy, rotation, name and end",
            (
                "kms:CreateAlias",
                "kms:DeleteAlias",
                "kms:DisableKeyRotation",
                "kms:EnableKeyRotation",
                "kms:PutKeyPolicy",
                "kms:ScheduleKeyDeletion",
                "kms:TagResource",
                "kms:UntagResource",
                "kms:UpdateAlias",
                "kms:UpdateKeyDescription",
            ),
            (*keys, _arn(spec, "kms", f"alias/{spec.name}")),
        )
    sealing = ["kms:RetireGrant"]
    own = spec.cluster.self_managed
    sealing += ["kms:GenerateDataKeyWithoutPlaintext"] if own or not spec.file_system.existing else []
    sealing += ["kms:Encrypt"] if _emptier(spec) else []
    # A function's variables, and a secret's value.
    sealing += ["kms:Decrypt", "kms:GenerateDataKey"] if own or _emptier(spec) else []
    sealing += ["kms:ReEncryptFrom", "kms:ReEncryptTo"] if spec.cluster.volume_snapshot else []
    yield Statement(
        "SealWithKey",
        "services seal data, images, functions, secrets and state with the key, in the name of whoever makes them",
        tuple(sorted(sealing)),
        keys,
    )
    yield Statement(
        "GrantKey",
        "... and go on doing so by a grant, which AWS's services alone may be given",
        ("kms:CreateGrant",),
        keys,
        {"Bool": {"kms:GrantIsForAWSResource": "true"}},
    )
    if not spec.file_system.existing:
        yield Statement(
            "FileSystem",
            "the file system",
            (
                "elasticfilesystem:CreateFileSystem",
                "elasticfilesystem:DeleteFileSystem",
                "elasticfilesystem:DeleteTags",
                "elasticfilesystem:PutBackupPolicy",
                "elasticfilesystem:PutFileSystemPolicy",
                "elasticfilesystem:PutLifecycleConfiguration",
                "elasticfilesystem:UpdateFileSystem",
            ),
            (_arn(spec, "elasticfilesystem", "file-system/*"),),
        )
    yield Statement(
        "MountTargets",
        "its mount targets and access point",
        (
            "elasticfilesystem:CreateAccessPoint",
            "elasticfilesystem:CreateMountTarget",
            "elasticfilesystem:DeleteAccessPoint",
            "elasticfilesystem:DeleteMountTarget",
            "elasticfilesystem:ModifyMountTargetSecurityGroups",
            "elasticfilesystem:TagResource",
            "elasticfilesystem:UntagResource",
        ),
        (_arn(spec, "elasticfilesystem", "file-system/*"), _arn(spec, "elasticfilesystem", "access-point/*")),
    )
    yield Statement(
        "MountTargetInterfaces",
        "EFS makes a mount target's interface in the name of whoever makes the target; a self-managed control plane has one",
        ("ec2:CreateNetworkInterface", "ec2:DeleteNetworkInterface", "ec2:ModifyNetworkInterfaceAttribute"),
        tuple(_arn(spec, "ec2", f"{kind}/*") for kind in ("network-interface", "security-group", "subnet")),
    )
    if not spec.bucket.existing_name:
        yield Statement(
            "Buckets",
            "the bucket and the bucket of its access logs; no right to an object in them",
            (
                "s3:CreateBucket",
                "s3:DeleteBucket",
                "s3:DeleteBucketPolicy",
                "s3:PutBucketLogging",
                "s3:PutBucketOwnershipControls",
                "s3:PutBucketPolicy",
                "s3:PutBucketPublicAccessBlock",
                "s3:PutBucketTagging",
                "s3:PutBucketVersioning",
                "s3:PutEncryptionConfiguration",
                "s3:PutLifecycleConfiguration",
                "s3:TagResource",
                "s3:UntagResource",
            ),
            (_arn(spec, "s3", f"{spec.name}-*", region=False, account=False),),
        )
        if _emptier(spec):
            yield Statement(
                "Emptier",
                "the function that empties the buckets when their stack goes (retain: false), called by CloudFormation",
                (
                    "lambda:CreateFunction",
                    "lambda:DeleteFunction",
                    "lambda:InvokeFunction",
                    "lambda:TagResource",
                    "lambda:UntagResource",
                    "lambda:UpdateFunctionCode",
                    "lambda:UpdateFunctionConfiguration",
                ),
                (_arn(spec, "lambda", f"function:{spec.name}-*"),),
            )
    yield Statement(
        "Images",
        "the image repository",
        (
            "ecr:CreateRepository",
            "ecr:DeleteLifecyclePolicy",
            "ecr:DeleteRepository",
            "ecr:PutImageScanningConfiguration",
            "ecr:PutImageTagMutability",
            "ecr:PutLifecyclePolicy",
            "ecr:TagResource",
            "ecr:UntagResource",
        ),
        (_arn(spec, "ecr", f"repository/{spec.name}/*"),),
    )
    names = [f"{spec.name}-*", *([] if spec.cluster.self_managed else [f"/aws/eks/{spec.cluster_name}/*"])]
    if spec.node_metrics:
        names.append(f"/aws/containerinsights/{spec.cluster_name}/*")
    yield Statement(
        "LogGroups",
        "groups of flow logs, control-plane logs and container logs, each with an end and a key",
        (
            "logs:AssociateKmsKey",
            "logs:CreateLogGroup",
            "logs:DeleteLogGroup",
            "logs:DisassociateKmsKey",
            "logs:PutRetentionPolicy",
            "logs:TagResource",
            "logs:UntagResource",
        ),
        tuple(_arn(spec, "logs", f"log-group:{name}") for name in names),
    )


def _people_and_roles(spec: ClusterSpec) -> Iterator[Statement]:
    def iam(kind: str) -> str:
        return _arn(spec, "iam", f"{kind}/{spec.name}-*", region=False)

    own = spec.cluster.self_managed
    theirs = ("AmazonEC2ContainerRegistryPullOnly",) if own else AWS_POLICIES
    attachable = [iam("policy"), *(f"arn:{_partition(spec)}:iam::aws:policy/{name}" for name in theirs)]
    yield Statement(
        "Roles",
        "roles of cluster, nodes, pods and people, by this cluster's name",
        (
            "iam:CreateRole",
            "iam:DeleteRole",
            "iam:TagRole",
            "iam:UntagRole",
            "iam:UpdateAssumeRolePolicy",
            "iam:UpdateRole",
            "iam:UpdateRoleDescription",
        ),
        (iam("role"),),
    )
    yield Statement(
        "Policies",
        "what these roles and groups may do",
        ("iam:CreatePolicy", "iam:CreatePolicyVersion", "iam:DeletePolicy", "iam:DeletePolicyVersion"),
        (iam("policy"),),
    )
    yield Statement(
        "Attach",
        "... is attached to them: our own policies and the few of AWS that EKS asks for, no other (not AdministratorAccess)",
        ("iam:AttachGroupPolicy", "iam:AttachRolePolicy", "iam:DetachGroupPolicy", "iam:DetachRolePolicy"),
        (iam("role"), iam("group")),
        {"ArnLike": {"iam:PolicyARN": attachable}},
    )
    yield Statement("Groups", "the people's groups", ("iam:CreateGroup", "iam:DeleteGroup"), (iam("group"),))
    services = ["ec2.amazonaws.com", *([] if own else ["eks.amazonaws.com", "pods.eks.amazonaws.com"])]
    services += ["vpc-flow-logs.amazonaws.com"] if spec.network.flow_log_days else []
    services += ["lambda.amazonaws.com"] if _emptier(spec) else []
    yield Statement(
        "HandOnRoles",
        "a role is handed to the service that works with it: ours alone, to these services alone",
        ("iam:PassRole",),
        (iam("role"),),
        {"StringEquals": {"iam:PassedToService": services}},
    )
    linked = ["autoscaling.amazonaws.com", "elasticfilesystem.amazonaws.com", "spot.amazonaws.com"]
    linked += [] if own else ["eks.amazonaws.com", "eks-nodegroup.amazonaws.com"]
    yield Statement(
        "ServicesOwnRoles",
        "in an account that never had a cluster, services make their own roles with their first resource",
        ("iam:CreateServiceLinkedRole",),
        (_arn(spec, "iam", "role/aws-service-role/*", region=False),),
        {"StringEquals": {"iam:AWSServiceName": linked}},
    )


def _cluster(spec: ClusterSpec) -> Iterator[Statement]:
    name = spec.cluster_name
    if not spec.cluster.existing:
        yield Statement(
            "Cluster",
            "the control plane",
            (
                "eks:CreateCluster",
                "eks:DeleteCluster",
                "eks:UpdateClusterConfig",
                "eks:UpdateClusterVersion",
            ),
            (_arn(spec, "eks", f"cluster/{name}"),),
        )
    yield Statement(
        "ClusterParts",
        "its add-ons, access entries and pod identities",
        (
            "eks:AssociateAccessPolicy",
            "eks:CreateAccessEntry",
            "eks:CreateAddon",
            "eks:CreatePodIdentityAssociation",
            "eks:DeleteAccessEntry",
            "eks:DeleteAddon",
            "eks:DeletePodIdentityAssociation",
            "eks:DisassociateAccessPolicy",
            "eks:TagResource",
            "eks:UntagResource",
            "eks:UpdateAccessEntry",
            "eks:UpdateAddon",
            "eks:UpdatePodIdentityAssociation",
        ),
        tuple(
            _arn(spec, "eks", f"{kind}/{name}{rest}")
            for kind, rest in (
                ("cluster", ""),
                ("addon", "/*"),
                ("access-entry", "/*"),
                ("podidentityassociation", "/*"),
            )
        ),
    )
    if spec.cluster.oidc_provider:
        yield Statement(
            "OidcProvider",
            "the cluster's OIDC provider",
            (
                "iam:AddClientIDToOpenIDConnectProvider",
                "iam:CreateOpenIDConnectProvider",
                "iam:DeleteOpenIDConnectProvider",
                "iam:RemoveClientIDFromOpenIDConnectProvider",
                "iam:TagOpenIDConnectProvider",
                "iam:UntagOpenIDConnectProvider",
                "iam:UpdateOpenIDConnectProviderThumbprint",
            ),
            (_arn(spec, "iam", "oidc-provider/oidc.eks.*", region=False),),
        )


def _own_control_plane(spec: ClusterSpec) -> Iterator[Statement]:
    settings = spec.cluster
    if settings.elastic_ip:
        # With a NAT gateway of ours, WayOut allocates addresses already.
        new = () if spec.network.nat_gateways and not spec.network.existing else ("ec2:AllocateAddress", "ec2:ReleaseAddress")
        yield Statement(
            "PublicAddress",
            "the control plane's Elastic IP, on its network interface",
            ("ec2:AssociateAddress", *(("ec2:DisassociateAddress",) if new else ()), *new),
            (_arn(spec, "ec2", "elastic-ip/*"), _arn(spec, "ec2", "network-interface/*")),
        )
    # What is left at the end; CloudFormation also takes one where a template says Snapshot.
    snapshot = ("ec2:CreateSnapshot",) if spec.retain else ()
    began = (f"arn:{_partition(spec)}:ec2:{spec.region}::snapshot/*",) if spec.retain or settings.volume_snapshot else ()
    yield Statement(
        "StateVolume",
        "the volume of the control plane's state, and with `retain: true` a snapshot of it at the end",
        ("ec2:CreateVolume", "ec2:DeleteVolume", "ec2:ModifyVolume", *snapshot),
        (_arn(spec, "ec2", "volume/*"), *began),
    )
    yield Statement(
        "Secrets",
        "join tokens, CA hash and kubeconfigs, by this cluster's name",
        (
            "secretsmanager:CreateSecret",
            "secretsmanager:DeleteSecret",
            "secretsmanager:GetSecretValue",
            "secretsmanager:TagResource",
            "secretsmanager:UntagResource",
            "secretsmanager:UpdateSecret",
        ),
        (_arn(spec, "secretsmanager", f"secret:{spec.name}/*"),),
    )
    if settings.ssh and not settings.ssh.key_pair:
        yield Statement(
            "KeyPair",
            "the SSH key pair that is made, whose private key EC2 puts into Parameter Store",
            ("ec2:CreateKeyPair", "ec2:DeleteKeyPair", "ssm:DeleteParameter", "ssm:PutParameter"),
            (_arn(spec, "ec2", f"key-pair/{spec.name}"), _arn(spec, "ssm", "parameter/ec2/keypair/*")),
        )


def _nodes(spec: ClusterSpec) -> Iterator[Statement]:
    templates = (_arn(spec, "ec2", "launch-template/*"),)
    yield Statement(
        "LaunchTemplates",
        "what a node is",
        (
            "ec2:CreateLaunchTemplate",
            "ec2:CreateLaunchTemplateVersion",
            "ec2:DeleteLaunchTemplate",
            "ec2:ModifyLaunchTemplate",
        ),
        templates,
    )
    if any(group.placement_group for group in spec.nodes.values()):
        yield Statement(
            "PlacementGroups",
            "nodes close together",
            ("ec2:CreatePlacementGroup", "ec2:DeletePlacementGroup"),
            (_arn(spec, "ec2", "placement-group/*"),),
        )
    # A machine is launched with all of these; the image is Amazon's own and has no account.
    kinds = ("instance", "key-pair", "network-interface", "placement-group", "security-group", "subnet", "volume")
    yield Statement(
        "RunNodes",
        "EKS and Auto Scaling try a launch in the name of whoever makes the group",
        ("ec2:RunInstances",),
        (
            *templates,
            *(_arn(spec, "ec2", f"{kind}/*") for kind in kinds),
            _arn(spec, "ec2", "image/*", account=False),
        ),
    )
    if len(spec.own_groups) < len(spec.nodes):
        yield Statement(
            "NodeGroups",
            "managed groups",
            (
                "eks:CreateNodegroup",
                "eks:DeleteNodegroup",
                "eks:TagResource",
                "eks:UntagResource",
                "eks:UpdateNodegroupConfig",
                "eks:UpdateNodegroupVersion",
            ),
            (_arn(spec, "eks", f"cluster/{spec.cluster_name}"), _arn(spec, "eks", f"nodegroup/{spec.cluster_name}/*")),
        )
    if spec.own_groups:
        yield Statement(
            "AutoScaling",
            "self-managed groups, the control plane's own of one among them; CloudFormation replaces their nodes one at a time",
            (
                "autoscaling:CreateAutoScalingGroup",
                "autoscaling:CreateOrUpdateTags",
                "autoscaling:DeleteAutoScalingGroup",
                "autoscaling:DeleteTags",
                *(
                    ("autoscaling:DisableMetricsCollection", "autoscaling:EnableMetricsCollection")
                    if spec.cluster.self_managed
                    else ()
                ),
                "autoscaling:ResumeProcesses",
                "autoscaling:SuspendProcesses",
                "autoscaling:TerminateInstanceInAutoScalingGroup",
                "autoscaling:UpdateAutoScalingGroup",
            ),
            (_arn(spec, "autoscaling", f"autoScalingGroup:*:autoScalingGroupName/{spec.name}-*"),),
        )
        yield Statement(
            "InstanceProfiles",
            "self-managed nodes carry their role in a profile",
            (
                "iam:AddRoleToInstanceProfile",
                "iam:CreateInstanceProfile",
                "iam:DeleteInstanceProfile",
                "iam:RemoveRoleFromInstanceProfile",
            ),
            (_arn(spec, "iam", f"instance-profile/{spec.name}-*", region=False),),
        )


def _watch(spec: ClusterSpec) -> Iterator[Statement]:
    if not spec.budget:
        return
    yield Statement(
        "Alarms",
        "alarms and the dashboard",
        (
            "cloudwatch:DeleteAlarms",
            "cloudwatch:DeleteDashboards",
            "cloudwatch:PutDashboard",
            "cloudwatch:PutMetricAlarm",
            "cloudwatch:TagResource",
            "cloudwatch:UntagResource",
        ),
        (
            _arn(spec, "cloudwatch", f"alarm:{spec.name}-*"),
            _arn(spec, "cloudwatch", f"dashboard/{spec.name}", region=False),
        ),
    )
    yield Statement(
        "AlarmTopic",
        "the topic by which alarms reach people",
        (
            "sns:CreateTopic",
            "sns:DeleteTopic",
            "sns:SetSubscriptionAttributes",
            "sns:SetTopicAttributes",
            "sns:Subscribe",
            "sns:TagResource",
            "sns:Unsubscribe",
            "sns:UntagResource",
        ),
        (_arn(spec, "sns", f"{spec.name}-*"),),
    )
    if not spec.budget.monthly_usd:
        return
    yield Statement(
        "Budget",
        "the monthly budget",
        ("budgets:ModifyBudget", "budgets:TagResource", "budgets:UntagResource"),
        (_arn(spec, "budgets", f"budget/{spec.name}", region=False),),
    )


def main(arguments: list[str] | None = None) -> int:
    """Writes the files; 2 if the settings cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m stacks.deployment_policy", description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=Path, default=Path("cluster.yaml"), help="the cluster's settings (cluster.yaml)")
    parser.add_argument("--out", type=Path, default=Path("dist/policies"), help="where the files go (dist/policies)")
    options = parser.parse_args(arguments)
    try:
        spec = ClusterSpec.load(options.config)
    except SettingError as error:
        print(error, file=sys.stderr)
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    names = []
    for name, document in documents(spec).items():
        (options.out / name).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        names.append(name.removesuffix(".json"))
        print(f"aws iam create-policy --policy-name {names[-1]} --policy-document file://{options.out / name}")
    partition = _partition(spec)
    account = "$(aws sts get-caller-identity --query Account --output text)"
    arns = ",".join(f"arn:{partition}:iam::{account}:policy/{name}" for name in names)
    print(f'cdk bootstrap --cloudformation-execution-policies "{arns}" aws://{account}/{spec.region}')
    return 0


if __name__ == "__main__":
    sys.exit(main())

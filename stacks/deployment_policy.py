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
        said = {"Sid": self.sid, "Effect": "Allow", "Action": list(self.actions), "Resource": list(self.resources)}
        return {**said, **({"Condition": self.conditions} if self.conditions else {})}


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
        if size(_document([*files[-1], document])) > LIMIT:
            files.append([])
        files[-1].append(document)
    return {f"{spec.name}-deploy-{number}.json": _document(found) for number, found in enumerate(files, 1)}


def _document(statements: list[dict[str, Any]]) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": statements}


def size(document: dict[str, Any]) -> int:
    """Characters as IAM counts them."""
    return len(json.dumps(document, separators=(",", ":")))


def table(*specs: ClusterSpec) -> str:
    """The statements of all of `specs` and their reasons, for docs/deployment-policy.md."""
    rows = {f"| `{each.sid}` | {each.why} |": None for spec in specs for each in statements(spec)}
    return "\n".join(["| statement | why it is needed |", "|---|---|", *rows])


def _actions(*services: str) -> tuple[str, ...]:
    """IAM's names of actions; each of `services` is one service and what is called of it: `"ec2: CreateVpc DeleteVpc"`."""
    return tuple(f"{service}:{name}" for service, names in (each.split(": ") for each in services) for name in names.split())


def _emptier(spec: ClusterSpec) -> bool:
    return not (spec.retain or spec.bucket.existing_name)


def _arn(spec: ClusterSpec, service: str, resource: str, *, region: bool = True, account: bool = True) -> str:
    # The account is whoever's the policy is in: an identity's policy reaches no other.
    return f"arn:{_partition(spec)}:{service}:{spec.region if region else ''}:{'*' if account else ''}:{resource}"


def _ec2(spec: ClusterSpec, kinds: str) -> tuple[str, ...]:
    """Everything of some kinds, such as `"subnet vpc"`."""
    return tuple(_arn(spec, "ec2", f"{kind}/*") for kind in kinds.split())


def _zone(spec: ClusterSpec, id: str) -> str:
    return _arn(spec, "route53", f"hostedzone/{id}", region=False, account=False)


def _partition(spec: ClusterSpec) -> str:
    return {"cn": "aws-cn", "us-gov": "aws-us-gov"}.get(spec.region.rpartition("-")[0].rpartition("-")[0], "aws")


def _look(spec: ClusterSpec) -> Iterator[Statement]:
    own = spec.cluster.self_managed
    yield Statement(
        "Look",
        "CloudFormation looks at what is there before and after each change; nothing here reads data",
        _actions(
            "autoscaling: Describe*",
            "billing: GetBillingViewData",
            "budgets: ListTagsForResource ViewBudget",
            "cloudwatch: DescribeAlarms GetDashboard ListTagsForResource",
            "ec2: Describe*",
            "ecr: Describe* GetLifecyclePolicy GetRepositoryPolicy ListTagsForResource",
            *(() if own else ("eks: Describe* List*",)),
            "elasticfilesystem: Describe* ListTagsForResource",
            "iam: Get* List*",
            "kms: DescribeKey GetKeyPolicy GetKeyRotationStatus List*",
            "lambda: Get* List*",
            "logs: Describe* GetDataProtectionPolicy ListTagsForResource",
            "route53: Get* List*",
            "s3: GetAccelerateConfiguration GetAnalyticsConfiguration GetBucket* GetEncryptionConfiguration "
            "GetIntelligentTieringConfiguration GetInventoryConfiguration GetLifecycleConfiguration GetMetricsConfiguration "
            "GetReplicationConfiguration ListBucket ListTagsForResource",
            *(("secretsmanager: DescribeSecret GetRandomPassword",) if own else ()),
            "sns: Get* List*",
            "ssm: ListTagsForResource",
        ),
    )
    images = "ami-amazon-linux-latest" if own else "eks"
    yield Statement(
        "Parameters",
        "templates name the version of the bootstrap, and the parameter of a self-managed node's image",
        _actions("ssm: GetParameters"),
        (_arn(spec, "ssm", "parameter/cdk-bootstrap/*"), _arn(spec, "ssm", f"parameter/aws/service/{images}/*", account=False)),
    )
    if not (spec.cluster.existing or own):
        yield Statement(
            "Marker",
            "the CDK leaves a marker in the stack of a cluster",
            _actions("ssm: AddTagsToResource DeleteParameter GetParameters PutParameter RemoveTagsFromResource"),
            (_arn(spec, "ssm", "parameter/CFN-*"),),
        )


def _network(spec: ClusterSpec) -> Iterator[Statement]:
    if not spec.network.existing:
        yield Statement(
            "Vpc",
            "the VPC, its subnets and their routes",
            _actions(
                "ec2: AssociateRouteTable CreateRouteTable CreateSubnet CreateVpc DeleteRouteTable DeleteSubnet DeleteVpc "
                "DisassociateRouteTable ModifySubnetAttribute ModifyVpcAttribute ReplaceRouteTableAssociation"
            ),
            _ec2(spec, "route-table subnet vpc"),
        )
        if spec.cluster.self_managed:
            yield Statement(
                "DhcpOptions",
                "a self-managed cluster's VPC has DHCP options of its own",
                _actions("ec2: AssociateDhcpOptions CreateDhcpOptions DeleteDhcpOptions"),
                _ec2(spec, "dhcp-options vpc"),
            )
        if spec.network.nat_gateways:
            yield Statement(
                "WayOut",
                "the addresses, gateways and routes that lead out of it",
                _actions(
                    "ec2: AllocateAddress AttachInternetGateway CreateInternetGateway CreateNatGateway CreateRoute "
                    "DeleteInternetGateway DeleteNatGateway DeleteRoute DetachInternetGateway DisassociateAddress "
                    "ReleaseAddress ReplaceRoute"
                ),
                _ec2(spec, "elastic-ip internet-gateway natgateway network-interface route-table subnet vpc"),
            )
    if not spec.network.existing or spec.network.interface_endpoints:
        yield Statement(
            "VpcEndpoints",
            "S3 and, where asked for, AWS's other services by private addresses (their names resolve by a hosted zone)",
            _actions("ec2: CreateVpcEndpoint DeleteVpcEndpoints ModifyVpcEndpoint", "route53: AssociateVPCWithHostedZone"),
            (*_ec2(spec, "route-table security-group subnet vpc vpc-endpoint"), _zone(spec, "*")),
        )
    yield Statement(
        "SecurityGroups",
        "who may connect to whom: file system, cluster, endpoints, SSH and fabric where asked for",
        _actions(
            "ec2: AuthorizeSecurityGroupEgress AuthorizeSecurityGroupIngress CreateSecurityGroup DeleteSecurityGroup "
            "RevokeSecurityGroupEgress RevokeSecurityGroupIngress UpdateSecurityGroupRuleDescriptionsEgress "
            "UpdateSecurityGroupRuleDescriptionsIngress"
        ),
        _ec2(spec, "security-group security-group-rule vpc"),
    )
    yield Statement(
        "NetworkTags",
        "everything is tagged with the cluster's name when it is made, and untagged when a tag goes",
        _actions("ec2: CreateTags DeleteTags"),
        (_arn(spec, "ec2", "*"),),
    )
    if spec.network.flow_log_days:
        yield Statement(
            "FlowLogs",
            "records of the VPC's traffic",
            _actions("ec2: CreateFlowLogs DeleteFlowLogs"),
            _ec2(spec, "vpc vpc-flow-log"),
        )
    zone = _zone(spec, spec.zone.existing.id if spec.zone.existing else "*")
    yield Statement("EndpointName", "the endpoint's name in the zone", _actions("route53: ChangeResourceRecordSets"), (zone,))
    if not spec.zone.existing:
        yield Statement("NewZone", "a zone that does not exist has no ARN yet", _actions("route53: CreateHostedZone"))
        yield Statement(
            "Zone",
            "the private zone",
            _actions("route53: AssociateVPCWithHostedZone ChangeTagsForResource DeleteHostedZone UpdateHostedZoneComment"),
            (zone, *_ec2(spec, "vpc")),
        )


def _storage(spec: ClusterSpec) -> Iterator[Statement]:
    keys = (spec.key.existing_arn,) if spec.key.existing_arn else (_arn(spec, "kms", "key/*"),)
    if not spec.key.existing_arn:
        yield Statement("NewKey", "the key; one that does not exist has no ARN yet", _actions("kms: CreateKey"))
        yield Statement(
            "Key",
            "its policy, rotation, name and end",
            _actions(
                "kms: CreateAlias DeleteAlias DisableKeyRotation EnableKeyRotation PutKeyPolicy ScheduleKeyDeletion TagResource "
                "UntagResource UpdateAlias UpdateKeyDescription"
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
        _actions("kms: CreateGrant"),
        keys,
        {"Bool": {"kms:GrantIsForAWSResource": "true"}},
    )
    if not spec.file_system.existing:
        yield Statement(
            "FileSystem",
            "the file system",
            _actions(
                "elasticfilesystem: CreateFileSystem DeleteFileSystem DeleteTags PutBackupPolicy PutFileSystemPolicy "
                "PutLifecycleConfiguration UpdateFileSystem"
            ),
            (_arn(spec, "elasticfilesystem", "file-system/*"),),
        )
    yield Statement(
        "MountTargets",
        "its mount targets and access point",
        _actions(
            "elasticfilesystem: CreateAccessPoint CreateMountTarget DeleteAccessPoint DeleteMountTarget "
            "ModifyMountTargetSecurityGroups TagResource UntagResource"
        ),
        (_arn(spec, "elasticfilesystem", "file-system/*"), _arn(spec, "elasticfilesystem", "access-point/*")),
    )
    yield Statement(
        "MountTargetInterfaces",
        "EFS makes a mount target's interface in the name of whoever makes the target; a self-managed control plane has one",
        _actions("ec2: CreateNetworkInterface DeleteNetworkInterface ModifyNetworkInterfaceAttribute"),
        _ec2(spec, "network-interface security-group subnet"),
    )
    if not spec.bucket.existing_name:
        yield Statement(
            "Buckets",
            "the bucket and the bucket of its access logs; no right to an object in them",
            _actions(
                "s3: CreateBucket DeleteBucket DeleteBucketPolicy PutBucketLogging PutBucketOwnershipControls PutBucketPolicy "
                "PutBucketPublicAccessBlock PutBucketTagging PutBucketVersioning PutEncryptionConfiguration "
                "PutLifecycleConfiguration TagResource UntagResource"
            ),
            (_arn(spec, "s3", f"{spec.name}-*", region=False, account=False),),
        )
        if _emptier(spec):
            yield Statement(
                "Emptier",
                "the function that empties the buckets when their stack goes (retain: false), called by CloudFormation",
                _actions(
                    "lambda: CreateFunction DeleteFunction InvokeFunction TagResource UntagResource UpdateFunctionCode "
                    "UpdateFunctionConfiguration"
                ),
                (_arn(spec, "lambda", f"function:{spec.name}-*"),),
            )
    yield Statement(
        "Images",
        "the image repository",
        _actions(
            "ecr: CreateRepository DeleteLifecyclePolicy DeleteRepository PutImageScanningConfiguration PutImageTagMutability "
            "PutLifecyclePolicy TagResource UntagResource"
        ),
        (_arn(spec, "ecr", f"repository/{spec.name}/*"),),
    )
    names = [f"{spec.name}-*", *([] if spec.cluster.self_managed else [f"/aws/eks/{spec.cluster_name}/*"])]
    if spec.node_metrics:
        names.append(f"/aws/containerinsights/{spec.cluster_name}/*")
    yield Statement(
        "LogGroups",
        "groups of flow logs, control-plane logs and container logs, each with an end and a key",
        _actions(
            "logs: AssociateKmsKey CreateLogGroup DeleteLogGroup DisassociateKmsKey PutRetentionPolicy TagResource UntagResource"
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
        _actions("iam: CreateRole DeleteRole TagRole UntagRole UpdateAssumeRolePolicy UpdateRole UpdateRoleDescription"),
        (iam("role"),),
    )
    yield Statement(
        "Policies",
        "what these roles and groups may do",
        _actions("iam: CreatePolicy CreatePolicyVersion DeletePolicy DeletePolicyVersion"),
        (iam("policy"),),
    )
    yield Statement(
        "Attach",
        "... is attached to them: our own policies and the few of AWS that EKS asks for, no other (not AdministratorAccess)",
        _actions("iam: AttachGroupPolicy AttachRolePolicy DetachGroupPolicy DetachRolePolicy"),
        (iam("role"), iam("group")),
        {"ArnLike": {"iam:PolicyARN": attachable}},
    )
    yield Statement("Groups", "the people's groups", _actions("iam: CreateGroup DeleteGroup"), (iam("group"),))
    services = ["ec2.amazonaws.com", *([] if own else ["eks.amazonaws.com", "pods.eks.amazonaws.com"])]
    services += ["vpc-flow-logs.amazonaws.com"] if spec.network.flow_log_days else []
    services += ["lambda.amazonaws.com"] if _emptier(spec) else []
    yield Statement(
        "HandOnRoles",
        "a role is handed to the service that works with it: ours alone, to these services alone",
        _actions("iam: PassRole"),
        (iam("role"),),
        {"StringEquals": {"iam:PassedToService": services}},
    )
    linked = ["autoscaling.amazonaws.com", "elasticfilesystem.amazonaws.com", "spot.amazonaws.com"]
    linked += [] if own else ["eks.amazonaws.com", "eks-nodegroup.amazonaws.com"]
    yield Statement(
        "ServicesOwnRoles",
        "in an account that never had a cluster, services make their own roles with their first resource",
        _actions("iam: CreateServiceLinkedRole"),
        (_arn(spec, "iam", "role/aws-service-role/*", region=False),),
        {"StringEquals": {"iam:AWSServiceName": linked}},
    )


def _cluster(spec: ClusterSpec) -> Iterator[Statement]:
    name = spec.cluster_name
    cluster = _arn(spec, "eks", f"cluster/{name}")
    if not spec.cluster.existing:
        yield Statement(
            "Cluster",
            "the control plane",
            _actions("eks: CreateCluster DeleteCluster UpdateClusterConfig UpdateClusterVersion"),
            (cluster,),
        )
    yield Statement(
        "ClusterParts",
        "its add-ons, access entries and pod identities",
        _actions(
            "eks: AssociateAccessPolicy CreateAccessEntry CreateAddon CreatePodIdentityAssociation DeleteAccessEntry "
            "DeleteAddon DeletePodIdentityAssociation DisassociateAccessPolicy TagResource UntagResource UpdateAccessEntry "
            "UpdateAddon UpdatePodIdentityAssociation"
        ),
        (cluster, *(_arn(spec, "eks", f"{kind}/{name}/*") for kind in ("addon", "access-entry", "podidentityassociation"))),
    )
    if spec.cluster.oidc_provider:
        yield Statement(
            "OidcProvider",
            "the cluster's OIDC provider",
            _actions(
                "iam: AddClientIDToOpenIDConnectProvider CreateOpenIDConnectProvider DeleteOpenIDConnectProvider "
                "RemoveClientIDFromOpenIDConnectProvider TagOpenIDConnectProvider UntagOpenIDConnectProvider "
                "UpdateOpenIDConnectProviderThumbprint"
            ),
            (_arn(spec, "iam", "oidc-provider/oidc.eks.*", region=False),),
        )


def _own_control_plane(spec: ClusterSpec) -> Iterator[Statement]:
    settings = spec.cluster
    if settings.elastic_ip:
        # With a NAT gateway of ours, WayOut allocates addresses already.
        ours = spec.network.nat_gateways and not spec.network.existing
        new = "" if ours else "DisassociateAddress AllocateAddress ReleaseAddress"
        yield Statement(
            "PublicAddress",
            "the control plane's Elastic IP, on its network interface",
            _actions(f"ec2: AssociateAddress {new}"),
            _ec2(spec, "elastic-ip network-interface"),
        )
    # What is left at the end; CloudFormation also takes one where a template says Snapshot.
    snapshot = "CreateSnapshot" if spec.retain else ""
    began = (f"arn:{_partition(spec)}:ec2:{spec.region}::snapshot/*",) if spec.retain or settings.volume_snapshot else ()
    yield Statement(
        "StateVolume",
        "the volume of the control plane's state, and with `retain: true` a snapshot of it at the end",
        _actions(f"ec2: CreateVolume DeleteVolume ModifyVolume {snapshot}"),
        (*_ec2(spec, "volume"), *began),
    )
    yield Statement(
        "Secrets",
        "join tokens, CA hash and kubeconfigs, by this cluster's name",
        _actions("secretsmanager: CreateSecret DeleteSecret GetSecretValue TagResource UntagResource UpdateSecret"),
        (_arn(spec, "secretsmanager", f"secret:{spec.name}/*"),),
    )
    if settings.ssh and not settings.ssh.key_pair:
        yield Statement(
            "KeyPair",
            "the SSH key pair that is made, whose private key EC2 puts into Parameter Store",
            _actions("ec2: CreateKeyPair DeleteKeyPair", "ssm: DeleteParameter PutParameter"),
            (_arn(spec, "ec2", f"key-pair/{spec.name}"), _arn(spec, "ssm", "parameter/ec2/keypair/*")),
        )


def _nodes(spec: ClusterSpec) -> Iterator[Statement]:
    yield Statement(
        "LaunchTemplates",
        "what a node is",
        _actions("ec2: CreateLaunchTemplate CreateLaunchTemplateVersion DeleteLaunchTemplate ModifyLaunchTemplate"),
        _ec2(spec, "launch-template"),
    )
    if any(group.placement_group for group in spec.nodes.values()):
        yield Statement(
            "PlacementGroups",
            "nodes close together",
            _actions("ec2: CreatePlacementGroup DeletePlacementGroup"),
            _ec2(spec, "placement-group"),
        )
    # A machine is launched with all of these; the image is Amazon's own and has no account.
    kinds = "launch-template instance key-pair network-interface placement-group security-group subnet volume"
    yield Statement(
        "RunNodes",
        "EKS and Auto Scaling try a launch in the name of whoever makes the group",
        _actions("ec2: RunInstances"),
        (*_ec2(spec, kinds), _arn(spec, "ec2", "image/*", account=False)),
    )
    if len(spec.own_groups) < len(spec.nodes):
        yield Statement(
            "NodeGroups",
            "managed groups",
            _actions(
                "eks: CreateNodegroup DeleteNodegroup TagResource UntagResource UpdateNodegroupConfig UpdateNodegroupVersion"
            ),
            (_arn(spec, "eks", f"cluster/{spec.cluster_name}"), _arn(spec, "eks", f"nodegroup/{spec.cluster_name}/*")),
        )
    if spec.own_groups:
        counts = "DisableMetricsCollection EnableMetricsCollection" if spec.cluster.self_managed else ""
        yield Statement(
            "AutoScaling",
            "self-managed groups, the control plane's own of one among them; CloudFormation replaces their nodes one at a time",
            _actions(
                f"autoscaling: CreateAutoScalingGroup CreateOrUpdateTags DeleteAutoScalingGroup DeleteTags {counts} "
                "ResumeProcesses SuspendProcesses TerminateInstanceInAutoScalingGroup UpdateAutoScalingGroup"
            ),
            (_arn(spec, "autoscaling", f"autoScalingGroup:*:autoScalingGroupName/{spec.name}-*"),),
        )
        yield Statement(
            "InstanceProfiles",
            "self-managed nodes carry their role in a profile",
            _actions("iam: AddRoleToInstanceProfile CreateInstanceProfile DeleteInstanceProfile RemoveRoleFromInstanceProfile"),
            (_arn(spec, "iam", f"instance-profile/{spec.name}-*", region=False),),
        )


def _watch(spec: ClusterSpec) -> Iterator[Statement]:
    if not spec.budget:
        return
    yield Statement(
        "Alarms",
        "alarms and the dashboard",
        _actions("cloudwatch: DeleteAlarms DeleteDashboards PutDashboard PutMetricAlarm TagResource UntagResource"),
        (_arn(spec, "cloudwatch", f"alarm:{spec.name}-*"), _arn(spec, "cloudwatch", f"dashboard/{spec.name}", region=False)),
    )
    yield Statement(
        "AlarmTopic",
        "the topic by which alarms reach people",
        _actions(
            "sns: CreateTopic DeleteTopic SetSubscriptionAttributes SetTopicAttributes Subscribe TagResource Unsubscribe "
            "UntagResource"
        ),
        (_arn(spec, "sns", f"{spec.name}-*"),),
    )
    if not spec.budget.monthly_usd:
        return
    yield Statement(
        "Budget",
        "the monthly budget",
        _actions("budgets: ModifyBudget TagResource UntagResource"),
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

"""EC2 machines: IAM roles, launch templates (IMDSv2 only, encrypted disks), and how an Auto Scaling group replaces them."""

import json
from typing import Any

from aws_cdk import CfnAutoScalingRollingUpdate, CfnCreationPolicy, CfnResourceSignal, CfnUpdatePolicy
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from constructs_lib.acknowledged import acknowledge, managed_policies, wildcards
from constructs_lib.ec2.node_shape import NodeShape
from constructs_lib.statements import OF_MACHINES, statements

SIGNAL_TIMEOUT = "PT15M"
"""How long CloudFormation waits for a machine that says when it is ready."""
SESSIONS = "Session Manager's documents grant its agent these actions on every resource"
SCALING_ACTIVITIES = "Auto Scaling's own list of activities has each machine that comes or goes, and why"
"""Reasons that several constructs acknowledge findings with."""
PULL_ONLY = "AmazonEC2ContainerRegistryPullOnly"
NODE_POLICIES = ("AmazonEKSWorkerNodePolicy", "AmazonEKS_CNI_Policy", PULL_ONLY)
"""AWS's own, which EKS's documents ask for: AWS keeps them in step with what the node's daemons call."""


def machine_role(scope: Construct, id: str) -> iam.Role:
    """A role that EC2 instances take to pull images; what else it may do is its own policy's matter."""
    return _role(scope, id, "AWS's own list of what a pull from ECR calls", PULL_ONLY)


def node_role(scope: Construct, id: str) -> iam.Role:
    """A role that EC2 instances take to be nodes: join the cluster, pull images, take a Session Manager session; no more."""
    reason = "what EKS's documents ask for; AWS keeps them in step with the daemons"
    return session_role(scope, id, reason, *NODE_POLICIES)


def auto_mode_role(scope: Construct, id: str) -> iam.Role:
    """A role for EKS Auto Mode's machines: be nodes and pull images. Nobody logs in to them."""
    return _role(scope, id, "what EKS's documents ask for", "AmazonEKSWorkerNodeMinimalPolicy", PULL_ONLY)


def session_role(scope: Construct, id: str, reason: str = "", *policies: str) -> iam.Role:
    """A role that EC2 instances take for Session Manager's sessions, and for AWS's own `policies`, which have a reason."""
    role = _role(scope, id, reason, *policies)
    sessions = iam.ManagedPolicy(role, "Sessions", roles=[role], description="Session Manager")
    sessions.add_statements(takes_sessions())
    acknowledge(sessions, SESSIONS, *wildcards(sessions, "*"), "CKV_AWS_111")
    return role


def _role(scope: Construct, id: str, reason: str, *policies: str) -> iam.Role:
    managed = [iam.ManagedPolicy.from_aws_managed_policy_name(name) for name in policies]
    role = iam.Role(scope, id, assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"), managed_policies=managed)
    if policies:
        acknowledge(role, reason, *managed_policies(*policies))
    return role


def takes_sessions() -> iam.PolicyStatement:
    """The five actions that Session Manager's documents name for an instance role, on every resource, as they have it.

    AWS's AmazonSSMManagedInstanceCore also reads every parameter of the account: on a machine whose pods reach its role (all of a
    self-managed cluster's, and those of EKS that are on the node's own network) that would be everybody's secrets, a private SSH
    key among them.
    """
    return statements(OF_MACHINES, "sessions")[0]


def launch_template(
    scope: Construct,
    *,
    disk_gib: int,
    encryption_key: kms.IKey | None,
    key_pair: str | None,
    image_id: str | None,
    metadata_hops: int = 1,
    **others: Any,
) -> ec2.LaunchTemplate:
    """A launch template.

    Args:
        disk_gib: size of the machine's own disk, GiB.
        encryption_key: KMS key of that disk; None: the account's default key for EBS.
        key_pair: EC2 key pair for SSH; None: Session Manager only.
        image_id: the machine's image; None where EKS chooses it.
        metadata_hops: how far the machine's metadata, and with them its role, reach: 1 ends at the machine, 2 at its pods.
        others: as for `ec2.LaunchTemplate`.
    """
    kind = ec2.EbsDeviceVolumeType.GP3
    disk = ec2.BlockDeviceVolume.ebs(
        disk_gib, encrypted=True, kms_key=encryption_key, volume_type=kind, delete_on_termination=True
    )
    template = ec2.LaunchTemplate(
        scope,
        "Template",
        block_devices=[ec2.BlockDevice(device_name="/dev/xvda", volume=disk)],
        http_endpoint=True,
        http_tokens=ec2.LaunchTemplateHttpTokens.REQUIRED,
        http_put_response_hop_limit=metadata_hops,
        key_pair=ec2.KeyPair.from_key_pair_name(scope, "KeyPair", key_pair) if key_pair else None,
        **others,
    )
    if image_id:
        override(template, "ImageId", image_id)
    return template


def nodeadm(settings: dict[str, Any], shape: NodeShape) -> ec2.UserData:
    """User data for Amazon Linux 2023's nodeadm (https://awslabs.github.io/amazon-eks-ami/nodeadm/): `settings` of a NodeConfig.

    The disks of a machine that has some become one, with the pods' scratch on it.
    """
    disks = {"instance": {"localStorage": {"strategy": "RAID0"}}} if shape.has_disks else {}
    config = {"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "spec": {**settings, **disks}}
    lines = (
        "MIME-Version: 1.0",
        'Content-Type: multipart/mixed; boundary="//"',
        "",
        "--//",
        "Content-Type: application/node.eks.aws",
        "",
        # JSON is YAML; as one Fn::Sub-free string with tokens in it.
        json.dumps(config, indent=2),
        "",
        "--//--",
        "",
    )
    return ec2.UserData.custom("\n".join(lines))


def override(template: ec2.LaunchTemplate, field: str, value: Any) -> None:
    """Sets a field of `template` that the CDK's own construct does not know; None takes it away."""
    resource = template.node.default_child
    assert isinstance(resource, ec2.CfnLaunchTemplate)
    resource.add_property_override(f"LaunchTemplateData.{field}", value)


def launch_template_of(template: ec2.LaunchTemplate) -> autoscaling.CfnAutoScalingGroup.LaunchTemplateSpecificationProperty:
    """The newest version of `template`, as an Auto Scaling group names it."""
    return autoscaling.CfnAutoScalingGroup.LaunchTemplateSpecificationProperty(
        launch_template_id=template.launch_template_id, version=template.latest_version_number
    )


def counts_machines(group: autoscaling.CfnAutoScalingGroup) -> None:
    """`group` tells CloudWatch how many machines it wants and has, which costs nothing."""
    counted = autoscaling.CfnAutoScalingGroup.MetricsCollectionProperty(
        granularity="1Minute", metrics=["GroupDesiredCapacity", "GroupInServiceInstances"]
    )
    group.metrics_collection = [counted]


def one_at_a_time(
    group: autoscaling.CfnAutoScalingGroup,
    *,
    min_in_service: int,
    signals: bool,
    at_first: int,
    replacement_timeout: str = SIGNAL_TIMEOUT,
) -> None:
    """How CloudFormation replaces `group`'s machines, and whether it waits for the `at_first` first ones."""
    group.cfn_options.update_policy = CfnUpdatePolicy(
        auto_scaling_rolling_update=CfnAutoScalingRollingUpdate(
            max_batch_size=1,
            min_instances_in_service=min_in_service,
            pause_time=replacement_timeout if signals else "PT3M",
            suspend_processes=["AZRebalance", "AlarmNotification", "ScheduledActions"],
            wait_on_resource_signals=signals or None,
        )
    )
    if signals and at_first:
        group.cfn_options.creation_policy = CfnCreationPolicy(
            resource_signal=CfnResourceSignal(count=at_first, timeout=SIGNAL_TIMEOUT)
        )

"""EC2 machines: IAM roles, launch templates (IMDSv2 only, encrypted disks), user data, and how an
Auto Scaling group replaces them.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

from aws_cdk import (
    CfnAutoScalingRollingUpdate,
    CfnCreationPolicy,
    CfnResourceSignal,
    CfnUpdatePolicy,
)
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from constructs_lib.acknowledged import EVERY_RESOURCE, acknowledge, managed_policy_findings
from constructs_lib.ec2.node_shape import NodeShape
from constructs_lib.statements import OF_MACHINES, statements
from constructs_lib.storage.file_system import MountableFileSystem

MOUNT = Path(__file__).with_name("mount")
"""Files of a machine that mounts a file system; systemd does the rest."""
SIGNAL_TIMEOUT = "PT15M"
"""How long CloudFormation waits for a machine's signal that it is ready."""
SESSIONS = "Session Manager's documents grant its agent these actions on every resource"
SCALING_ACTIVITIES = (
    "Auto Scaling's own list of activities has each machine that comes or goes, and why"
)
"""Reasons that several constructs give when they acknowledge findings."""
PULL_ONLY = "AmazonEC2ContainerRegistryPullOnly"
EC2 = iam.ServicePrincipal("ec2.amazonaws.com")
NODE_POLICIES = ("AmazonEKSWorkerNodePolicy", "AmazonEKS_CNI_Policy", PULL_ONLY)
"""AWS managed policies that the EKS documentation requires. AWS keeps them in step with the calls
of the node's daemons.
"""


def machine_role(scope: Construct, id: str) -> iam.Role:
    """Returns a role with which EC2 instances pull images. Any other permission comes from a policy
    that the caller adds.
    """
    reason = "AWS's own list of what a pull from ECR calls"
    return managed_role(scope, id, EC2, reason, PULL_ONLY)


def node_role(scope: Construct, id: str) -> iam.Role:
    """Returns a role with which EC2 instances can only join the cluster, pull images and accept
    Session Manager sessions.
    """
    reason = "what EKS's documents ask for; AWS keeps them in step with the daemons"
    return session_role(scope, id, reason, *NODE_POLICIES)


def auto_mode_role(scope: Construct, id: str) -> iam.Role:
    """Returns a role with which EKS Auto Mode's machines can be nodes and pull images. Nobody logs
    in to them.
    """
    policies = ("AmazonEKSWorkerNodeMinimalPolicy", PULL_ONLY)
    return managed_role(scope, id, EC2, "what EKS's documents ask for", *policies)


def session_role(scope: Construct, id: str, reason: str = "", *policies: str) -> iam.Role:
    """Returns a role for EC2 instances that accept Session Manager sessions. `reason` says why it
    has the AWS `policies`.
    """
    role = managed_role(scope, id, EC2, reason, *policies)
    sessions = iam.ManagedPolicy(
        role,
        "Sessions",
        roles=[role],
        description="Session Manager",
        statements=[session_statement()],
    )
    acknowledge(sessions, SESSIONS, EVERY_RESOURCE, "CKV_AWS_111")
    return role


def managed_role(
    scope: Construct, id: str, holder: iam.IPrincipal, reason: str, *policies: str
) -> iam.Role:
    """Returns a role with AWS's `policies`; `reason` says why it has them."""
    managed = [iam.ManagedPolicy.from_aws_managed_policy_name(name) for name in policies]
    role = iam.Role(scope, id, assumed_by=holder, managed_policies=managed)
    if policies:
        acknowledge(role, reason, *managed_policy_findings(*policies))
    return role


def session_statement() -> iam.PolicyStatement:
    """Returns the five actions that the Session Manager documentation lists for an instance role,
    on every resource, as it does.

    AWS's AmazonSSMManagedInstanceCore also reads every parameter of the account. On machines whose
    role pods can reach (all those of a self-managed cluster; on EKS, for pods on the node's own
    network), that would expose everybody's secrets, including a private SSH key.
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
    throughput: int | None = None,
    **others: Any,
) -> ec2.LaunchTemplate:
    """Creates a launch template.

    Args:
        disk_gib: size of the machine's own disk, GiB.
        encryption_key: KMS key of that disk; None: the account's default key for EBS.
        key_pair: EC2 key pair for SSH; None: Session Manager only.
        image_id: the machine's image; None where EKS chooses it.
        metadata_hops: network hops that the instance metadata, and with it the role, reach: 1 ends
            at the machine, 2 at its pods.
        throughput: of the disk, MiB/s; None: gp3's 125, which cost nothing.
        others: passed to `ec2.LaunchTemplate`.
    """
    disk = ec2.BlockDeviceVolume.ebs(
        disk_gib,
        encrypted=True,
        kms_key=encryption_key,
        volume_type=ec2.EbsDeviceVolumeType.GP3,
        throughput=throughput,
        delete_on_termination=True,
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


def write_files(files: Mapping[str, str]) -> str:
    """Returns the lines of a shell script that write `files`, by path."""
    return "".join(
        f"install -D -m {755 if path.endswith('.sh') else 644} /dev/stdin {path} "
        f"<<'END_OF_FILE'\n{text}\nEND_OF_FILE\n"
        for path, text in files.items()
    )


ANCHOR = "/etc/pki/ca-trust/source/anchors/cluster.pem"
TRUSTED = "/etc/pki/tls/certs/ca-bundle.crt"
"""What Amazon Linux trusts: `update-ca-trust` writes it, with what lies among the anchors."""


def trust(certificates: str | None) -> tuple[dict[str, str], dict[str, str], str]:
    """Returns the variables, the files and the lines of a script with which Amazon Linux trusts
    `certificates`, in PEM, beside its own.
    """
    if not certificates:
        return {}, {}, ""
    # The AWS CLI has a bundle of its own.
    return {"AWS_CA_BUNDLE": TRUSTED}, {ANCHOR: certificates}, "update-ca-trust\n"


def strip_comments(path: Path) -> str:
    """Returns a script or settings file without its comments, because user data may have 16 KB."""
    return "\n".join(
        line
        for line in path.read_text(encoding="utf-8").splitlines()
        if line[:2] == "#!" or (line.strip() and line.lstrip()[0] != "#")
    )


def mount_files(file_system: MountableFileSystem, folder: str, kubelet: str) -> dict[str, str]:
    """Returns the files of a machine that mounts a file system at boot, over TLS, before `kubelet`,
    its systemd unit, starts; by their paths on it.

    Args:
        file_system: mounted through its access point; the machine needs its
            `client_security_group`.
        folder: where.
        kubelet: such as kubelet.service, on EKS, or k3s-agent.service.
    """
    units, service = "/etc/systemd/system", "paddle-file-system.service"
    return {
        f"{units}/{kubelet}.d/file-system.conf": strip_comments(MOUNT / "kubelet.conf"),
        f"{units}/{service}": Template(strip_comments(MOUNT / service)).substitute(
            file_system=file_system.file_system.file_system_id,
            access_point=file_system.access_point.access_point_id,
            folder=folder,
        ),
        "/opt/paddle-cluster/mount-file-system.sh": strip_comments(MOUNT / "mount-file-system.sh"),
    }


def nodeadm_user_data(
    settings: dict[str, Any],
    shape: NodeShape,
    files: Mapping[str, str],
    extra: str | None,
    environment: Mapping[str, str] | None,
    certificates: str | None,
) -> ec2.UserData:
    """User data for Amazon Linux 2023's nodeadm
    (https://awslabs.github.io/amazon-eks-ami/nodeadm/): a NodeConfig of `settings`, and a script
    that writes `files`, and runs the lines of `extra`, before nodeadm starts the kubelet.

    If the machines have disks of their own, nodeadm combines these into one, which holds the pods'
    scratch. It gives itself and every service `environment`. The machine trusts `certificates`
    from that script on, after nodeadm's first calls of EC2.
    """
    variables, anchors, update = trust(certificates)
    variables |= environment or {}
    files = {**files, **anchors}
    extra = update + (extra or "")
    instance: dict[str, Any] = {}
    if shape.has_disks:
        instance["localStorage"] = {"strategy": "RAID0"}
    if variables:
        instance["environment"] = {"default": variables}
    disks = {"instance": instance} if instance else {}
    gates = {"featureGates": {"FastImagePull": True}} if shape.parallel_image_pull else {}
    config = {
        "apiVersion": "node.eks.aws/v1alpha1",
        "kind": "NodeConfig",
        "spec": {**settings, **disks, **gates},
    }
    reload = "systemctl daemon-reload\n" if files else ""
    script = f"#!/bin/bash\nset -euo pipefail\n{write_files(files)}{reload}{extra}"
    parts = {
        # JSON is valid YAML. This way the config is one string with tokens, without Fn::Sub.
        "application/node.eks.aws": json.dumps(config, indent=2),
        **({'text/x-shellscript; charset="us-ascii"': script} if files or extra else {}),
    }
    lines = [
        "MIME-Version: 1.0",
        'Content-Type: multipart/mixed; boundary="//"',
        "",
        *(
            line
            for kind, text in parts.items()
            for line in ("--//", f"Content-Type: {kind}", "", text, "")
        ),
        "--//--",
        "",
    ]
    return ec2.UserData.custom("\n".join(lines))


def override(template: ec2.LaunchTemplate, field: str, value: Any) -> None:
    """Sets a field of `template` that the CDK's construct does not support. None removes the
    field.
    """
    resource = template.node.default_child
    assert isinstance(resource, ec2.CfnLaunchTemplate)
    resource.add_property_override(f"LaunchTemplateData.{field}", value)


def launch_template_of(
    template: ec2.LaunchTemplate,
) -> autoscaling.CfnAutoScalingGroup.LaunchTemplateSpecificationProperty:
    """Returns the newest version of `template`, in the form that an Auto Scaling group takes."""
    return autoscaling.CfnAutoScalingGroup.LaunchTemplateSpecificationProperty(
        launch_template_id=template.launch_template_id, version=template.latest_version_number
    )


def report_machine_counts(group: autoscaling.CfnAutoScalingGroup) -> None:
    """Makes `group` report its desired and in-service machines to CloudWatch, at no cost."""
    counted = autoscaling.CfnAutoScalingGroup.MetricsCollectionProperty(
        granularity="1Minute", metrics=["GroupDesiredCapacity", "GroupInServiceInstances"]
    )
    group.metrics_collection = [counted]


def replace_one_by_one(
    group: autoscaling.CfnAutoScalingGroup,
    *,
    min_in_service: int,
    signals: int | None = None,
    replacement_timeout: str = SIGNAL_TIMEOUT,
) -> None:
    """Makes CloudFormation replace `group`'s machines one at a time. `signals`: how many machines
    the first deploy awaits, each of which signals when it is ready; None: they signal nothing.
    """
    group.cfn_options.update_policy = CfnUpdatePolicy(
        auto_scaling_rolling_update=CfnAutoScalingRollingUpdate(
            max_batch_size=1,
            min_instances_in_service=min_in_service,
            pause_time="PT3M" if signals is None else replacement_timeout,
            suspend_processes=["AZRebalance", "AlarmNotification", "ScheduledActions"],
            wait_on_resource_signals=None if signals is None else True,
        )
    )
    if signals:
        group.cfn_options.creation_policy = CfnCreationPolicy(
            resource_signal=CfnResourceSignal(count=signals, timeout=SIGNAL_TIMEOUT)
        )

"""The control plane of a self-managed cluster: an Auto Scaling group of exactly one machine.

Promises: never two at once; a machine that dies is replaced by one with the same address and the same state, and so is one whose
template changes (an upgrade); CloudFormation waits until it says that it serves. Its role may attach its own volume, read
its own secrets and files, write what others need of it, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aws_cdk import Aws, Stack, Tags
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from constructs_lib.acknowledged import acknowledge, wildcards
from constructs_lib.cluster_secrets import ClusterSecrets
from constructs_lib.fixed_address import FixedAddress
from constructs_lib.machine_boot import boot_user_data
from constructs_lib.machine_files import MachineFiles
from constructs_lib.machine_role import machine_role, takes_sessions
from constructs_lib.node_template import root_disk
from constructs_lib.release import IMAGE, SHARED_FILES, Release
from constructs_lib.scaling_group import counts_machines, one_at_a_time
from constructs_lib.state_volume import StateVolume


@dataclass(frozen=True)
class SnapshotPlace:
    """Where snapshots of a cluster's state go.

    Attributes:
        bucket_name: the bucket.
        bucket_arn: its ARN.
        encryption_key: its key; None: one that AWS manages.
        prefix: where in it, without slashes at the ends; nobody else should read there.
        schedule: five cron fields, UTC.
        keep: how many of the newest are kept.
    """

    bucket_name: str
    bucket_arn: str
    encryption_key: kms.IKey | None = None
    prefix: str = "cluster/snapshots"
    schedule: str = "0 */6 * * *"
    keep: int = 28


CONTROL_PLANE_FILES = ("control-plane.sh", "restore.sh", "forget-nodes.sh", "efs-csi-driver.yaml", "people.yaml")


class ControlPlane(Construct):
    """One machine that is always there.

    Args:
        cluster_name: the cluster.
        release: what it runs.
        address: the interface that it carries.
        volume: the volume that it attaches; in the interface's zone.
        availability_zone: that zone.
        secrets: the cluster's secrets.
        snapshots: where snapshots of its state go.
        variables: further variables of its scripts (constructs_lib/bootstrap/README.md).
        instance_type: EC2 type.
        key_name: key pair for SSH; None: Session Manager only.
        encryption_key: KMS key of the root disk; None: the account's default key for EBS.
        group_name: name of the group; None: CloudFormation makes one.

    Attributes:
        group: the Auto Scaling group, to depend on.
        role: the machine's role.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        cluster_name: str,
        release: Release,
        address: FixedAddress,
        volume: StateVolume,
        availability_zone: str,
        secrets: ClusterSecrets,
        snapshots: SnapshotPlace,
        variables: Mapping[str, str],
        instance_type: str = "t3.medium",
        key_name: str | None = None,
        encryption_key: kms.IKey | None = None,
        group_name: str | None = None,
    ) -> None:
        super().__init__(scope, id)
        stack = Stack.of(self)
        files = MachineFiles(self, "Files", files=release.of(*SHARED_FILES, *CONTROL_PLANE_FILES))
        self.role = machine_role(self, "Role")
        # By this tag the role knows its own machine, and the next one.
        own = ("paddle-aws/control-plane", cluster_name)
        policy = self._policy(files, volume, secrets, snapshots, own)
        self.group = autoscaling.CfnAutoScalingGroup(
            self,
            "Resource",
            auto_scaling_group_name=group_name,
            min_size="1",
            max_size="1",
            # Not subnets: the template names an interface, which is in a subnet already.
            availability_zones=[availability_zone],
            health_check_type="EC2",
            health_check_grace_period=300,
        )
        counts_machines(self.group)
        user_data = boot_user_data(
            {
                "ROLE": "control-plane",
                "CLUSTER_NAME": cluster_name,
                "AWS_REGION": stack.region,
                "FILES": files.lines,
                "IMAGES": "\n".join(f"{name} {reference}" for name, reference in sorted(release.images.items())),
                "DISTRIBUTION_VERSION": release.version,
                "STATE_VOLUME": volume.volume_id,
                "PRIVATE_ADDRESS": address.private_address,
                "SERVER_TOKEN_SECRET": secrets.server_token,
                "NODE_TOKEN_SECRET": secrets.node_token,
                "CA_HASH_SECRET": secrets.ca_hash,
                "KUBECONFIG_SECRET": secrets.kubeconfigs["operator"],
                "TRAINER_KUBECONFIG_SECRET": secrets.kubeconfigs["trainer"],
                "READER_KUBECONFIG_SECRET": secrets.kubeconfigs["reader"],
                "SNAPSHOT_BUCKET": snapshots.bucket_name,
                "SNAPSHOT_PREFIX": snapshots.prefix,
                "SNAPSHOT_SCHEDULE": snapshots.schedule,
                "SNAPSHOT_RETENTION": str(snapshots.keep),
                **variables,
                "SIGNAL_STACK": stack.stack_name,
                "SIGNAL_RESOURCE": stack.get_logical_id(self.group),
            }
        )
        template = self._template(address, instance_type, key_name, encryption_key, user_data)
        key, value = own
        for scope_ in (template, self.group):
            Tags.of(scope_).add(key, value)
            Tags.of(scope_).add("Name", f"{cluster_name}/control-plane")
        self.group.launch_template = autoscaling.CfnAutoScalingGroup.LaunchTemplateSpecificationProperty(
            launch_template_id=template.launch_template_id, version=template.latest_version_number
        )
        # The old machine ends before the new one begins: there is one address and one volume. Auto Scaling tries its launch
        # again while the old one still holds the interface: that is the longer half hour.
        one_at_a_time(self.group, min_in_service=0, signals=True, at_first=1, replacement_timeout="PT30M")
        self.group.node.add_dependency(address, policy)
        acknowledge(self.group, "the zone of its volume and its interface, which the caller names", "W3010", "cfn-lint:W3010")
        acknowledge(self.group, "one machine, replaced when it fails: `kubectl get nodes` shows it", "AwsSolutions-AS3")

    def _template(
        self,
        address: FixedAddress,
        instance_type: str,
        key_name: str | None,
        encryption_key: kms.IKey | None,
        user_data: ec2.UserData,
    ) -> ec2.LaunchTemplate:
        template = ec2.LaunchTemplate(
            self,
            "Template",
            instance_type=ec2.InstanceType(instance_type),
            role=self.role,
            user_data=user_data,
            key_pair=ec2.KeyPair.from_key_pair_name(self, "KeyPair", key_name) if key_name else None,
            block_devices=[root_disk(30, encryption_key)],
            http_endpoint=True,
            http_tokens=ec2.LaunchTemplateHttpTokens.REQUIRED,
            http_put_response_hop_limit=1,
        )
        resource = template.node.default_child
        assert isinstance(resource, ec2.CfnLaunchTemplate)
        data = "LaunchTemplateData."
        resource.add_property_override(f"{data}ImageId", IMAGE)
        # The machine's first interface: with a second one it would have to reach AWS without it, to attach it.
        resource.add_property_override(
            f"{data}NetworkInterfaces", [{"DeviceIndex": 0, "NetworkInterfaceId": address.interface_id}]
        )
        return template

    def _policy(
        self,
        files: MachineFiles,
        volume: StateVolume,
        secrets: ClusterSecrets,
        snapshots: SnapshotPlace,
        own: tuple[str, str],
    ) -> iam.ManagedPolicy:
        stack = Stack.of(self)
        written = [secrets.ca_hash, *secrets.kubeconfigs.values()]
        place = f"{snapshots.bucket_arn}/{snapshots.prefix}/*"
        policy = iam.ManagedPolicy(self, "Policy", roles=[self.role], description="Control plane of the cluster")
        policy.add_statements(
            takes_sessions(),
            files.may_read(),
            *volume.may_attach(own),
            iam.PolicyStatement(sid="Look", actions=["ec2:DescribeInstances", "ec2:DescribeVolumes"], resources=["*"]),
            secrets.may_read("Secrets", secrets.server_token, secrets.node_token, *written),
            iam.PolicyStatement(sid="Publish", actions=["secretsmanager:PutSecretValue"], resources=written),
            *secrets.may_open(),
            iam.PolicyStatement(
                sid="FindSnapshots", actions=["s3:GetBucketLocation", "s3:ListBucket"], resources=[snapshots.bucket_arn]
            ),
            iam.PolicyStatement(
                sid="Snapshots",
                actions=["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"],
                resources=[place],
            ),
            iam.PolicyStatement(sid="Ready", actions=["cloudformation:SignalResource"], resources=[stack.stack_id]),
        )
        keys = {key.key_arn: None for key in (secrets.encryption_key, snapshots.encryption_key) if key}
        if keys:
            policy.add_statements(iam.PolicyStatement(sid="Seal", actions=["kms:GenerateDataKey"], resources=list(keys)))
        if snapshots.encryption_key and snapshots.encryption_key != secrets.encryption_key:
            # S3 opens what it has sealed to read a snapshot, and to join the parts of a large one.
            policy.add_statements(
                iam.PolicyStatement(
                    sid="OpenSnapshots",
                    actions=["kms:Decrypt"],
                    resources=[snapshots.encryption_key.key_arn],
                    conditions={"StringEquals": {"kms:ViaService": f"s3.{stack.region}.{stack.url_suffix}"}},
                )
            )
        instances = f"arn:{Aws.PARTITION}:ec2:{stack.region}:{stack.account}:instance/*"
        acknowledge(policy, "a machine with this cluster's own tag, by condition", *wildcards(self, instances))
        acknowledge(policy, "the snapshots are the only objects below it", *wildcards(self, place))
        acknowledge(policy, "EC2's Describe and Session Manager's actions take no resource", *wildcards(self, "*"), "CKV_AWS_111")
        return policy

"""A self-managed Kubernetes cluster on plain EC2, without nodes.

The control plane is an Auto Scaling group of exactly one machine with a fixed address. Its state is
on a volume that outlives the machine. A machine that dies, or whose template changes, is replaced
by one with the same address and state.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jsii
from aws_cdk import Aws, RemovalPolicy, Stack, Tags
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from constructs_lib.acknowledged import EVERY_RESOURCE, acknowledge, wildcard_findings
from constructs_lib.addresses import K3S_PODS, K3S_SERVICES
from constructs_lib.ec2.machine import (
    SCALING_ACTIVITIES,
    SESSIONS,
    launch_template,
    launch_template_of,
    machine_role,
    override,
    replace_one_by_one,
    report_machine_counts,
    session_statement,
)
from constructs_lib.ec2.node_rules import STATE_GIB, control_plane_type
from constructs_lib.k3s.cluster_firewall import API, ClusterFirewall
from constructs_lib.k3s.cluster_secrets import ClusterSecrets
from constructs_lib.k3s.release import IMAGE, MachineFiles, Release, boot_user_data
from constructs_lib.k3s.state_volume import StateVolume
from constructs_lib.rules import refuse_text
from constructs_lib.statements import OF_MACHINES, statements
from constructs_lib.validation import check, drop_token, refuse

API_PORT = 6443


@dataclass(frozen=True)
class SnapshotPlace:
    """Where snapshots of a cluster's state go.

    Attributes:
        encryption_key: the bucket's KMS key; None: one that AWS manages.
        prefix: where in the bucket, without slashes at the ends; nobody else should have read
            access there.
        schedule: five cron fields, UTC.
        keep: how many of the newest snapshots are kept.
    """

    bucket_name: str
    bucket_arn: str
    encryption_key: kms.IKey | None = None
    prefix: str = "cluster/snapshots"
    schedule: str = "0 */6 * * *"
    keep: int = 28


class _FixedAddress(Construct):
    """A network interface that each machine of the control plane takes in turn, and its Elastic IP.

    CloudFormation creates a new interface before it deletes the old one. A change that would
    replace the interface at the same address (another subnet) fails and rolls back; another address
    in the same subnet works.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        subnet: ec2.ISubnet,
        security_group: ec2.ISecurityGroup,
        private_address: str | None,
        elastic_ip: bool,
        name: str,
    ) -> None:
        super().__init__(scope, id)
        interface = ec2.CfnNetworkInterface(
            self,
            "Resource",
            description="Fixed address of the control plane",
            subnet_id=subnet.subnet_id,
            group_set=[security_group.security_group_id],
            private_ip_address=private_address,
        )
        self.interface_id = interface.ref
        self.private_address = private_address or interface.attr_primary_private_ip_address
        self.public_address: str | None = None
        if elastic_ip:
            eip = ec2.CfnEIP(self, "ElasticIp", domain="vpc")
            ec2.CfnEIPAssociation(
                self,
                "Association",
                allocation_id=eip.attr_allocation_id,
                network_interface_id=interface.ref,
            )
            self.public_address = eip.attr_public_ip
        Tags.of(self).add("Name", name)


@jsii.implements(ec2.IConnectable)
class SelfManagedCluster(Construct):
    """A self-managed cluster without nodes; `K3sNodeGroup` adds them.

    Args:
        vpc: the VPC.
        release: what the machine runs.
        snapshots: where it keeps its snapshots.
        pod_cidr: addresses of pods.
        service_cidr: addresses of Kubernetes services.
        cluster_name: name, which is part of the secrets' names and of tags.
        subnet: the control plane's subnet; None: the first private one (public with `elastic_ip`).
        private_address: the control plane's address in that subnet; None: AWS picks one, which then
            stays.
        elastic_ip: adds a public address; the subnet must be a public one.
        names: further names for the certificate, such as a zone's and `api.<zone>`.
        api_from: CIDRs that may reach the API, besides the nodes; with none, the endpoint is the
            private address.
        ssh_from: CIDRs that may reach SSH on the control plane; empty: closed.
        host_ports: TCP ports that nodes open to each other, such as "7164-7167".
        key_name: EC2 key pair for SSH; None: none.
        jobs_namespace: namespace of the jobs, created with the cluster.
        instance_type: EC2 type of the control plane, a Nitro one.
        volume_gib: size of the state's volume, GiB.
        volume_snapshot: EBS snapshot that the volume is created from.
        encryption_key: KMS key of secrets and state (its policy must let the account use it); None:
            AWS's own.
        disk_key: KMS key of the root disk; None: the account's default key for EBS. The key's
            policy must let Auto Scaling use it, as EncryptionKey's does.
        group_name: name of the control plane's Auto Scaling group; None: CloudFormation generates
            one.
        removal_policy: of the state's volume; SNAPSHOT leaves a snapshot.
        environment: as `NodeGroupProps` has it, for the control plane.
        certificates: as `NodeGroupProps` has them, for the control plane.

    Attributes:
        cluster_endpoint: https address of the API: the Elastic IP if `api_from` names anybody, else
            the private address.
        server_url: https address of the API for nodes.
        private_address: the control plane's address, which stays when its machine is replaced.
        public_address: its Elastic IP; None: it has none.
        group: the control plane's Auto Scaling group, to depend on.

    Raises:
        ValueError: a sentence for each value that is refused.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        vpc: ec2.IVpc,
        cluster_name: str,
        release: Release,
        snapshots: SnapshotPlace,
        subnet: ec2.ISubnet | None = None,
        private_address: str | None = None,
        elastic_ip: bool = False,
        names: Sequence[str] = (),
        api_from: Sequence[str] = (),
        ssh_from: Sequence[str] = (),
        host_ports: Sequence[str] = (),
        key_name: str | None = None,
        jobs_namespace: str = "paddle",
        pod_cidr: str = "10.42.0.0/16",
        service_cidr: str = "10.43.0.0/16",
        instance_type: str = "t3.medium",
        volume_gib: int = 20,
        volume_snapshot: str | None = None,
        encryption_key: kms.IKey | None = None,
        disk_key: kms.IKey | None = None,
        group_name: str | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.SNAPSHOT,
        environment: Mapping[str, str] | None = None,
        certificates: str | None = None,
    ) -> None:
        super().__init__(scope, id)
        violations = check(
            volume_gib=(STATE_GIB, volume_gib),
            pod_cidr=(K3S_PODS, pod_cidr),
            service_cidr=(K3S_SERVICES, service_cidr),
        )
        machine = control_plane_type(drop_token(instance_type))
        listed = refuse_text("names", names, "api.paddle")
        refuse(self.node.path, [*machine, *violations, *listed])
        if subnet is None:
            subnet = (vpc.public_subnets if elastic_ip else vpc.select_subnets().subnets)[0]
        name = f"{cluster_name}/control-plane"
        self.cluster_name = cluster_name
        self.firewall = ClusterFirewall(
            self, "Firewall", vpc=vpc, api_from=api_from, ssh_from=ssh_from, host_ports=host_ports
        )
        self.secrets = ClusterSecrets(
            self, "Secrets", cluster_name=cluster_name, encryption_key=encryption_key
        )
        self.volume = StateVolume(
            self,
            "State",
            availability_zone=subnet.availability_zone,
            size_gib=volume_gib,
            snapshot_id=volume_snapshot,
            encryption_key=encryption_key,
            name=name,
            removal_policy=removal_policy,
        )
        address = _FixedAddress(
            self,
            "Address",
            subnet=subnet,
            security_group=self.firewall.control_plane,
            private_address=private_address,
            elastic_ip=elastic_ip,
            name=name,
        )
        self._set_endpoints(address, api_from)
        # The role recognizes its own machine, and the next one, by this tag.
        tag = ("paddle-aws/control-plane", cluster_name)
        home = Construct(self, "ControlPlane")
        files = MachineFiles(home, "Files", files=release.files_for("control-plane"))
        self.role = machine_role(home, "Role")
        policy = self._policy(home, files, snapshots, tag)
        self.group = _group_of_one(home, subnet.availability_zone, group_name)
        self.node.default_child = self.group
        template = launch_template(
            home,
            disk_gib=30,
            encryption_key=disk_key,
            key_pair=key_name,
            image_id=IMAGE,
            instance_type=ec2.InstanceType(instance_type),
            role=self.role,
            user_data=boot_user_data(
                Stack.of(self),
                self._variables(files, release, snapshots, jobs_namespace),
                self._settings(names, pod_cidr, service_cidr, snapshots),
                environment=environment,
                certificates=certificates,
            ),
        )
        self._launch_at(address, template, dict([tag, ("Name", name)]))
        self.group.node.add_dependency(address, policy)
        self._acknowledge()

    def _set_endpoints(self, address: _FixedAddress, api_from: Sequence[str]) -> None:
        """Says where nodes and people reach the API."""
        self.private_address = address.private_address
        self.public_address = address.public_address
        self.server_url = f"https://{self.private_address}:{API_PORT}"
        # If the firewall opens the public address to nobody, a kubeconfig with it would not work.
        reachable = (api_from and self.public_address) or self.private_address
        self.cluster_endpoint = f"https://{reachable}:{API_PORT}"

    def _launch_at(
        self, address: _FixedAddress, template: ec2.LaunchTemplate, tags: Mapping[str, str]
    ) -> None:
        """Launches the machine from the template, with the address as its first interface: to
        attach it as a second one, the machine would have to reach AWS without it.
        """
        for tagged in (template, self.group):
            for key, value in tags.items():
                Tags.of(tagged).add(key, value)
        override(
            template,
            "NetworkInterfaces",
            [{"DeviceIndex": 0, "NetworkInterfaceId": address.interface_id}],
        )
        self.group.launch_template = launch_template_of(template)
        # The old machine ends before the new one starts: there is one address and one volume. Auto
        # Scaling retries the launch while the old machine still holds the interface, hence the
        # longer timeout, half an hour.
        replace_one_by_one(self.group, min_in_service=0, signals=1, replacement_timeout="PT30M")

    def _acknowledge(self) -> None:
        """Acknowledges findings of the usual checks, with the reasons."""
        why = "the zone of its volume and its interface, which the caller names"
        acknowledge(self.group, why, "W3010", "cfn-lint:W3010")
        acknowledge(self.group, SCALING_ACTIVITIES, "AwsSolutions-AS3")
        acknowledge(
            self.volume,
            "the control plane saves its state to the bucket on a schedule, and a restore begins "
            "with that",
            "NIST.800.53.R5-EC2EBSInBackupPlan",
        )

    def _variables(
        self, files: MachineFiles, release: Release, snapshots: SnapshotPlace, jobs_namespace: str
    ) -> dict[str, str]:
        """Returns the variables of the machine's boot script."""
        stack = Stack.of(self)
        return {
            "ROLE": "control-plane",
            "CLUSTER_NAME": self.cluster_name,
            "AWS_REGION": stack.region,
            "FILES": files.lines,
            "IMAGES": "\n".join(
                f"{name} {reference}" for name, reference in sorted(release.images.items())
            ),
            "DISTRIBUTION_VERSION": release.version,
            "STATE_VOLUME": self.volume.volume_id,
            "PRIVATE_ADDRESS": self.private_address,
            "SERVER_TOKEN_SECRET": self.secrets.server_token,
            "NODE_TOKEN_SECRET": self.secrets.node_token,
            "CA_HASH_SECRET": self.secrets.ca_hash,
            "KUBECONFIG_SECRET": self.secrets.kubeconfigs["operator"],
            "TRAINER_KUBECONFIG_SECRET": self.secrets.kubeconfigs["trainer"],
            "READER_KUBECONFIG_SECRET": self.secrets.kubeconfigs["reader"],
            "SNAPSHOT_BUCKET": snapshots.bucket_name,
            "SNAPSHOT_PREFIX": snapshots.prefix,
            "ENDPOINT": self.cluster_endpoint,
            "JOBS_NAMESPACE": jobs_namespace,
            "SIGNAL_STACK": stack.stack_name,
            "SIGNAL_RESOURCE": stack.get_logical_id(self.group),
        }

    def _settings(
        self, names: Sequence[str], pod_cidr: str, service_cidr: str, snapshots: SnapshotPlace
    ) -> dict[str, str | int | list[str]]:
        """Returns k3s's settings: its addresses, and where it saves its state."""
        stack = Stack.of(self)
        public = [self.public_address] if self.public_address else []
        return {
            "node-ip": self.private_address,
            "advertise-address": self.private_address,
            "tls-san": [self.private_address, *names, *public],
            "cluster-cidr": pod_cidr,
            "service-cidr": service_cidr,
            "etcd-snapshot-schedule-cron": snapshots.schedule,
            "etcd-snapshot-retention": snapshots.keep,
            "etcd-s3-retention": snapshots.keep,
            "etcd-s3-endpoint": f"s3.{stack.region}.{stack.url_suffix}",
            "etcd-s3-region": stack.region,
            "etcd-s3-bucket": snapshots.bucket_name,
            "etcd-s3-folder": snapshots.prefix,
        }

    def _policy(
        self, home: Construct, files: MachineFiles, snapshots: SnapshotPlace, tag: tuple[str, str]
    ) -> iam.ManagedPolicy:
        secrets = self.secrets
        stack = Stack.of(self)
        written = [secrets.ca_hash, *secrets.kubeconfigs.values()]
        place = f"{snapshots.bucket_arn}/{snapshots.prefix}/*"
        policy = iam.ManagedPolicy(
            home, "Policy", roles=[self.role], description="Control plane of the cluster"
        )
        policy.add_statements(
            session_statement(),
            files.read_statement(),
            *self.volume.attach_statements(tag),
            *statements(OF_MACHINES, "look"),
            *statements(
                OF_MACHINES, "secrets", secrets=[secrets.server_token, secrets.node_token, *written]
            ),
            *statements(OF_MACHINES, "publish", secrets=written),
            *secrets.decrypt_statements(),
            *statements(OF_MACHINES, "snapshots", bucket=snapshots.bucket_arn, snapshots=place),
            *statements(OF_MACHINES, "ready", stack=stack.stack_id),
        )
        keys = {
            key.key_arn: None for key in (secrets.encryption_key, snapshots.encryption_key) if key
        }
        if keys:
            policy.add_statements(*statements(OF_MACHINES, "seal", keys=list(keys)))
        if snapshots.encryption_key and snapshots.encryption_key != secrets.encryption_key:
            # S3 decrypts its objects to read a snapshot, and to join the parts of a large one.
            key, s3 = snapshots.encryption_key.key_arn, f"s3.{stack.region}.{stack.url_suffix}"
            policy.add_statements(*statements(OF_MACHINES, "snapshots with a key", key=key, s3=s3))
        instances = f"arn:{Aws.PARTITION}:ec2:{stack.region}:{stack.account}:instance/*"
        why = "a machine with this cluster's own tag, by condition"
        acknowledge(policy, why, *wildcard_findings(self, instances))
        why = "the snapshots are the only objects below it"
        acknowledge(policy, why, *wildcard_findings(self, place))
        why = f"EC2's Describe takes no resource; {SESSIONS}"
        acknowledge(policy, why, EVERY_RESOURCE, "CKV_AWS_111")
        return policy

    @property
    def cluster_security_group_id(self) -> str:
        """The security group that every node has."""
        return self.firewall.nodes.security_group_id

    @property
    def connections(self) -> ec2.Connections:
        """Network connections of the API endpoint, port 6443."""
        return ec2.Connections(security_groups=[self.firewall.control_plane], default_port=API)


def _group_of_one(scope: Construct, zone: str, name: str | None) -> autoscaling.CfnAutoScalingGroup:
    """Returns a group of exactly one machine, without its launch template."""
    group = autoscaling.CfnAutoScalingGroup(
        scope,
        "Resource",
        auto_scaling_group_name=name,
        min_size="1",
        max_size="1",
        # Zones, not subnets: the template names an interface, which is already in a subnet.
        availability_zones=[zone],
        health_check_type="EC2",
        health_check_grace_period=300,
    )
    report_machine_counts(group)
    return group

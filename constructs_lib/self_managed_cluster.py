"""A Kubernetes cluster of one's own on plain EC2, without nodes: what kube-aws and kube-up built, as code.

Promises: one control plane at a fixed address, with its state on a volume that outlives it; certificates for every name that
it is called by; join tokens that AWS makes; nothing that only the cluster itself could delete, so that a destroy has nothing
to get stuck on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import jsii
from aws_cdk import RemovalPolicy
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms
from constructs import Construct

from constructs_lib.any_cluster import NodesCluster
from constructs_lib.cluster_firewall import API, ClusterFirewall
from constructs_lib.cluster_secrets import ClusterSecrets
from constructs_lib.control_plane import ControlPlane, SnapshotPlace
from constructs_lib.fixed_address import FixedAddress
from constructs_lib.release import Release
from constructs_lib.state_volume import StateVolume

API_PORT = 6443


class JoinableCluster(NodesCluster, Protocol):
    """What nodes need of a self-managed cluster."""

    @property
    def server_url(self) -> str: ...
    @property
    def secrets(self) -> ClusterSecrets: ...


@jsii.implements(ec2.IConnectable)
class SelfManagedCluster(Construct):
    """A self-managed cluster without nodes; `JoiningNodes` are its nodes.

    Args:
        vpc: its VPC.
        cluster_name: name; the secrets and tags carry it.
        release: what the control plane runs.
        snapshots: where etcd's snapshots go.
        subnet: the control plane's; None: the first private one (public with `elastic_ip`).
        private_address: the control plane's address in that subnet; None: AWS picks one, which then stays.
        elastic_ip: also a public address; the subnet must be a public one.
        names: further names for the certificate, such as a zone's and `api.<zone>`.
        api_from: CIDRs that may reach the API, beside the nodes; with none, the endpoint is the private address.
        ssh_from: CIDRs that may reach SSH on the control plane; empty: closed.
        key_name: key pair of SSH; None: none.
        jobs_namespace: namespace of the jobs, made with the cluster.
        pod_cidr: addresses of pods.
        service_cidr: addresses of services.
        instance_type: EC2 type of the control plane, a Nitro one.
        volume_gib: size of the state's volume, GiB.
        volume_snapshot: an EBS snapshot that the volume begins with.
        encryption_key: KMS key of secrets and state (its policy must let the account use it); None: AWS's own.
        disk_key: KMS key of the root disk (its policy must let Auto Scaling use it, as EncryptionKey's does); None: the
            account's default key for EBS.
        group_name: name of the control plane's Auto Scaling group; None: CloudFormation makes one.
        removal_policy: of the state's volume; SNAPSHOT leaves a snapshot.

    Attributes:
        cluster_name: as given.
        cluster_endpoint: https address of the API: at the Elastic IP where somebody may reach it, else at the private address.
        server_url: https address of the API for nodes.
        secrets: tokens and kubeconfigs.
        address: the fixed address.
        volume: the state's volume.
        control_plane: the machine's group and role.
        firewall: the security groups.
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
    ) -> None:
        super().__init__(scope, id)
        if subnet is None:
            subnet = (vpc.public_subnets if elastic_ip else vpc.select_subnets().subnets)[0]
        name = f"{cluster_name}/control-plane"
        self.cluster_name = cluster_name
        self.firewall = ClusterFirewall(self, "Firewall", vpc=vpc, api_from=api_from, ssh_from=ssh_from)
        self.secrets = ClusterSecrets(self, "Secrets", cluster_name=cluster_name, encryption_key=encryption_key)
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
        self.address = FixedAddress(
            self,
            "Address",
            subnet=subnet,
            security_groups=[self.firewall.control_plane],
            private_address=private_address,
            elastic_ip=elastic_ip,
            name=name,
        )
        public = [self.address.elastic_ip] if self.address.elastic_ip else []
        self.server_url = f"https://{self.address.private_address}:{API_PORT}"
        # An address that the firewall opens to nobody is no endpoint: every kubeconfig would lead nowhere.
        endpoint = (self.address.elastic_ip if api_from else None) or self.address.private_address
        self.cluster_endpoint = f"https://{endpoint}:{API_PORT}"
        self.control_plane = ControlPlane(
            self,
            "ControlPlane",
            cluster_name=cluster_name,
            release=release,
            address=self.address,
            volume=self.volume,
            availability_zone=subnet.availability_zone,
            secrets=self.secrets,
            snapshots=snapshots,
            instance_type=instance_type,
            key_name=key_name,
            encryption_key=disk_key,
            group_name=group_name,
            variables={
                "ENDPOINT": self.cluster_endpoint,
                "ALTERNATE_NAMES": " ".join([self.address.private_address, *names, *public]),
                "JOBS_NAMESPACE": jobs_namespace,
                "POD_CIDR": pod_cidr,
                "SERVICE_CIDR": service_cidr,
            },
        )

    @property
    def cluster_security_group_id(self) -> str:
        """The group that every node carries."""
        return self.firewall.nodes.security_group_id

    @property
    def connections(self) -> ec2.Connections:
        """The API endpoint's network connections, port 6443."""
        return ec2.Connections(security_groups=[self.firewall.control_plane], default_port=API)

"""A self-managed cluster: the control plane, access to it, and its DNS names; node groups that join
with its token.
"""

from dataclasses import replace
from typing import cast

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_route53 as route53

from constructs_lib.ec2.node_group import NodeGroupProps
from constructs_lib.k3s.cluster import API_PORT, SelfManagedCluster, SnapshotPlace
from constructs_lib.k3s.node_group import K3sNodeGroup, TokenNodeRole
from constructs_lib.k3s.release import MachineFile, Release
from paddle_aws.stacks.access import grant_work
from paddle_aws.stacks.cluster import make_public_name, make_tunnel
from paddle_aws.stacks.cluster_spec import ClusterSpec
from paddle_aws.stacks.distribution_lock import DistributionLock
from paddle_aws.stacks.node_settings import NodeGroup
from paddle_aws.stacks.nodes import output_mounts, props_of
from paddle_aws.stacks.part import Platform, PlatformStack, warn_of_types
from paddle_settings.errors import SettingError


def release(spec: ClusterSpec) -> Release:
    """Returns what the machines run, as the lock says. Raises SettingError, one sentence, if the
    lock or a file is missing.
    """
    place = spec.cluster.distribution
    lock = DistributionLock.load(place.lock_path)
    if "version" in spec.cluster.model_fields_set:
        lock.check_version(spec.cluster.version, place.lock_path)
    files = {
        name: MachineFile(path, sha256)
        for name, path, sha256 in lock.verified_files(place.files_path)
    }
    return Release(lock.version, files, lock.images)


class K3sClusterStack(PlatformStack):
    """The self-managed cluster without nodes."""

    def __init__(self, platform: Platform) -> None:
        super().__init__(platform, "cluster", "self-managed control plane")
        self.release = release(self.spec)
        spec, network, access = self.spec, platform.network, platform.access
        storage = platform.storage
        settings, vpc, zone = spec.cluster, network.vpc, network.zone
        ssh, public = settings.ssh, spec.zone.public
        pair = self._make_key_pair() if ssh and not ssh.key_pair else None
        self.add_stack_dependency(Stack.of(storage.bucket))
        subnets = vpc.public_subnets if settings.elastic_ip else vpc.select_subnets().subnets
        self.cluster = SelfManagedCluster(
            self,
            "Cluster",
            vpc=vpc,
            cluster_name=spec.name,
            release=self.release,
            snapshots=SnapshotPlace(
                bucket_name=storage.bucket.bucket_name,
                bucket_arn=storage.bucket_arn,
                encryption_key=storage.bucket_key,
                **settings.snapshots.model_dump(),
            ),
            subnet=subnets[spec.network.zones.index(spec.control_plane_zone)],
            private_address=spec.control_plane_address,
            names=[zone.zone_name, f"api.{zone.zone_name}", *([public.host] if public else [])],
            api_from=settings.public_access_from,
            ssh_from=ssh.allowed_from if ssh else (),
            host_ports=settings.host_ports,
            key_name=pair.key_pair_name if pair else ssh.key_pair if ssh else None,
            jobs_namespace=spec.jobs.namespace,
            service_cidr=settings.services,
            **settings.model_dump(
                include={"elastic_ip", "pod_cidr", "instance_type", "volume_gib", "volume_snapshot"}
            ),
            encryption_key=access.key,
            disk_key=access.node_volume_key,
            group_name=spec.control_plane_group,
            removal_policy=RemovalPolicy.SNAPSHOT if spec.retain else RemovalPolicy.DESTROY,
            environment=spec.proxy_variables,
            certificates=spec.certificates,
        )
        firewall = self.cluster.firewall
        for port in spec.proxy.ports if spec.proxy else ():
            for group in (firewall.nodes, firewall.control_plane):
                group.add_egress_rule(ec2.Peer.any_ipv4(), ec2.Port.tcp(port), "the proxy")
        # AWS stores the private key in this parameter, encrypted, and nowhere else.
        ssh_key = pair.private_key.parameter_name if pair else None
        grant_work(self, ssh_key=ssh_key)
        make_tunnel(self, self.cluster.private_address, API_PORT, firewall.control_plane)
        self._make_records(zone)
        if self.cluster.public_address:
            make_public_name(self, "A", self.cluster.public_address)
        self._output_cluster(zone)
        if ssh_key:
            # The command that prints the private key.
            command = f"aws ssm get-parameter --region {spec.region} --name {ssh_key}"
            shown = "--with-decryption --query Parameter.Value --output text"
            self.output(SshKeyCommand=f"{command} {shown}")

    def _make_key_pair(self) -> ec2.KeyPair:
        pair = ec2.KeyPair(
            self, "KeyPair", key_pair_name=self.spec.name, type=ec2.KeyPairType.ED25519
        )
        resource = pair.node.default_child
        assert isinstance(resource, ec2.CfnKeyPair)
        # CloudFormation cannot update these: it would make a new pair, whose name is taken, and new
        # machines for it.
        for never_changed in ("Tags", "KeyFormat"):
            resource.add_property_deletion_override(never_changed)
        return pair

    def _output_cluster(self, zone: route53.IHostedZone) -> None:
        """Outputs what charts and commands need of the cluster."""
        self.output(
            ClusterName=self.cluster.cluster_name,
            ClusterEndpoint=self.cluster.cluster_endpoint,
            EndpointDnsName=f"api.{zone.zone_name}",
            ControlPlaneAddress=self.cluster.private_address,
            Region=self.region,
            # The data job's pod has the node's role, not one of its own.
            DataJobCredentials="instance-profile",
            # Between nodes the firewall allows the kubelet and the pod network, and of jobs' own
            # ports these alone.
            HostPorts=",".join(self.spec.cluster.host_ports) or "closed",
            # This command finds the team's own secret by name; the raw one would print the secret.
            KubeconfigCommand="paddle-aws kubeconfig",
            # v1.35.2+k3s1 is Kubernetes 1.35: charts use only what that supports.
            KubernetesVersion=".".join(self.release.version.removeprefix("v").split(".")[:2]),
        )
        for team, arn in self.cluster.secrets.kubeconfigs.items():
            name = "" if team == "operator" else team.title()
            self.output(**{f"{name}KubeconfigSecretArn": arn})

    def _make_records(self, zone: route53.IHostedZone) -> None:
        # In the tutorials the control plane has the zone's own name. An address may have it, an EKS
        # endpoint may not.
        for id, name in (("Api", "api"), *(() if self.spec.zone.existing else (("Apex", ""),))):
            route53.ARecord(
                self,
                id,
                zone=zone,
                record_name=name or zone.zone_name,
                target=route53.RecordTarget.from_ip_addresses(self.cluster.private_address),
                ttl=Duration.minutes(1),
                comment="Kubernetes API",
            )


class K3sNodesStack(PlatformStack):
    """Node groups of a self-managed cluster.

    Args:
        platform: the platform that it is a part of.

    Attributes:
        groups: the node groups, in the order of the settings.

    Raises:
        SettingError: one sentence, for settings that do not fit.
    """

    def __init__(self, platform: Platform) -> None:
        super().__init__(platform, "nodes", "worker nodes")
        warn_of_types(self, self.spec)
        spec, storage = self.spec, platform.storage
        control_plane = cast(K3sClusterStack, platform.control_plane)
        # An upgrade replaces the control plane first: a node is never newer.
        self.add_stack_dependency(control_plane)
        self.add_stack_dependency(Stack.of(storage.bucket))
        # One role for all groups. It reads only sources: the snapshots in the same bucket hold
        # every secret of the cluster.
        self._control_plane = control_plane
        self._role = TokenNodeRole(
            self,
            "Joining",
            cluster=control_plane.cluster,
            release=control_plane.release,
            data_arns=[f"{storage.bucket_arn}/sources/*"],
            data_bucket_arn=storage.bucket_arn,
            data_key=storage.bucket_key,
        )

        self.groups = [self.make_group(name, group) for name, group in spec.nodes.items()]
        self.output(NodeGroupNames=",".join(group.group_name for group in self.groups))
        output_mounts(self)

    def group_props(self, name: str, group: NodeGroup) -> NodeGroupProps:
        """Returns a group's props; override it to add some, such as `extra_user_data`."""
        props = props_of(self.platform, group)
        if group.ssh is None and (ssh := self.spec.cluster.ssh):
            # A plain name, not a reference: this stack is deployed after the cluster's anyway, and
            # needs no export from it.
            key_pair = ssh.key_pair or self.spec.name
            props["shape"] = replace(props["shape"], key_pair=key_pair, ssh_from=ssh.allowed_from)
        return props

    def make_group(self, name: str, group: NodeGroup) -> K3sNodeGroup:
        """Returns a node group; override it to make another one."""
        props, group_name = self.group_props(name, group), self.spec.node_group_name(name)
        try:
            return K3sNodeGroup(
                self,
                name,
                cluster=self._control_plane.cluster,
                vpc=self.platform.network.vpc,
                release=self._control_plane.release,
                role=self._role,
                group_name=group_name,
                **props,
            )
        except ValueError as error:
            raise SettingError(f"nodes.{name}: {error}") from None

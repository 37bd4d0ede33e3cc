"""The control plane, who may talk to it, and its name."""

from collections.abc import Mapping

from aws_cdk import Annotations, CfnOutput
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from aws_cdk import aws_route53 as route53
from constructs import Construct

from constructs_lib.acknowledged import acknowledge, wildcards
from constructs_lib.ec2.machine import auto_mode_role
from constructs_lib.eks.addon import PodIdentity
from constructs_lib.eks.cluster import TrainingCluster
from constructs_lib.eks.cluster_access import AccessLevel, ClusterAccess, EndpointName
from constructs_lib.network.endpoint_tunnel import TAG, EndpointTunnel
from constructs_lib.statements import statements
from paddle_aws.stacks.access import RIGHTS, AccessStack, grant_work
from paddle_aws.stacks.cluster_spec import DATA_ACCOUNT, KUBERNETES_VERSIONS, ClusterSpec
from paddle_aws.stacks.control_plane_settings import minor
from paddle_aws.stacks.network import NetworkStack
from paddle_aws.stacks.part import ClusterPart
from paddle_aws.stacks.storage import StorageStack


class ClusterStack(ClusterPart):
    """The EKS cluster without nodes, new or existing."""

    def __init__(
        self,
        scope: Construct,
        spec: ClusterSpec,
        storage: StorageStack,
        versions: Mapping[str, str],
    ) -> None:
        """`versions`: add-on versions by name."""
        super().__init__(scope, spec, "cluster", "Kubernetes control plane")
        self.add_stack_dependency(storage)
        self.storage, network, access = storage, storage.network, storage.network.access
        self.auto_mode_role = auto_mode_role(self, "NodeRole") if spec.auto else None
        self.cluster = self._cluster(versions)
        self._grant_access(access)
        data = PodIdentity(
            self,
            "DataJob",
            cluster=self.cluster,
            namespace=spec.jobs.namespace,
            service_account=DATA_ACCOUNT,
        )
        # No other namespace's data jobs have these rights: manifests refuse a job that needs them.
        CfnOutput(self, "JobsNamespace", value=spec.jobs.namespace)
        policy = iam.ManagedPolicy(
            self, "DataJobPolicy", roles=[data.role], description="Reads training data"
        )
        policy.add_statements(
            *statements(RIGHTS, "data", bucket=storage.bucket_arn, key=storage.bucket_key.key_arn)
        )
        acknowledge(
            policy,
            "training data may lie anywhere in this one bucket",
            *wildcards(self, f"{storage.bucket_arn}/*"),
        )
        grant_work(self, storage)
        if minor(spec.cluster.version) > minor(KUBERNETES_VERSIONS[-1]):
            Annotations.of(self).add_warning_v2(
                "paddle-aws:kubernetes-version",
                f"cluster.version is {spec.cluster.version}, and this release was made for "
                f"{KUBERNETES_VERSIONS[-1]} and older: `paddle-aws doctor` asks EKS whether it has "
                "it; see to the add-ons' versions",
            )
        name = EndpointName(self, "EndpointName", zone=network.zone, cluster=self.cluster)
        CfnOutput(self, "ClusterName", value=self.cluster.cluster_name)
        CfnOutput(self, "ClusterEndpoint", value=self.cluster.cluster_endpoint)
        CfnOutput(self, "EndpointDnsName", value=name.name)
        group = ec2.SecurityGroup.from_security_group_id(
            self, "EndpointGroup", self.cluster.cluster_security_group_id
        )
        make_tunnel(self, network, name.host, 443, group)
        make_public_name(self, "CNAME", name.host)
        CfnOutput(self, "Region", value=self.region)
        if spec.cluster.existing is None:
            # Charts use only what this version supports. An existing cluster's version is not ours
            # to state.
            CfnOutput(self, "KubernetesVersion", value=spec.cluster.version)
            # Self-managed nodes import these. Always exported: else they would go before the nodes
            # when a group becomes managed.
            for value in (
                self.cluster.cluster_endpoint,
                self.cluster.cluster_certificate_authority_data,
            ):
                self.export_value(value)
        # It names the operator's role: the deployer has no entry (CloudFormation's role made the
        # cluster).
        command = f"aws eks update-kubeconfig --name {spec.cluster_name} --region {spec.region}"
        CfnOutput(
            self,
            "KubeconfigCommand",
            value=f"{command} --role-arn {access.teams['operator'].role.role_arn}",
        )
        acknowledge(self, "a command for a person names a role of another stack", "cfn-lint:W6001")

    def _cluster(self, versions: Mapping[str, str]) -> eks.ICluster:
        settings, network = self.spec.cluster, self.storage.network
        if existing := settings.existing:
            return eks.Cluster.from_cluster_attributes(
                self,
                "Cluster",
                cluster_name=existing.name,
                cluster_endpoint=existing.endpoint,
                cluster_certificate_authority_data=existing.certificate_authority,
                cluster_security_group_id=existing.security_group,
                vpc=network.vpc,
            )
        return TrainingCluster(
            self,
            "Cluster",
            vpc=network.vpc,
            cluster_name=self.spec.name,
            encryption_key=network.access.key,
            service_ipv4_cidr=settings.services,
            addon_versions=versions,
            auto_mode_role=self.auto_mode_role,
            **settings.model_dump(
                include={"version", "support", "public_access_from", "log_days", "oidc_provider"}
            ),
        )

    def _grant_access(self, access: AccessStack) -> None:
        for kind, arns, everybody, team, level in (
            (
                "Administrator",
                self.spec.cluster.administrators,
                "Operators",
                "operator",
                AccessLevel.ADMINISTER,
            ),
            ("Deployer", self.spec.cluster.deployers, "Trainers", "trainer", AccessLevel.DEPLOY),
            ("Reader", self.spec.cluster.readers, "ReadOnly", "reader", AccessLevel.READ),
        ):
            # An id contains the principal's name: removing one from the list leaves the others'
            # entries alone. A path's slash becomes a bar, which no name contains, and not a hyphen.
            named = {
                f"{kind}-"
                + arn.partition(":iam::")[2]
                .replace(":", "-")
                .replace("/", "-", 1)
                .replace("/", "|"): arn
                for arn in arns
            }
            where = [self.spec.jobs.namespace] if level is AccessLevel.DEPLOY else []
            for id, arn in {**named, everybody: access.teams[team].role.role_arn}.items():
                ClusterAccess(
                    self, id, cluster=self.cluster, principal_arn=arn, level=level, namespaces=where
                )


def make_public_name(stack: ClusterPart, kind: str, target: str) -> None:
    """Makes a record of this `kind` that leads to `target` in the settings' public zone, if they
    name one.
    """
    if (public := stack.spec.zone.public) is None:
        return
    route53.CfnRecordSet(
        stack,
        "PublicName",
        hosted_zone_id=public.id,
        name=f"{public.host}.",
        type=kind,
        ttl="60",
        resource_records=[target],
        comment="Kubernetes API",
    )
    CfnOutput(stack, "PublicDnsName", value=public.host)


def make_tunnel(
    stack: ClusterPart, network: NetworkStack, host: str, port: int, group: ec2.ISecurityGroup
) -> None:
    """Makes a tunnel to a private endpoint, if the settings ask for one. `group` is the endpoint's
    security group.
    """
    spec, name, key = stack.spec, stack.spec.tunnel_document, network.access.node_volume_key
    if not spec.cluster.has_tunnel:
        return
    tunnel = EndpointTunnel(
        stack,
        "Tunnel",
        vpc=network.vpc,
        host=host,
        port=port,
        document_name=name,
        encryption_key=key,
    )
    tunnel.connections.allow_to(group, ec2.Port.tcp(port), "Kubernetes API")
    tags = f"Name=tag:{TAG},Values={name} Name=instance-state-name,Values=running"
    find = f"aws ec2 describe-instances --region {spec.region} --filters {tags}"
    target = f"$({find} --query 'Reservations[0].Instances[0].InstanceId' --output text)"
    command = (
        f"aws ssm start-session --region {spec.region} --target {target} --document-name {name}"
    )
    CfnOutput(stack, "TunnelCommand", value=f"{command} --parameters localPortNumber=8443")

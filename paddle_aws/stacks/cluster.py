"""The control plane, access to it, and its DNS names."""

from aws_cdk import Annotations, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from aws_cdk import aws_route53 as route53

from constructs_lib.acknowledged import acknowledge, wildcard_findings
from constructs_lib.ec2.machine import auto_mode_role
from constructs_lib.eks.addon import PodIdentity
from constructs_lib.eks.cluster import TrainingCluster
from constructs_lib.eks.cluster_access import AccessLevel, ClusterAccess, EndpointName
from constructs_lib.network.endpoint_tunnel import TAG, EndpointTunnel
from constructs_lib.statements import statements
from paddle_aws.stacks.access import RIGHTS, grant_work
from paddle_aws.stacks.cluster_spec import KUBERNETES_VERSIONS
from paddle_aws.stacks.control_plane_settings import minor
from paddle_aws.stacks.part import Platform, PlatformStack
from paddle_settings.shared_names import DATA_ACCOUNT


class ClusterStack(PlatformStack):
    """The EKS cluster without nodes, new or existing.

    Args:
        platform: the platform that it is a part of.

    Attributes:
        data_job: the data job's pods; grant rights to it.
    """

    def __init__(self, platform: Platform, *, cluster: eks.ICluster | None = None) -> None:
        """`cluster`: one of your own; default: what the settings describe."""
        super().__init__(platform, "cluster", "Kubernetes control plane")
        spec, storage = self.spec, platform.storage
        self.add_stack_dependency(Stack.of(storage.bucket))
        self.auto_mode_role = auto_mode_role(self, "NodeRole") if spec.auto else None
        self.cluster = cluster or self.make_cluster()
        self._grant_access()
        self._grant_data_job()
        grant_work(self)
        self._warn_of_version()
        name = EndpointName(self, "EndpointName", zone=platform.network.zone, cluster=self.cluster)
        self.output(
            ClusterName=self.cluster.cluster_name,
            ClusterEndpoint=self.cluster.cluster_endpoint,
            EndpointDnsName=name.name,
        )
        group = ec2.SecurityGroup.from_security_group_id(
            self, "EndpointGroup", self.cluster.cluster_security_group_id
        )
        make_tunnel(self, name.host, 443, group)
        make_public_name(self, "CNAME", name.host)
        self.output(Region=self.region)
        if spec.cluster.existing is None:
            # Charts use only what this version supports. The settings do not say which version an
            # existing cluster has.
            self.output(KubernetesVersion=spec.cluster.version)
        if cluster is None and spec.cluster.existing is None:
            # Self-managed nodes import these. Always exported: else they would go before the nodes
            # when a group becomes managed.
            self.export_value(self.cluster.cluster_endpoint)
            self.export_value(self.cluster.cluster_certificate_authority_data)
        self._output_kubeconfig_command()

    def make_cluster(self) -> eks.ICluster:
        """Returns the cluster of the settings; override it to use another one."""
        settings, network = self.spec.cluster, self.platform.network
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
            encryption_key=self.platform.access.key,
            service_ipv4_cidr=settings.services,
            addon_versions=self.platform.addon_versions,
            auto_mode_role=self.auto_mode_role,
            **settings.model_dump(
                include={"version", "support", "public_access_from", "log_days", "oidc_provider"}
            ),
        )

    def _grant_data_job(self) -> None:
        """Lets the data job's pods, in the jobs' namespace alone, read training data."""
        namespace, storage = self.spec.jobs.namespace, self.platform.storage
        account = {"namespace": namespace, "service_account": DATA_ACCOUNT}
        self.data_job = PodIdentity(self, "DataJob", cluster=self.cluster, **account)
        # No other namespace's data jobs have these rights: manifests refuse a job that needs them.
        self.output(JobsNamespace=namespace)
        policy = iam.ManagedPolicy(
            self, "DataJobPolicy", roles=[self.data_job.role], description="Reads training data"
        )
        policy.add_statements(
            *statements(RIGHTS, "data", bucket=storage.bucket_arn, key=storage.bucket_key.key_arn)
        )
        acknowledge(
            policy,
            "training data may lie anywhere in this one bucket",
            *wildcard_findings(self, f"{storage.bucket_arn}/*"),
        )

    def _warn_of_version(self) -> None:
        """Warns of a version of Kubernetes that this release does not know yet."""
        version = self.spec.cluster.version
        if minor(version) > minor(KUBERNETES_VERSIONS[-1]):
            Annotations.of(self).add_warning_v2(
                "paddle-aws:kubernetes-version",
                f"cluster.version is {version}, and this release was made for "
                f"{KUBERNETES_VERSIONS[-1]} and older: `paddle-aws doctor` asks EKS whether it has "
                "it; see to the add-ons' versions",
            )

    def _output_kubeconfig_command(self) -> None:
        # It names the operator's role: the deployer has no entry (CloudFormation's role made the
        # cluster).
        command = (
            f"aws eks update-kubeconfig --name {self.spec.cluster_name} --region {self.spec.region}"
        )
        role = self.platform.access.teams["operator"].role
        self.output(KubeconfigCommand=f"{command} --role-arn {role.role_arn}")
        acknowledge(self, "a command for a person names a role of another stack", "cfn-lint:W6001")

    def _grant_access(self) -> None:
        teams, cluster = self.platform.access.teams, self.spec.cluster
        ids = {"operator": "Operators", "trainer": "Trainers", "reader": "ReadOnly"}
        for kind, arns, team, level in (
            ("Administrator", cluster.administrators, "operator", AccessLevel.ADMINISTER),
            ("Deployer", cluster.deployers, "trainer", AccessLevel.DEPLOY),
            ("Reader", cluster.readers, "reader", AccessLevel.READ),
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
            for id, arn in {**named, ids[team]: teams[team].role.role_arn}.items():
                ClusterAccess(
                    self, id, cluster=self.cluster, principal_arn=arn, level=level, namespaces=where
                )


def make_public_name(stack: PlatformStack, kind: str, target: str) -> None:
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
    stack.output(PublicDnsName=public.host)


def make_tunnel(stack: PlatformStack, host: str, port: int, group: ec2.ISecurityGroup) -> None:
    """Makes a tunnel to a private endpoint, if the settings ask for one. `group` is the endpoint's
    security group.
    """
    spec, platform, name = stack.spec, stack.platform, stack.spec.tunnel_document
    if not spec.cluster.has_tunnel:
        return
    tunnel = EndpointTunnel(
        stack,
        "Tunnel",
        vpc=platform.network.vpc,
        host=host,
        port=port,
        document_name=name,
        encryption_key=platform.access.node_volume_key,
    )
    tunnel.connections.allow_to(group, ec2.Port.tcp(port), "Kubernetes API")
    tags = f"Name=tag:{TAG},Values={name} Name=instance-state-name,Values=running"
    find = f"aws ec2 describe-instances --region {spec.region} --filters {tags}"
    target = f"$({find} --query 'Reservations[0].Instances[0].InstanceId' --output text)"
    command = (
        f"aws ssm start-session --region {spec.region} --target {target} --document-name {name}"
    )
    stack.output(TunnelCommand=f"{command} --parameters localPortNumber=8443")

"""The Kubernetes control plane on EKS, made by CloudFormation only: no Lambda and no custom
resource unless asked for.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack

from aws_cdk import Annotations, RemovalPolicy
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from constructs_lib.acknowledged import EVERY_RESOURCE, acknowledge, managed_policy_findings
from constructs_lib.addresses import API_CLIENTS, EKS_SERVICES
from constructs_lib.ec2.node_group import NodeGroupProps
from constructs_lib.eks.addon import ClusterAddon
from constructs_lib.eks.managed_nodes import ManagedNodes
from constructs_lib.metrics import CONTAINER_INSIGHTS, MetricOptions, metric
from constructs_lib.rules import CLUSTER_NAME, KUBERNETES_VERSION, Violation, log_days_or_none
from constructs_lib.statements import OF_MACHINES, statements
from constructs_lib.storage.log_group import EndingLogGroup
from constructs_lib.subnets import choose_subnets, zones_of
from constructs_lib.validation import check, merge_options, refuse

NODELESS_ADDONS = ("vpc-cni", "kube-proxy", "eks-pod-identity-agent")
"""DaemonSets: they are healthy without a node, so they come with the cluster. Add-ons with a
Deployment come with the nodes.
"""

AUTO_MODE_POLICIES = tuple(
    f"AmazonEKS{part}Policy" for part in ("Compute", "BlockStorage", "LoadBalancing", "Networking")
)
"""Policies that EKS Auto Mode's documentation requires, besides the one of every control plane."""


def _too_few_zones(subnets: ec2.SubnetSelection) -> Iterator[Violation]:
    zones = zones_of(subnets.subnets or ())
    if zones is not None and len(zones) < 2:
        allowed = (
            "EKS wants subnets in two zones at least (to keep nodes in one zone, pin the nodes)"
        )
        yield Violation("vpc_subnets", f"in {len(zones)} availability zone", allowed)


class ClusterOptions(TypedDict, total=False):
    """What `eks_v2.Cluster` takes and we do not decide; its documentation has the meanings."""

    alb_controller: eks.AlbControllerOptions
    control_plane_scaling_tier: eks.ControlPlaneScalingTier
    ip_family: eks.IpFamily
    masters_role: iam.IRole
    prune: bool
    remote_node_networks: Sequence[eks.RemoteNodeNetwork]
    remote_pod_networks: Sequence[eks.RemotePodNetwork]
    removal_policy: RemovalPolicy
    security_group: ec2.ISecurityGroup
    tags: Mapping[str, str]


class TrainingCluster(eks.Cluster):
    """An EKS cluster without nodes, with everything that `aws_eks_v2.Cluster` has.

    Example, in a stack with a VPC:

    >>> from constructs_lib.ec2.node_shape import NodeShape
    >>> cluster = TrainingCluster(stack, "Cluster", vpc=vpc, cluster_name="vision")
    >>> shape = NodeShape(instance_types=["m7i.2xlarge"])
    >>> nodes = cluster.add_node_group("workers", shape=shape, min_size=0, max_size=9)

    Manifests reach it in two ways. One is YAML for kubectl, so that a destroy has nothing to get
    stuck on::

        manifests = cdk8s.App(outdir="dist")
        Jobs(manifests, "jobs")
        manifests.synth()  # then: kubectl apply -f dist

    The other, for charts that refer to resources of the app, is a Lambda function that the deploy
    runs. `layer` has a kubectl of the cluster's version, such as KubectlV35Layer of PyPI's
    aws-cdk.lambda-layer-kubectl-v35::

        options = eks.KubectlProviderOptions(kubectl_layer=layer)
        cluster = TrainingCluster(
            self, "Cluster", vpc=vpc, cluster_name="train", kubectl_provider_options=options
        )
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "jobs"}}
        cluster.add_manifest("Namespace", namespace)
        cluster.add_cdk8s_chart("Jobs", Jobs(cdk8s.App(), "jobs"))

    Args:
        role: the control plane's role; None: a role of its own.
        vpc: its VPC; EKS requires subnets in at least two zones.
        cluster_name: name; it is part of the log group's name, so it has to be given, not
            generated.
        version: Kubernetes version, such as "1.36".
        support: what EKS does when standard support of the version ends; standard: it upgrades the
            control plane; extended: it keeps the version for twelve months, at a higher price.
        vpc_subnets: where the control plane's interfaces are; None: the private subnets.
        encryption_key: KMS key of secrets and logs; None: AWS's own.
        public_access_from: CIDRs that may reach the endpoint from the internet; empty: it is
            private.
        service_ipv4_cidr: addresses of Kubernetes services, outside the VPC's; self-managed nodes
            need it too.
        log_days: how long control-plane logs are kept; 0: none are written.
        addon_versions: add-on: version, for those of NODELESS_ADDONS that should not have EKS's
            default version.
        auto_mode_role: EKS Auto Mode creates and terminates the nodes, with this role
            (`auto_mode_role`), for NodePools that are applied later; None: node groups add the
            nodes.
        oidc_provider: also make an IAM OIDC provider (with CloudFormation only), for tools that use
            roles for service accounts.
        kubectl_provider_options: the Lambda function that applies manifests; None: there is none.
        options: passed to `eks_v2.Cluster`.

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
        version: str = "1.36",
        support: Literal["standard", "extended"] = "standard",
        vpc_subnets: ec2.SubnetSelection | None = None,
        encryption_key: kms.IKey | None = None,
        public_access_from: Sequence[str] = (),
        service_ipv4_cidr: str = "172.20.0.0/16",
        log_days: int = 90,
        addon_versions: Mapping[str, str] | None = None,
        auto_mode_role: iam.IRole | None = None,
        oidc_provider: bool = False,
        role: iam.IRole | None = None,
        kubectl_provider_options: eks.KubectlProviderOptions | None = None,
        **options: Unpack[ClusterOptions],
    ) -> None:
        path = f"{scope.node.path}/{id}"
        subnets = choose_subnets(vpc, vpc_subnets)
        violations = check(
            cluster_name=(CLUSTER_NAME, cluster_name),
            version=(KUBERNETES_VERSION, version),
            public_access_from=(API_CLIENTS, public_access_from),
            service_ipv4_cidr=(EKS_SERVICES, service_ipv4_cidr),
            log_days=(log_days_or_none, log_days),
        )
        refuse(path, [*_too_few_zones(subnets), *violations])
        count: int | None = 0
        kind, pools = eks.DefaultCapacityType.NODEGROUP, None
        if auto_mode_role:
            kind, count = eks.DefaultCapacityType.AUTOMODE, None
            # AWS's own pool for add-ons; it also makes EKS let the role's machines join.
            pools = eks.ComputeConfig(node_pools=["system"], node_role=auto_mode_role)
        endpoint = eks.EndpointAccess.PRIVATE
        if public_access_from:
            endpoint = eks.EndpointAccess.PUBLIC_AND_PRIVATE.only_from(*public_access_from)
        decided = {
            "vpc": vpc,
            "vpc_subnets": [subnets],
            "cluster_name": cluster_name,
            "version": eks.KubernetesVersion.of(version),
            "role": role,
            "endpoint_access": endpoint,
            "secrets_encryption_key": encryption_key,
            "service_ipv4_cidr": None
            if options.get("ip_family") == eks.IpFamily.IP_V6
            else service_ipv4_cidr,
            "cluster_logging": list(eks.ClusterLoggingTypes) if log_days else None,
            "default_capacity_type": kind,
            "default_capacity": count,
            "compute": pools,
            # The deployer is CloudFormation's role, not a person: cluster.yaml names the
            # administrators.
            "bootstrap_cluster_creator_admin_permissions": False,
            "bootstrap_self_managed_addons": False,
            "output_config_command": False,
            "kubectl_provider_options": kubectl_provider_options,
        }
        super().__init__(scope, id, **merge_options(path, decided, options))
        resource = self.node.default_child
        assert isinstance(resource, eks.CfnCluster)
        # EKS's own default bills extended support from the day standard support ends.
        resource.upgrade_policy = eks.CfnCluster.UpgradePolicyProperty(support_type=support.upper())
        self.service_ipv4_cidr = service_ipv4_cidr
        # aws_eks_v2.ICluster has this property, its own Cluster does not: a type checker would not
        # accept it as an ICluster.
        self.kubectl_provider_options = kubectl_provider_options
        self._acknowledge_warnings()
        if role is None:
            self._acknowledge_role(auto_mode=auto_mode_role is not None)
        if role is None and auto_mode_role:
            self._let_role_tag_machines()
        if log_days:
            self._keep_logs(cluster_name, log_days, encryption_key)
        if auto_mode_role is None:
            self._add_nodeless_addons(addon_versions or {})
        if oidc_provider:
            # The native resource, whatever the app's feature flags say; IAM fetches the thumbprint
            # itself.
            self.oidc_provider = iam.OidcProviderNative(
                self,
                "OidcProvider",
                url=self.cluster_open_id_connect_issuer_url,
                client_ids=["sts.amazonaws.com"],
            )

    def _keep_logs(self, cluster_name: str, days: int, encryption_key: kms.IKey | None) -> None:
        """Makes the log group first: EKS would make it without a retention time, and leave it
        behind.
        """
        logs = EndingLogGroup(
            self,
            "Logs",
            log_group_name=f"/aws/eks/{cluster_name}/cluster",
            days=days,
            encryption_key=encryption_key,
        )
        assert self.node.default_child is not None
        self.node.default_child.node.add_dependency(logs)

    def _add_nodeless_addons(self, versions: Mapping[str, str]) -> None:
        for name in NODELESS_ADDONS:
            settings = {"enableNetworkPolicy": "true"} if name == "vpc-cni" else None
            # Not by add_addon: a subclass's own may need what its constructor makes later.
            ClusterAddon(
                self,
                name,
                cluster=self,
                addon_name=name,
                version=versions.get(name),
                configuration=settings,
            )

    def _acknowledge_warnings(self) -> None:
        """Acknowledges warnings of the CDK, with the reasons."""
        Annotations.of(self).acknowledge_warning(
            "@aws-cdk/aws-eks:clusterMustManuallyTagSubnet",
            "only load balancers need the tag, and training makes none",
        )
        if self.kubectl_provider_options is None:
            Annotations.of(self).acknowledge_warning(
                "@aws-cdk/aws-eks:isolatedSubnetsForKubectlPrivateSubnets",
                "no kubectl runs here; TrainingNetwork has the endpoints",
            )

    def _acknowledge_role(self, *, auto_mode: bool) -> None:
        """Acknowledges that the control plane's role has AWS's policies, with the reasons."""
        acknowledge(
            self.role,
            "what EKS's documents ask for; AWS keeps it in step with the control plane",
            *managed_policy_findings(
                "AmazonEKSClusterPolicy", *(AUTO_MODE_POLICIES if auto_mode else ())
            ),
        )

    def _let_role_tag_machines(self) -> None:
        """Lets EKS Auto Mode put the NodeClasses' tags on its machines."""
        tags = iam.ManagedPolicy(
            self,
            "Tags",
            roles=[self.role],
            description="Puts the NodeClasses' tags on machines",
            statements=statements(OF_MACHINES, "auto mode tags"),
        )
        why = "only machines that carry this cluster's name, by condition"
        acknowledge(tags, why, EVERY_RESOURCE)

    def add_node_group(
        self, id: str, *, ami_type: str | None = None, **props: Unpack[NodeGroupProps]
    ) -> ManagedNodes:
        """Adds a managed node group in the cluster's VPC."""
        return ManagedNodes(self, id, cluster=self, vpc=self.vpc, ami_type=ami_type, **props)

    def add_addon(
        self,
        addon_name: str,
        *,
        version: str | None = None,
        configuration: Mapping[str, Any] | None = None,
        roles: Mapping[str, iam.IRole] | None = None,
    ) -> ClusterAddon:
        """Adds an EKS add-on, as `ClusterAddon` does. If it has a Deployment, make it depend on a
        node group: it becomes healthy with a node alone.
        """
        return ClusterAddon(
            self,
            addon_name,
            cluster=self,
            addon_name=addon_name,
            version=version,
            configuration=configuration,
            roles=roles,
        )

    def metric(self, metric_name: str, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Returns a metric of Container Insights, which `ContainerLogs` turns on."""
        return metric(
            CONTAINER_INSIGHTS, metric_name, {"ClusterName": self.cluster_name}, **options
        )

    def metric_node_count(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Returns how many nodes there are; the minimum over five minutes."""
        options.setdefault("statistic", "Minimum")
        return self.metric("cluster_node_count", **options)

    def metric_failed_node_count(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Returns how many nodes have failed; the maximum over five minutes."""
        options.setdefault("statistic", "Maximum")
        return self.metric("cluster_failed_node_count", **options)

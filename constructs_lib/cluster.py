"""The Kubernetes control plane: EKS by CloudFormation alone.

Promises: no Lambda and no custom resource, so that a destroy has nothing to get stuck on; an endpoint that is private or
opened to named ranges; access by access entries only; secrets encrypted; control-plane logs that end with the cluster
instead of outliving it.
"""

from __future__ import annotations

from collections.abc import Sequence

import jsii
from aws_cdk import Aws, RemovalPolicy
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from constructs import Construct

from constructs_lib.addon import ClusterAddon
from constructs_lib.subnets import chosen

NODELESS_ADDONS = ("vpc-cni", "kube-proxy", "eks-pod-identity-agent")
"""Daemons: they are healthy without a node, so they come with the cluster. Those with a Deployment come with the nodes."""


@jsii.implements(ec2.IConnectable)
class TrainingCluster(Construct):
    """An EKS cluster without nodes.

    Args:
        scope: parent.
        id: construct id.
        vpc: its VPC; the cluster takes two zones at least.
        cluster_name: name; it is part of the control plane's log group, so it is given, not made up.
        version: Kubernetes version, such as "1.35".
        vpc_subnets: where the control plane's interfaces lie; None: the private subnets.
        encryption_key: KMS key of secrets and logs; None: AWS's own.
        public_access_from: CIDRs that may reach the endpoint from the internet; empty: it is private.
        log_retention: how long control-plane logs are kept.
        role: the cluster's role; None: one is made.

    Attributes:
        cluster: the EKS cluster.
        addons: the add-ons that come with it.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        vpc: ec2.IVpc,
        cluster_name: str,
        version: str = "1.35",
        vpc_subnets: ec2.SubnetSelection | None = None,
        encryption_key: kms.IKey | None = None,
        public_access_from: Sequence[str] = (),
        log_retention: logs.RetentionDays = logs.RetentionDays.THREE_MONTHS,
        role: iam.IRole | None = None,
    ) -> None:
        super().__init__(scope, id)
        # EKS would make this group itself, without an end, and leave it behind.
        log_group = logs.LogGroup(
            self,
            "Logs",
            log_group_name=f"/aws/eks/{cluster_name}/cluster",
            encryption_key=encryption_key,
            retention=log_retention,
            removal_policy=RemovalPolicy.DESTROY,
        )
        endpoint = eks.EndpointAccess.PRIVATE
        if public_access_from:
            endpoint = eks.EndpointAccess.PUBLIC_AND_PRIVATE.only_from(*public_access_from)
        self.cluster = eks.Cluster(
            self,
            "Cluster",
            vpc=vpc,
            vpc_subnets=[chosen(vpc, vpc_subnets)],
            cluster_name=cluster_name,
            version=eks.KubernetesVersion.of(version),
            role=role,
            endpoint_access=endpoint,
            secrets_encryption_key=encryption_key,
            cluster_logging=list(eks.ClusterLoggingTypes),
            default_capacity_type=eks.DefaultCapacityType.NODEGROUP,
            default_capacity=0,
            # Whoever deploys is CloudFormation's role: administrators are named instead.
            bootstrap_cluster_creator_admin_permissions=False,
            bootstrap_self_managed_addons=False,
            output_config_command=False,
        )
        self.cluster.node.add_dependency(log_group)
        self.addons = {
            name: ClusterAddon(
                self,
                name,
                cluster=self.cluster,
                addon_name=name,
                configuration={"enableNetworkPolicy": "true"} if name == "vpc-cni" else None,
            )
            for name in NODELESS_ADDONS
        }

    @property
    def connections(self) -> ec2.Connections:
        """The API endpoint's network connections, port 443."""
        return self.cluster.connections

    def grant_admin(self, id: str, principal_arn: str) -> eks.CfnAccessEntry:
        """Makes the IAM role or user `principal_arn` an administrator of the whole cluster."""
        return eks.CfnAccessEntry(
            self,
            id,
            cluster_name=self.cluster.cluster_name,
            principal_arn=principal_arn,
            access_policies=[
                eks.CfnAccessEntry.AccessPolicyProperty(
                    policy_arn=f"arn:{Aws.PARTITION}:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy",
                    access_scope=eks.CfnAccessEntry.AccessScopeProperty(type="cluster"),
                )
            ],
        )

"""The IAM role of worker nodes: join the cluster, pull images, take a Session Manager session; nothing else."""

from __future__ import annotations

from aws_cdk import aws_iam as iam
from constructs import Construct

from constructs_lib.acknowledged import acknowledge, managed_policies, wildcards
from constructs_lib.session_manager import takes_sessions

POLICIES = ("AmazonEKSWorkerNodePolicy", "AmazonEKS_CNI_Policy", "AmazonEC2ContainerRegistryPullOnly")
"""AWS's own, which EKS's documents ask for: AWS keeps them in step with what the node's daemons call."""


def node_role(scope: Construct, id: str) -> iam.Role:
    """A role that EC2 instances take to be nodes."""
    role = iam.Role(
        scope,
        id,
        assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"),
        managed_policies=[iam.ManagedPolicy.from_aws_managed_policy_name(name) for name in POLICIES],
    )
    acknowledge(role, "what EKS's documents ask for; AWS keeps them in step with the daemons", *managed_policies(*POLICIES))
    sessions = iam.ManagedPolicy(role, "Sessions", roles=[role], description="Session Manager")
    sessions.add_statements(takes_sessions())
    acknowledge(sessions, "Session Manager's actions take no resource", *wildcards(sessions, "*"), "CKV_AWS_111")
    return role

"""The IAM roles of machines: nodes of an EKS cluster, and whatever runs in a self-managed one."""

from __future__ import annotations

from aws_cdk import aws_iam as iam
from constructs import Construct

from constructs_lib.acknowledged import acknowledge, managed_policies, wildcards

PULL_ONLY = "AmazonEC2ContainerRegistryPullOnly"
NODE_POLICIES = ("AmazonEKSWorkerNodePolicy", "AmazonEKS_CNI_Policy", PULL_ONLY)
"""AWS's own, which EKS's documents ask for: AWS keeps them in step with what the node's daemons call."""


def machine_role(scope: Construct, id: str) -> iam.Role:
    """A role that EC2 instances take to pull images; what else it may do is its own policy's matter."""
    return _role(scope, id, "AWS's own list of what a pull from ECR calls", PULL_ONLY)


def node_role(scope: Construct, id: str) -> iam.Role:
    """A role that EC2 instances take to be nodes: join the cluster, pull images, take a Session Manager session; no more."""
    reason = "what EKS's documents ask for; AWS keeps them in step with the daemons"
    role = _role(scope, id, reason, *NODE_POLICIES)
    sessions = iam.ManagedPolicy(role, "Sessions", roles=[role], description="Session Manager")
    sessions.add_statements(takes_sessions())
    acknowledge(sessions, "Session Manager's actions take no resource", *wildcards(sessions, "*"), "CKV_AWS_111")
    return role


def _role(scope: Construct, id: str, reason: str, *policies: str) -> iam.Role:
    managed = [iam.ManagedPolicy.from_aws_managed_policy_name(name) for name in policies]
    role = iam.Role(scope, id, assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"), managed_policies=managed)
    acknowledge(role, reason, *managed_policies(*policies))
    return role


def takes_sessions() -> iam.PolicyStatement:
    """The five actions that Session Manager's documents name for an instance role; they know no resources.

    AWS's AmazonSSMManagedInstanceCore also reads every parameter of the account: on a machine whose pods reach its role (all of a
    self-managed cluster's, and those of EKS that are on the node's own network) that would be everybody's secrets, a private SSH
    key among them.
    """
    return iam.PolicyStatement(
        sid="SessionManager",
        actions=[
            "ssm:UpdateInstanceInformation",
            "ssmmessages:CreateControlChannel",
            "ssmmessages:CreateDataChannel",
            "ssmmessages:OpenControlChannel",
            "ssmmessages:OpenDataChannel",
        ],
        resources=["*"],
    )

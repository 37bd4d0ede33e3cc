"""The IAM role of a machine of a self-managed cluster: pull images; what else it may do is its own policy's matter."""

from __future__ import annotations

from aws_cdk import aws_iam as iam
from constructs import Construct

from constructs_lib.acknowledged import acknowledge, managed_policies

PULL_ONLY = "AmazonEC2ContainerRegistryPullOnly"


def machine_role(scope: Construct, id: str) -> iam.Role:
    """A role that EC2 instances take."""
    role = iam.Role(
        scope,
        id,
        assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"),
        managed_policies=[iam.ManagedPolicy.from_aws_managed_policy_name(PULL_ONLY)],
    )
    acknowledge(role, "AWS's own list of what a pull from ECR calls", *managed_policies(PULL_ONLY))
    return role

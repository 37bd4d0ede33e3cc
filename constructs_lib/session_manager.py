"""What a machine needs for Session Manager, and no more.

AWS's AmazonSSMManagedInstanceCore also reads every parameter of the account: on a machine whose pods reach its role (all of a
self-managed cluster's, and those of EKS that are on the node's own network) that would be everybody's secrets, a private SSH key
among them.
"""

from __future__ import annotations

from aws_cdk import aws_iam as iam


def takes_sessions() -> iam.PolicyStatement:
    """The five actions that Session Manager's documents name for an instance role; they know no resources."""
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

"""What the operator of a cluster may do: the two statements that the 2016 documents gave, narrowed to this cluster.

Promises: CloudFormation on this cluster's stacks only, and the key only to encrypt and decrypt.
"""

from __future__ import annotations

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct


class OperatorPolicy(iam.ManagedPolicy):
    """A managed policy to attach to the operator's group or role.

    Args:
        scope: parent.
        id: construct id.
        stack_prefix: first word of the cluster's stacks.
        key: the cluster's key.
    """

    def __init__(self, scope: Construct, id: str, *, stack_prefix: str, key: kms.IKey) -> None:
        super().__init__(scope, id, description=f"Operates the stacks of {stack_prefix}")
        stacks = Stack.of(self).format_arn(service="cloudformation", resource="stack", resource_name=f"{stack_prefix}-*")
        self.add_statements(
            iam.PolicyStatement(sid="Key", actions=["kms:Encrypt", "kms:Decrypt"], resources=[key.key_arn]),
            iam.PolicyStatement(
                sid="Stacks",
                actions=[
                    "cloudformation:CreateStack",
                    "cloudformation:UpdateStack",
                    "cloudformation:DeleteStack",
                    "cloudformation:DescribeStacks",
                    "cloudformation:DescribeStackResource",
                    "cloudformation:DescribeStackResources",
                    "cloudformation:DescribeStackEvents",
                    "cloudformation:GetTemplate",
                ],
                resources=[stacks],
            ),
        )

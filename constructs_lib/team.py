"""People with one task: an IAM group for users, and a role that its members take to reach a cluster's API.

Promises: group and role hold the same managed policies and nothing else. (EKS access entries know roles and users, not
groups: that is why there is a role.)
"""

from __future__ import annotations

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from constructs import Construct


class Team(Construct):
    """An IAM group and its role; put users into the group, and tell their kubeconfig the role.

    Args:
        task: what these people do, for the descriptions.

    Attributes:
        role: the role that its members may take.
    """

    def __init__(self, scope: Construct, id: str, *, task: str) -> None:
        super().__init__(scope, id)
        self.task = task
        self.group = iam.Group(self, "Group")
        # The account as principal: whom IAM lets take the role, and that is this group.
        self.role = iam.Role(self, "Role", assumed_by=iam.AccountPrincipal(Stack.of(self).account), description=task)
        iam.ManagedPolicy(self, "MayTakeRole", groups=[self.group], description=f"{task}: may take the role").add_statements(
            iam.PolicyStatement(sid="TakeRole", actions=["sts:AssumeRole"], resources=[self.role.role_arn])
        )

    def allow(self, scope: Construct, id: str, *statements: iam.PolicyStatement, description: str) -> iam.ManagedPolicy:
        """A managed policy in `scope` (the stack that knows what the statements are about) for group and role."""
        policy = iam.ManagedPolicy(scope, id, groups=[self.group], roles=[self.role], description=description)
        policy.add_statements(*statements)
        return policy

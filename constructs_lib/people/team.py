"""People with one task: an IAM group for users, and a role that its members take to reach a cluster's API.

EKS access entries know roles and users, not groups: that is why there is a role.
"""

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from constructs import Construct


class Team(Construct):
    """An IAM group and its role; put users into the group, and tell their kubeconfig the role.

    Args:
        task: what these people do, for the descriptions.
        may_take_role: a policy made elsewhere that lets its holders take the role; default: one of its own.
    """

    def __init__(self, scope: Construct, id: str, *, task: str, may_take_role: iam.IManagedPolicy | None = None) -> None:
        super().__init__(scope, id)
        self.task = task
        self.group = iam.Group(self, "Group", managed_policies=[may_take_role] if may_take_role else None)
        self._holders = [] if may_take_role else [self.group]
        # The account as principal: whom IAM lets take the role, and that is this group.
        self.role = iam.Role(self, "Role", assumed_by=iam.AccountPrincipal(Stack.of(self).account), description=task)
        if may_take_role is None:
            take = iam.PolicyStatement(sid="TakeRole", actions=["sts:AssumeRole"], resources=[self.role.role_arn])
            iam.ManagedPolicy(
                self, "MayTakeRole", groups=[self.group], description=f"{task}: may take the role", statements=[take]
            )

    def allow(self, scope: Construct, id: str, *statements: iam.PolicyStatement, description: str) -> iam.ManagedPolicy:
        """A managed policy in `scope` (the stack that knows what the statements are about) for group and role."""
        policy = iam.ManagedPolicy(scope, id, groups=self._holders, roles=[self.role], description=description)
        policy.add_statements(*statements)
        return policy

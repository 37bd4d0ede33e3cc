"""People with one task: an IAM group for users, and a role that its members assume to reach a
cluster's API.

The role exists because EKS access entries take roles and users, not groups.
"""

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from constructs import Construct


class Team(Construct):
    """An IAM group and its role. Put users into the group, and name the role in their kubeconfig.

    Args:
        task: what these people do, for the descriptions.
        may_take_role: a policy made elsewhere that lets its holders assume the role; None: the team
            makes its own.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        task: str,
        may_take_role: iam.IManagedPolicy | None = None,
    ) -> None:
        super().__init__(scope, id)
        self.task = task
        self.group = iam.Group(
            self, "Group", managed_policies=[may_take_role] if may_take_role else None
        )
        self._holders = [] if may_take_role else [self.group]
        # The principal is the account: IAM then decides who may assume the role, and that is this
        # group.
        self.role = iam.Role(
            self, "Role", assumed_by=iam.AccountPrincipal(Stack.of(self).account), description=task
        )
        if may_take_role is None:
            take = iam.PolicyStatement(
                sid="TakeRole", actions=["sts:AssumeRole"], resources=[self.role.role_arn]
            )
            iam.ManagedPolicy(
                self,
                "MayTakeRole",
                groups=[self.group],
                description=f"{task}: may take the role",
                statements=[take],
            )

    def allow(
        self, scope: Construct, id: str, *statements: iam.PolicyStatement, description: str
    ) -> iam.ManagedPolicy:
        """Attaches a policy, made in `scope` (which knows the resources), to the role and, without
        `may_take_role`, the group.
        """
        policy = iam.ManagedPolicy(
            scope, id, groups=self._holders, roles=[self.role], description=description
        )
        policy.add_statements(*statements)
        return policy

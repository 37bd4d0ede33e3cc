"""People with one task: an IAM group for users, and a role that its members assume to reach a
cluster's API.

The role exists because EKS access entries take roles and users, not groups.
"""

import jsii
from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from constructs import Construct


@jsii.implements(iam.IGrantable)
class Team(Construct):
    """An IAM group and its role. Put users into the group, and name the role in their kubeconfig.

    What is granted to the team (`bucket.grant_read(team)`) becomes a policy of the role and,
    without `may_take_role`, of the group. It lies in the stack of the team; `allow` takes another.

    Example:

    >>> from constructs_lib.storage.bucket import DataBucket
    >>> scientists = Team(stack, "Scientists", task="Look at the data")
    >>> grant = DataBucket(stack, "Bucket").grant_read(scientists)

    Args:
        task: what these people do, for the descriptions.
        may_take_role: a policy made elsewhere that lets its holders assume the role; None: the team
            makes its own.

    Attributes:
        group: the IAM group.
        role: the IAM role.
    """

    group: iam.IGroup
    role: iam.IRole

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
        self._granted: iam.ManagedPolicy | None = None
        self.group = iam.Group(
            self, "Group", managed_policies=[may_take_role] if may_take_role else None
        )
        self._holders: list[iam.IGroup] = [] if may_take_role else [self.group]
        # The principal is the account: IAM then decides who may assume the role, and that is this
        # group.
        self.role = iam.Role(
            self, "Role", assumed_by=iam.AccountPrincipal(Stack.of(self).account), description=task
        )
        self.node.default_child = self.role.node.default_child
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

    @staticmethod
    def from_group_and_role(
        scope: Construct, id: str, *, task: str, group_name: str, role_arn: str
    ) -> "Team":
        """Returns a team of a group and a role that are there already, to whom more can be
        granted. Their members and trust stay as they are.
        """
        return _ExistingTeam(scope, id, task=task, group_name=group_name, role_arn=role_arn)

    @property
    def grant_principal(self) -> iam.IPrincipal:
        """Grants become statements of a managed policy, because inline policies cannot be reviewed
        on their own.
        """
        if self._granted is None:
            self._granted = self.allow(self, "Granted", description=f"{self.task}: granted")
        return self._granted.grant_principal

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


class _ExistingTeam(Team):
    def __init__(
        self, scope: Construct, id: str, *, task: str, group_name: str, role_arn: str
    ) -> None:
        Construct.__init__(self, scope, id)
        self.task = task
        self._granted = None
        self.group = iam.Group.from_group_name(self, "Group", group_name)
        # By its name, so that policies may be attached: CloudFormation takes no ARN there.
        self.role = iam.Role.from_role_arn(self, "Role", role_arn)
        self._holders = [self.group]

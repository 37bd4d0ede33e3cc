"""People with one task: an IAM group for users, and a role that its members assume to reach a
cluster's API.

The role exists because EKS access entries take roles and users, not groups.
"""

from typing import cast

import jsii
from aws_cdk import Names, Reference, Stack, Tokenization
from aws_cdk import aws_iam as iam
from constructs import Construct


@jsii.implements(iam.IGrantable)
class Team(Construct):
    """An IAM group and its role. Put users into the group, and name the role in their kubeconfig.

    What is granted to the team (`bucket.grant_read(team)`) becomes a policy of the role and,
    without `may_take_role`, of the group. It lies in the team's stack or that of what is granted,
    whichever was made later.

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
        self._granted = _Granted(self)
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
        """Grants become statements of managed policies, because inline policies cannot be reviewed
        on their own.
        """
        return self._granted

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
        self._granted = _Granted(self)
        self.group = iam.Group.from_group_name(self, "Group", group_name)
        # By its name, so that policies may be attached: CloudFormation takes no ARN there.
        self.role = iam.Role.from_role_arn(self, "Role", role_arn)
        self._holders = [self.group]


@jsii.implements(iam.IPrincipal)
class _Granted:
    """A team as a grantee: each statement joins a managed policy of its stack."""

    def __init__(self, team: Team) -> None:
        self._team = team
        self._policies: dict[str, iam.ManagedPolicy] = {}

    @property
    def assume_role_action(self) -> str:
        return self._team.role.assume_role_action

    @property
    def grant_principal(self) -> iam.IPrincipal:
        return self

    @property
    def policy_fragment(self) -> iam.PrincipalPolicyFragment:
        return self._team.role.policy_fragment

    @property
    def principal_account(self) -> str | None:
        return self._team.role.principal_account

    def add_to_principal_policy(
        self, statement: iam.PolicyStatement
    ) -> iam.AddToPrincipalPolicyResult:
        team, home = self._team, _home(statement, Stack.of(self._team))
        policy = self._policies.get(home.node.addr)
        if policy is None:
            own = home.node.addr == Stack.of(team).node.addr
            id = "Granted" if own else f"{Names.node_unique_id(team.node)}Granted"
            policy = team.allow(team if own else home, id, description=f"{team.task}: granted")
            self._policies[home.node.addr] = policy
        policy.add_statements(statement)
        return iam.AddToPrincipalPolicyResult(statement_added=True, policy_dependable=policy)


def _home(statement: iam.PolicyStatement, own: Stack) -> Stack:
    """Returns where the statement may lie: of the team's stack and those of its resources, the
    one that was made last. It may use the others; the other way round would be a cycle.
    """
    last = own
    for resource in statement.resources:
        for token in Tokenization.reverse_string(resource).tokens:
            if Reference.is_reference(token):
                stack = Stack.of(cast(Reference, token).target)
                last = stack if _is_later(stack, last) else last
    return last


def _is_later(one: Stack, other: Stack) -> bool:
    for mine, theirs in zip(one.node.scopes, other.node.scopes, strict=False):
        if mine.node.addr != theirs.node.addr and (parent := mine.node.scope):
            siblings = [child.node.addr for child in parent.node.children]
            return siblings.index(mine.node.addr) > siblings.index(theirs.node.addr)
    return len(one.node.scopes) > len(other.node.scopes)

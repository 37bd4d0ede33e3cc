"""Who is in the IAM groups of a cluster's stacks.

IAM deletes no group that has users, and CloudFormation does not take them out: a destroy would end
in DELETE_FAILED (go-to-k/delstack#40).
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from paddle_aws.operations.account.aws import list_all

GROUPS = "StackResourceSummaries[?ResourceType == 'AWS::IAM::Group' && ResourceStatus != "
GROUPS += "'DELETE_COMPLETE'].PhysicalResourceId"


class Member(NamedTuple):
    """A user in a group that a stack owns."""

    stack: str
    group: str
    user: str

    @property
    def command(self) -> str:
        """The command that takes the user out of the group."""
        return f"aws iam remove-user-from-group --group-name {self.group} --user-name {self.user}"


def list_members(client: Callable[[str], Any], stacks: Iterable[str]) -> Iterator[Member]:
    """Yields the members. `client` makes a service's client. Raises botocore's errors."""
    cloudformation, iam = client("cloudformation"), client("iam")
    for stack in stacks:
        for group in list_all(cloudformation, "list_stack_resources", GROUPS, StackName=stack):
            for user in list_all(iam, "get_group", "Users[].UserName", GroupName=group):
                yield Member(stack, group, user)

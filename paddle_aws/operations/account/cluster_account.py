"""A cluster's stacks in its account, and other facts of the account about the cluster."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property, partial
from itertools import compress
from typing import Any, NamedTuple

from paddle_aws.operations.account.aws import client, list_all
from paddle_aws.operations.account.check import CheckResults, ok, problem
from paddle_aws.operations.errors import OperationError, translate_errors
from paddle_aws.stacks.cluster_spec import PLATFORM_OUTPUT, ClusterSpec

BROKEN = (
    "ROLLBACK_COMPLETE",
    "ROLLBACK_FAILED",
    "CREATE_FAILED",
    "DELETE_FAILED",
    "UPDATE_ROLLBACK_FAILED",
)


GROUPS = "StackResourceSummaries[?ResourceType == 'AWS::IAM::Group' && ResourceStatus != "
GROUPS += "'DELETE_COMPLETE'].PhysicalResourceId"


class Member(NamedTuple):
    """A user in an IAM group that a stack owns."""

    stack: str
    group: str
    user: str

    @property
    def command(self) -> str:
        """The command that takes the user out of the group."""
        return f"aws iam remove-user-from-group --group-name {self.group} --user-name {self.user}"


def outputs_of(stack: Mapping[str, Any]) -> dict[str, str]:
    """Returns the outputs in CloudFormation's description of a stack."""
    return {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", ())}


def cluster_of(stack: Mapping[str, Any]) -> str | None:
    """Returns the name of the cluster that a stack is a part of; None: of none."""
    outputs = outputs_of(stack)
    if PLATFORM_OUTPUT not in outputs and "AccessPointId" in outputs:
        # Stacks of an older release have no such output: their storage stack is known by its name.
        return str(stack["StackName"]).removesuffix("-storage")
    return outputs.get(PLATFORM_OUTPUT)


def belongs_to_cluster(stack: Mapping[str, Any], spec: ClusterSpec) -> bool:
    """Returns whether a stack is a part of the cluster: by its output or, if it has none yet, by
    its name.
    """
    named = outputs_of(stack).get(PLATFORM_OUTPUT)
    return named == spec.name if named else stack["StackName"] in spec.stack_names


class ClusterAccount:
    """The account and region of a cluster's settings."""

    def __init__(self, spec: ClusterSpec) -> None:
        self.spec = spec
        self.client = cache(partial(client, region=spec.region))
        """Returns a service's client in the cluster's region, made once."""

    @cached_property
    def identity(self) -> dict[str, str]:
        """The identity that AWS reports for the credentials."""
        return dict(self.client("sts").get_caller_identity())

    @cached_property
    def deployed_stacks(self) -> list[dict[str, Any]]:
        """The cluster's own stacks that exist."""
        stacks = list_all(self.client("cloudformation"), "describe_stacks", "Stacks[]")
        return [
            stack
            for stack in stacks
            if belongs_to_cluster(stack, self.spec) and stack["StackStatus"] != "DELETE_COMPLETE"
        ]

    @property
    def outputs(self) -> dict[str, str]:
        """The outputs of the deployed stacks."""
        pairs = [pair for stack in self.deployed_stacks for pair in outputs_of(stack).items()]
        return dict(pairs)

    def list_members(self) -> Iterator[Member]:
        """Yields who is in the IAM groups of the cluster's stacks. IAM deletes no group that has
        users, and CloudFormation does not take them out: a destroy would end in DELETE_FAILED
        (go-to-k/delstack#40).
        """
        cloudformation, iam = self.client("cloudformation"), self.client("iam")
        for stack in (stack["StackName"] for stack in self.deployed_stacks):
            for group in list_all(cloudformation, "list_stack_resources", GROUPS, StackName=stack):
                for user in list_all(iam, "get_group", "Users[].UserName", GroupName=group):
                    yield Member(stack, group, user)

    def other_clusters(self) -> set[str]:
        """Returns the names of other settings' clusters in this region."""
        stacks = list_all(self.client("cloudformation"), "describe_stacks", "Stacks[]")
        return {name for stack in stacks if (name := cluster_of(stack))} - {self.spec.name}

    def other_regions(self) -> list[str]:
        """Returns the other regions in which this cluster is deployed, of those that the account
        lets us ask.
        """
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.session import get_session

        session = get_session()
        partition = session.get_partition_for_region(self.spec.region)
        regions = session.get_available_regions("cloudformation", partition)

        def has_stack(region: str) -> bool:
            try:
                stacks = list_all(client("cloudformation", region), "describe_stacks", "Stacks[]")
                return any(cluster_of(stack) == self.spec.name for stack in stacks)
            except (ClientError, BotoCoreError):
                return False  # The account has not opted in to this region.

        others = sorted(set(regions) - {self.spec.region})
        with ThreadPoolExecutor(8) as pool:
            return list(compress(others, pool.map(has_stack, others)))

    def credentials(self) -> CheckResults:
        """Checks whether AWS knows the caller."""
        try:
            with translate_errors():
                yield ok(f"account {self.identity['Account']}, as {self.identity['Arn']}")
        except OperationError as error:
            # Not a warning as in other checks: without an account nothing can be deployed.
            yield problem(str(error))

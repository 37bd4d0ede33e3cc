"""What becomes of a resource that holds data when its stack changes or goes."""

from collections.abc import Iterator

import jsii
from aws_cdk import CfnDeletionPolicy, CfnResource, IStableStringProducer, RemovalPolicy
from constructs import IConstruct

from constructs_lib.rules import Violation


def no_snapshot(policy: RemovalPolicy) -> Iterator[Violation]:
    """Refuses SNAPSHOT for a resource of which CloudFormation makes no snapshot."""
    if policy == RemovalPolicy.SNAPSHOT:
        allowed = "CloudFormation makes no snapshot of it: allowed are RETAIN and DESTROY"
        yield Violation("removal_policy", policy.name, allowed)


def retain_if_replaced(construct: IConstruct) -> None:
    """Makes an update that must replace a resource with data keep the old one outside the stack,
    whatever its removal policy.
    """
    resource = construct if isinstance(construct, CfnResource) else construct.node.default_child
    assert isinstance(resource, CfnResource)
    resource.cfn_options.update_replace_policy = CfnDeletionPolicy.RETAIN


def deletion_policy(resource: CfnResource) -> str:
    """Returns the resource's DeletionPolicy as CloudFormation spells it. Aspects may change it
    until synth.
    """
    policy = resource.cfn_options.deletion_policy
    return "".join(map(str.capitalize, policy.name.split("_"))) if policy else "Delete"


@jsii.implements(IStableStringProducer)
class DeletionPolicy:
    """A resource's DeletionPolicy for `Lazy.string`: read at synth, after all aspects."""

    def __init__(self, resource: CfnResource) -> None:
        self._resource = resource

    def produce(self) -> str:
        """Returns the resource's DeletionPolicy."""
        return deletion_policy(self._resource)

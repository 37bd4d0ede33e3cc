"""What holds data outlives its replacement, whatever its stack's removal policy says."""

from aws_cdk import CfnDeletionPolicy, CfnResource
from constructs import IConstruct


def retain_if_replaced(construct: IConstruct) -> None:
    """Lets an update that must replace `construct` leave the old one, with its data, outside the stack."""
    resource = construct if isinstance(construct, CfnResource) else construct.node.default_child
    assert isinstance(resource, CfnResource)
    resource.cfn_options.update_replace_policy = CfnDeletionPolicy.RETAIN

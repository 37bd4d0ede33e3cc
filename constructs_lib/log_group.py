"""A log group that ends: encrypted, kept for a number of days, and gone with its stack."""

from __future__ import annotations

from aws_cdk import RemovalPolicy
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from constructs import Construct

from constructs_lib.key import open_to_log_groups


class EndingLogGroup(logs.LogGroup):
    """A log group; everything of `logs.LogGroup` is here too.

    Args:
        days: how long each event is kept; one of the numbers that CloudWatch Logs takes.
        log_group_name: name; None: CloudFormation makes one.
        encryption_key: KMS key; None: AWS's own. The policy of one that is imported must let CloudWatch Logs use it already.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        days: int,
        log_group_name: str | None = None,
        encryption_key: kms.IKey | None = None,
    ) -> None:
        if encryption_key:
            open_to_log_groups(encryption_key)
        super().__init__(
            scope, id, log_group_name=log_group_name, encryption_key=encryption_key, removal_policy=RemovalPolicy.DESTROY
        )
        resource = self.node.default_child
        assert isinstance(resource, logs.CfnLogGroup)
        # The enumeration of retention times is a list of the same numbers under other names.
        resource.retention_in_days = days

"""Log groups that end with their stack, and whose events end earlier."""

from collections.abc import Sequence
from typing import TypedDict, Unpack

from aws_cdk import RemovalPolicy
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from constructs import Construct

from constructs_lib.rules import log_days
from constructs_lib.storage.key_policy import allow_use
from constructs_lib.validation import check, refuse


class LogGroupOptions(TypedDict, total=False):
    """What `logs.LogGroup` takes and we do not decide; its documentation has the meanings."""

    data_protection_policy: logs.DataProtectionPolicy
    field_index_policies: Sequence[logs.FieldIndexPolicy]
    log_group_class: logs.LogGroupClass
    removal_policy: RemovalPolicy
    """DESTROY unless given."""


class EndingLogGroup(logs.LogGroup):
    """A log group with a retention time and everything that `logs.LogGroup` has.

    >>> EndingLogGroup(stack, "Logs", days=10)
    Traceback (most recent call last):
    ValueError: vision/Logs: days is 10: allowed is 1, 3, 5, 7, 14, 30, ...

    Args:
        days: how long each event is kept; one of the numbers that CloudWatch Logs takes.
        log_group_name: name; None: CloudFormation generates one.
        encryption_key: KMS key; None: AWS's own. An imported key's policy must already let
            CloudWatch Logs use it.
        options: passed to `logs.LogGroup`.

    Raises:
        ValueError: a sentence for each value that is refused.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        days: int,
        log_group_name: str | None = None,
        encryption_key: kms.IKey | None = None,
        **options: Unpack[LogGroupOptions],
    ) -> None:
        refuse(f"{scope.node.path}/{id}", check(days=(log_days, days)))
        allow_use(encryption_key, "log groups")
        options.setdefault("removal_policy", RemovalPolicy.DESTROY)
        super().__init__(
            scope,
            id,
            log_group_name=log_group_name,
            encryption_key=encryption_key,
            **options,
        )
        resource = self.node.default_child
        assert isinstance(resource, logs.CfnLogGroup)
        # The CDK's enumeration of retention times only gives other names to the same numbers.
        resource.retention_in_days = days

"""One KMS key for everything that a cluster stores, and log groups that it seals.

A key that another construct of ours is given (a plain `kms.Key` of the same app) is opened to the services that must use it, for
this account's things alone; a key that is imported stays as it is.
"""

from collections.abc import Mapping
from typing import Any

from aws_cdk import RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from constructs import Construct

from constructs_lib.acknowledged import acknowledge
from constructs_lib.storage.retained import retain_if_replaced

SEAL = ("kms:Encrypt", "kms:Decrypt", "kms:ReEncrypt*", "kms:GenerateDataKey*")


class EncryptionKey(kms.Key):
    """A customer-managed key; everything of `kms.Key` (`grant_*`, `from_key_arn`, ...) is here too.

    Args:
        alias: name without `alias/`; None: no alias.
        removal_policy: DESTROY schedules the deletion (30 days, in which it can be taken back); RETAIN keeps the key.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        alias: str | None = None,
        description: str | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
    ) -> None:
        super().__init__(scope, id, alias=alias, description=description, enable_key_rotation=True, removal_policy=removal_policy)
        retain_if_replaced(self)
        open_to_log_groups(self)
        open_to_node_volumes(self)
        open_to_alarms(self)
        acknowledge(
            self,
            "the star in NodeVolumes is limited to this account's own role of Auto Scaling, by kms:CallerAccount and "
            "aws:PrincipalArn",
            "CKV_AWS_33",
        )


def open_to_log_groups(key: kms.IKey) -> None:
    """Lets CloudWatch Logs use `key` for this account's groups: else an encrypted group is refused."""
    stack = key.stack
    # The context is what KMS is told about the group.
    ours = {"ArnLike": {"kms:EncryptionContext:aws:logs:arn": stack.format_arn(service="logs", resource="*")}}
    _open(key, "LogGroups", iam.ServicePrincipal(f"logs.{stack.region}.amazonaws.com"), [*SEAL, "kms:Describe*"], ours)


def open_to_node_volumes(key: kms.IKey) -> None:
    """Lets Auto Scaling's own role attach disks that `key` seals: without it no node starts."""
    stack = key.stack
    role = stack.format_arn(
        service="iam", region="", resource="role", resource_name="aws-service-role/autoscaling.amazonaws.com/*"
    )
    # By condition, not as principal: in an account that never had an Auto Scaling group the role does not exist yet, and KMS
    # refuses a policy that names it.
    ours = {"StringEquals": {"kms:CallerAccount": stack.account}, "ArnLike": {"aws:PrincipalArn": role}}
    _open(key, "NodeVolumes", iam.AnyPrincipal(), [*SEAL, "kms:DescribeKey"], ours)
    for_aws = {**ours, "Bool": {"kms:GrantIsForAWSResource": "true"}}
    _open(key, "NodeVolumeGrants", iam.AnyPrincipal(), ["kms:CreateGrant"], for_aws)


def open_to_alarms(key: kms.IKey) -> None:
    """Lets CloudWatch's alarms go to topics that `key` seals."""
    ours = {"StringEquals": {"aws:SourceAccount": key.stack.account}}
    _open(key, "Alarms", iam.ServicePrincipal("cloudwatch.amazonaws.com"), ["kms:Decrypt", "kms:GenerateDataKey*"], ours)


def _open(key: kms.IKey, sid: str, principal: iam.IPrincipal, actions: list[str], conditions: Mapping[str, Any]) -> None:
    # A statement that is there already is not doubled.
    statement = iam.PolicyStatement(
        sid=sid, principals=[principal], actions=actions, resources=["*"], conditions=dict(conditions)
    )
    key.add_to_resource_policy(statement)


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

"""One KMS key for everything that a cluster stores, and log groups that it encrypts.

A construct of ours that is given a plain `kms.Key` of the same app opens it to the services that
must use it, for this account's resources only. An imported key stays as it is.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict, Unpack

from aws_cdk import CfnDeletionPolicy, CfnResource, Duration, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from constructs import Construct, IConstruct

from constructs_lib.acknowledged import acknowledge
from constructs_lib.rules import log_days
from constructs_lib.statements import statements
from constructs_lib.validation import refuse, unless_token

POLICY = Path(__file__).with_name("key_policy.json")


def retain_if_replaced(construct: IConstruct) -> None:
    """Makes an update that must replace a resource with data keep the old one outside the stack,
    whatever its removal policy.
    """
    resource = construct if isinstance(construct, CfnResource) else construct.node.default_child
    assert isinstance(resource, CfnResource)
    resource.cfn_options.update_replace_policy = CfnDeletionPolicy.RETAIN


class KeyOptions(TypedDict, total=False):
    """What `kms.Key` takes and we do not decide; its documentation has the meanings."""

    admins: Sequence[iam.IPrincipal]
    multi_region: bool
    pending_window: Duration
    policy: iam.PolicyDocument
    rotation_period: Duration


class EncryptionKey(kms.Key):
    """A customer-managed key, with everything that `kms.Key` has (`grant_*`, `from_key_arn`, ...).

    Args:
        alias: name without `alias/`; None: no alias.
        removal_policy: DESTROY schedules the deletion (in 30 days; until then it can be cancelled);
            RETAIN keeps the key.
        options: passed to `kms.Key`.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        alias: str | None = None,
        description: str | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
        **options: Unpack[KeyOptions],
    ) -> None:
        super().__init__(
            scope,
            id,
            alias=alias,
            description=description,
            enable_key_rotation=True,
            removal_policy=removal_policy,
            **options,
        )
        retain_if_replaced(self)
        open_to(self, "log groups", "node volumes", "alarms")
        acknowledge(
            self,
            "the star in NodeVolumes is limited to this account's own role of Auto Scaling, by "
            "kms:CallerAccount and aws:PrincipalArn",
            "CKV_AWS_33",
        )


def open_to(key: kms.IKey | None, *users: str) -> None:
    """Lets `users`, which are parts of key_policy.json, use `key`, if there is one. Adds no
    statement that `key` has already.

    Without `log groups`, CloudWatch Logs refuses an encrypted group (the group is KMS's encryption
    context). Without `node volumes`, no node starts. `alarms` lets CloudWatch alarms reach topics
    that the key encrypts. Auto Scaling's role is named in a condition, not as principal: in an
    account that never had an Auto Scaling group it does not exist yet, and KMS refuses a policy
    with such a principal.
    """
    if key is None:
        return
    known = {
        "partition": key.stack.partition,
        "region": key.stack.region,
        "account": key.stack.account,
    }
    for user in users:
        for statement in statements(POLICY, user, **known):
            key.add_to_resource_policy(statement)


class LogGroupOptions(TypedDict, total=False):
    """What `logs.LogGroup` takes and we do not decide; its documentation has the meanings."""

    data_protection_policy: logs.DataProtectionPolicy
    field_index_policies: Sequence[logs.FieldIndexPolicy]
    log_group_class: logs.LogGroupClass
    removal_policy: RemovalPolicy
    """DESTROY unless given."""


class EndingLogGroup(logs.LogGroup):
    """A log group with a retention time and everything that `logs.LogGroup` has.

    Args:
        days: how long each event is kept; one of the numbers that CloudWatch Logs takes.
        log_group_name: name; None: CloudFormation generates one.
        encryption_key: KMS key; None: AWS's own. An imported key's policy must already let
            CloudWatch Logs use it.
        options: passed to `logs.LogGroup`.
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
        refuse(f"{scope.node.path}/{id}", log_days("days", unless_token(days)))
        open_to(encryption_key, "log groups")
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

"""One KMS key for everything that a cluster stores, and log groups that it seals.

A key that another construct of ours is given (a plain `kms.Key` of the same app) is opened to the services that must use it, for
this account's things alone; a key that is imported stays as it is.
"""

from pathlib import Path

from aws_cdk import CfnDeletionPolicy, CfnResource, RemovalPolicy
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from constructs import Construct, IConstruct

from constructs_lib.acknowledged import acknowledge
from constructs_lib.statements import statements

POLICY = Path(__file__).with_name("key_policy.json")


def retain_if_replaced(construct: IConstruct) -> None:
    """Lets an update that must replace what holds data leave the old one outside the stack, whatever its removal policy says."""
    resource = construct if isinstance(construct, CfnResource) else construct.node.default_child
    assert isinstance(resource, CfnResource)
    resource.cfn_options.update_replace_policy = CfnDeletionPolicy.RETAIN


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
        open_to(self, "log groups", "node volumes", "alarms")
        acknowledge(
            self,
            "the star in NodeVolumes is limited to this account's own role of Auto Scaling, by kms:CallerAccount and "
            "aws:PrincipalArn",
            "CKV_AWS_33",
        )


def open_to(key: kms.IKey | None, *users: str) -> None:
    """Lets `users`, parts of key_policy.json, use `key`, where there is one; what it says already is not doubled.

    Without `log groups` CloudWatch Logs refuses an encrypted group (the group is KMS's encryption context); without
    `node volumes` no node starts; `alarms` lets CloudWatch's go to topics that the key seals. Auto Scaling's own role stands
    there by condition, not as principal: in an account that never had an Auto Scaling group it does not exist yet, and KMS
    refuses a policy that names it.
    """
    if key is None:
        return
    known = {"partition": key.stack.partition, "region": key.stack.region, "account": key.stack.account}
    for user in users:
        for statement in statements(POLICY, user, **known):
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
        open_to(encryption_key, "log groups")
        super().__init__(
            scope, id, log_group_name=log_group_name, encryption_key=encryption_key, removal_policy=RemovalPolicy.DESTROY
        )
        resource = self.node.default_child
        assert isinstance(resource, logs.CfnLogGroup)
        # The enumeration of retention times is a list of the same numbers under other names.
        resource.retention_in_days = days

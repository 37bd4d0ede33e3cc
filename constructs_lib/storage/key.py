"""One KMS key for everything that a cluster stores.

The key outlives what it encrypts: with RemovalPolicy.DESTROY a Lambda function schedules its
deletion, when nothing needs it any more.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict, Unpack

from aws_cdk import CfnResource, Duration, Lazy, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from constructs_lib.acknowledged import EVERY_RESOURCE, acknowledge
from constructs_lib.statements import statements
from constructs_lib.storage.removal import DeletionPolicy, retain_if_replaced
from constructs_lib.storage.stack_end import StackEndFunction
from constructs_lib.validation import merge_options

STATEMENTS = Path(__file__).with_name("unused_key_statements.json")


class _KeyEnd(StackEndFunction):
    task = "Schedules the deletion of an unused key when its stack is deleted"
    handler = Path(__file__).with_name("unused_key_handler.py")


class KeyOptions(TypedDict, total=False):
    """What `kms.Key` takes and we do not decide; its documentation has the meanings."""

    admins: Sequence[iam.IPrincipal]
    multi_region: bool
    pending_window: Duration
    policy: iam.PolicyDocument
    rotation_period: Duration


class EncryptionKey(kms.Key):
    """A customer-managed key, with everything that `kms.Key` has (`grant_*`, `from_key_arn`, ...).

    Example:

    >>> key = EncryptionKey(stack, "Key", alias="vision")

    Args:
        description: what it encrypts.
        alias: name without `alias/`; None: no alias.
        removal_policy: RETAIN keeps the key. DESTROY schedules its deletion when the stack goes (in
            30 days; until then it can be cancelled), unless something in the region is still
            encrypted by it: a file system, bucket, repository, volume, snapshot, secret, backup
            vault or EKS cluster. An update never deletes it.
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
        decided = {
            "alias": alias,
            "description": description,
            "enable_key_rotation": True,
            # Not DELETE: CloudFormation does not ask what needs the key.
            "removal_policy": RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE
            if removal_policy == RemovalPolicy.DESTROY
            else removal_policy,
        }
        super().__init__(scope, id, **merge_options(f"{scope.node.path}/{id}", decided, options))
        retain_if_replaced(self)
        if removal_policy == RemovalPolicy.DESTROY:
            self._end_when_unused(options.get("pending_window", Duration.days(30)))

    def _end_when_unused(self, pending_window: Duration) -> None:
        function = _KeyEnd(self, "Ending", encryption_key=self)
        function.policy.add_statements(*statements(STATEMENTS, "unused", key=self.key_arn))
        acknowledge(
            function.policy,
            "what the key encrypts may be anything of these kinds in the region; nothing is read "
            "but names and keys",
            EVERY_RESOURCE,
        )
        resource = self.node.default_child
        assert isinstance(resource, CfnResource)
        function.request(
            self,
            "EndWhenUnused",
            "Custom::UnusedKey",
            KeyArn=self.key_arn,
            PendingWindowInDays=str(int(pending_window.to_days())),
            # An aspect of the app may have said RETAIN.
            DeletionPolicy=Lazy.string(DeletionPolicy(resource)),
        )

"""One KMS key for everything that a cluster stores: rotated yearly, with an alias people can say.

Promises: a key that only its own account's IAM policies open, that rotates, and that CloudWatch Logs may use for this
account's log groups alone.
"""

from __future__ import annotations

from aws_cdk import RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct


class EncryptionKey(kms.Key):
    """A customer-managed key; everything of `kms.Key` (`grant_*`, `from_key_arn`, ...) is here too.

    Args:
        scope: parent.
        id: construct id.
        alias: name without `alias/`; None: no alias.
        description: shown in the console.
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
        stack = Stack.of(self)
        # An encrypted log group is refused unless the key's own policy names the service; the context keeps it to our groups.
        self.add_to_resource_policy(
            iam.PolicyStatement(
                sid="LogGroups",
                principals=[iam.ServicePrincipal(f"logs.{stack.region}.amazonaws.com")],
                actions=["kms:Encrypt", "kms:Decrypt", "kms:ReEncrypt*", "kms:GenerateDataKey*", "kms:Describe*"],
                resources=["*"],
                conditions={
                    "ArnLike": {
                        "kms:EncryptionContext:aws:logs:arn": stack.format_arn(service="logs", resource="*"),
                    }
                },
            )
        )

"""One KMS key for everything that a cluster stores: rotated yearly, with an alias people can say.

Promises: a key that rotates, that its own account's IAM policies open, and beside them only the services that must use it
by themselves, each for this account's things alone: log groups, disks of Auto Scaling groups, alarms.
"""

from __future__ import annotations

from aws_cdk import RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from constructs_lib.acknowledged import acknowledge


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
        # Auto Scaling's own role attaches the disks of nodes. By condition, not as principal: in an account that never had an
        # Auto Scaling group the role does not exist yet, and KMS refuses a policy that names it.
        scaling = {
            "StringEquals": {"kms:CallerAccount": stack.account},
            "ArnLike": {
                "aws:PrincipalArn": stack.format_arn(
                    service="iam", region="", resource="role", resource_name="aws-service-role/autoscaling.amazonaws.com/*"
                )
            },
        }
        self.add_to_resource_policy(
            iam.PolicyStatement(
                sid="NodeVolumes",
                principals=[iam.AnyPrincipal()],
                actions=["kms:Encrypt", "kms:Decrypt", "kms:ReEncrypt*", "kms:GenerateDataKey*", "kms:DescribeKey"],
                resources=["*"],
                conditions=scaling,
            )
        )
        self.add_to_resource_policy(
            iam.PolicyStatement(
                sid="NodeVolumeGrants",
                principals=[iam.AnyPrincipal()],
                actions=["kms:CreateGrant"],
                resources=["*"],
                conditions={**scaling, "Bool": {"kms:GrantIsForAWSResource": "true"}},
            )
        )
        acknowledge(
            self,
            "the star in NodeVolumes is limited to this account's own role of Auto Scaling, by kms:CallerAccount and "
            "aws:PrincipalArn",
            "CKV_AWS_33",
        )
        # Alarms go to encrypted topics.
        self.add_to_resource_policy(
            iam.PolicyStatement(
                sid="Alarms",
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                actions=["kms:Decrypt", "kms:GenerateDataKey*"],
                resources=["*"],
                conditions={"StringEquals": {"aws:SourceAccount": stack.account}},
            )
        )

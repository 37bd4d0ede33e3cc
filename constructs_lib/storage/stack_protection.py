"""Protects stacks when they are deployed: CloudFormation then refuses updates that replace or
remove what holds data (stack_policy.py). Neither a template nor the CDK can set a stack policy
(https://github.com/aws/aws-cdk-rfcs/issues/72).
"""

from collections.abc import Sequence
from pathlib import Path

from aws_cdk import Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_events as events
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from constructs_lib.acknowledged import acknowledge, wildcard_findings
from constructs_lib.statements import statements
from constructs_lib.storage.key_policy import allow_use
from constructs_lib.storage.stack_end import StackFunction
from constructs_lib.storage.stack_policy import KEPT

STATEMENTS = Path(__file__).with_name("stack_protection_statements.json")
TOPIC = Path(__file__).parent.parent / "watch" / "topic_policy.json"
DEPLOYED = [
    "CREATE_COMPLETE",
    "UPDATE_COMPLETE",
    "UPDATE_FAILED",
    "UPDATE_ROLLBACK_COMPLETE",
    "IMPORT_COMPLETE",
    "IMPORT_ROLLBACK_COMPLETE",
]
"""The states of a stack after a deploy, also one that failed: it left the stack as it was, or half
changed (`cdk deploy --no-rollback`).
"""


class StackProtection(StackFunction):
    """Sets the policy of a stack each time that a deploy of it has ended, as CloudFormation
    reports to EventBridge. A policy that was lifted for one deploy is so set again after it. A
    deletion is no update, and stays possible.

    A failure that two more tries of Lambda's do not mend raises an alarm, and goes with its event
    to the topic `failures`.

    Args:
        stacks: names of stacks of this account and region; they need not exist.
        emails: who gets the alarm and the event.
        encryption_key: KMS key of the function's log group; None: AWS's own. The topic has it, too,
            unless it is imported: its policy may not let CloudWatch publish.
    """

    task = "Protects what holds data when a stack is deployed"
    handler = Path(__file__).with_name("stack_protection_handler.py")
    caller = "EventBridge alone calls it, Lambda tries again, and an alarm tells of failures"

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        stacks: Sequence[str],
        emails: Sequence[str] = (),
        encryption_key: kms.IKey | None = None,
    ) -> None:
        super().__init__(scope, id, encryption_key=encryption_key)
        # Not in the event: who may invoke the function could lift a policy with one of their own.
        self.function.code = lambda_.CfnFunction.CodeProperty(
            zip_file=f"{self.handler.read_text('utf-8')}\n\nPOLICY = {KEPT!r}\n"
        )
        stack = Stack.of(self)
        arns = [
            stack.format_arn(service="cloudformation", resource="stack", resource_name=f"{name}/")
            for name in stacks
        ]
        anything = [f"{arn}*" for arn in arns]
        self.policy.add_statements(*statements(STATEMENTS, "protect", stacks=anything))
        why = "a stack's ARN ends with an id that CloudFormation makes up"
        acknowledge(self.policy, why, *wildcard_findings(self, *anything))
        # L1 resources, as the function is.
        rule = events.CfnRule(
            self,
            "Deployed",
            description="A stack was deployed",
            event_pattern={
                "source": ["aws.cloudformation"],
                "detail-type": ["CloudFormation Stack Status Change"],
                "detail": {
                    "stack-id": [{"prefix": arn} for arn in arns],
                    "status-details": {"status": DEPLOYED},
                },
            },
            targets=[
                events.CfnRule.TargetProperty(
                    id="Protect",
                    arn=self.function.attr_arn,
                    input_transformer=events.CfnRule.InputTransformerProperty(
                        input_paths_map={"stack": "$.detail.stack-id"},
                        input_template='{"stack": <stack>}',
                    ),
                )
            ],
        )
        lambda_.CfnPermission(
            self,
            "ByRule",
            action="lambda:InvokeFunction",
            function_name=self.function.attr_arn,
            principal="events.amazonaws.com",
            source_arn=rule.attr_arn,
        )
        self._tell(emails, encryption_key if isinstance(encryption_key, kms.Key) else None)

    def _tell(self, emails: Sequence[str], key: kms.Key | None) -> None:
        """Makes failures an alarm."""
        allow_use(key, "alarms")
        self.failures = sns.Topic(self, "Failures", master_key=key, enforce_ssl=True)
        names = {"topic": self.failures.topic_arn, "account": self.failures.stack.account}
        (publishes,) = statements(TOPIC, "alarms", **names)
        self.failures.add_to_resource_policy(publishes)
        self.policy.add_statements(*statements(STATEMENTS, "tell", **names))
        if key is not None:
            self.policy.add_statements(*statements(STATEMENTS, "seal", key=key.key_arn))
        else:
            why = "an imported key may not let CloudWatch publish, and the events name stacks alone"
            acknowledge(self.failures, why, "NIST.800.53.R5-SNSEncryptedKMS", "CKV_AWS_26")
        for email in emails:
            self.failures.add_subscription(subscriptions.EmailSubscription(email))
        self.function.dead_letter_config = lambda_.CfnFunction.DeadLetterConfigProperty(
            target_arn=self.failures.topic_arn
        )
        name = cloudwatch.CfnAlarm.DimensionProperty(name="FunctionName", value=self.function.ref)
        cloudwatch.CfnAlarm(
            self,
            "Failed",
            alarm_description="A deployed stack may be unprotected: `paddle-aws protect`",
            namespace="AWS/Lambda",
            metric_name="Errors",
            dimensions=[name],
            statistic="Sum",
            period=300,
            evaluation_periods=1,
            threshold=0,
            comparison_operator="GreaterThanThreshold",
            treat_missing_data="notBreaching",
            alarm_actions=[self.failures.topic_arn],
        )

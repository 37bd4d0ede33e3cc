"""Lambda functions for what CloudFormation does not do itself: empty a bucket or find out whether a
key is still needed when a stack is deleted, or protect a stack when it is deployed.
"""

from pathlib import Path
from typing import Any

from aws_cdk import CustomResource, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from constructs_lib.acknowledged import acknowledge
from constructs_lib.statements import statements
from constructs_lib.storage.log_group import EndingLogGroup

STATEMENTS = Path(__file__).with_name("stack_end_statements.json")


class StackFunction(Construct):
    """A function, its role and its log group; a subclass says what it does.

    Args:
        encryption_key: KMS key of its log group; None: AWS's own.

    Attributes:
        policy: what it may do; by itself: write its logs.
        function: the function.
    """

    task: str
    """What it does, in a few words, for descriptions."""
    handler: Path
    """File with a function `handler`, at most 4,096 characters, which needs botocore alone."""
    caller = "CloudFormation alone calls it, waits for its answer and says why it failed"
    """Who calls the function and who notices its failures: why it has no tracing or VPC."""

    def __init__(
        self, scope: Construct, id: str, *, encryption_key: kms.IKey | None = None
    ) -> None:
        super().__init__(scope, id)
        log_group = EndingLogGroup(self, "Logs", days=30, encryption_key=encryption_key)
        role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        # A managed policy: inline ones cannot be reviewed or reused on their own.
        self.policy = iam.ManagedPolicy(
            self,
            "Policy",
            roles=[role],
            description=self.task,
            statements=statements(STATEMENTS, "every", logs=log_group.log_group_arn),
        )
        # The L1 resource: the L2 construct loads five more services' modules, a tenth of the time
        # of a whole synth.
        self.function = lambda_.CfnFunction(
            self,
            "Function",
            description=self.task,
            runtime="python3.14",
            handler="index.handler",
            # Inline: nothing to upload, so that an app on EKS has no asset.
            code=lambda_.CfnFunction.CodeProperty(zip_file=self.handler.read_text("utf-8")),
            timeout=15 * 60,
            memory_size=256,
            role=role.role_arn,
            logging_config=lambda_.CfnFunction.LoggingConfigProperty(
                log_group=log_group.log_group_name
            ),
        )
        self.function.node.add_dependency(self.policy)
        self.node.default_child = self.function
        acknowledge(
            self.function,
            f"{self.caller}: it needs no reserved concurrency and no VPC",
            *("NIST.800.53.R5-LambdaConcurrency", "CKV_AWS_115"),
            *("NIST.800.53.R5-LambdaInsideVPC", "CKV_AWS_117"),
        )


class StackEndFunction(StackFunction):
    """A function that CloudFormation calls when a stack is deleted. It may ask for its stack's
    state, and must answer CloudFormation in every case.
    """

    def __init__(
        self, scope: Construct, id: str, *, encryption_key: kms.IKey | None = None
    ) -> None:
        super().__init__(scope, id, encryption_key=encryption_key)
        self.policy.add_statements(
            *statements(STATEMENTS, "ending", stack=Stack.of(self).stack_id),
        )
        why = f"{self.caller}: it needs no dead-letter queue"
        acknowledge(self.function, why, "NIST.800.53.R5-LambdaDLQ", "CKV_AWS_116")

    def request(
        self, scope: Construct, id: str, resource_type: str, **properties: Any
    ) -> CustomResource:
        """Makes the custom resource with which CloudFormation calls the function."""
        resource = CustomResource(
            scope,
            id,
            resource_type=resource_type,
            service_token=self.function.attr_arn,
            properties=properties,
        )
        resource.node.add_dependency(self.policy)
        return resource

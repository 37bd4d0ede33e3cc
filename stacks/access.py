"""Who may, and with which key: the stack with the longest life."""

from __future__ import annotations

from aws_cdk import CfnOutput, Environment, Stack
from constructs import Construct

from constructs_lib.key import EncryptionKey
from constructs_lib.operator_policy import OperatorPolicy
from stacks.cluster_spec import ClusterSpec
from stacks.removal import removal


class AccessStack(Stack):
    """The key and the people's policies."""

    def __init__(self, scope: Construct, id: str, *, spec: ClusterSpec, env: Environment) -> None:
        super().__init__(scope, id, env=env, description=f"{spec.name}: the key and the people's policies")
        self.key = EncryptionKey(
            self, "Key", alias=spec.name, description=f"{spec.name}: data, secrets and logs", removal_policy=removal(spec)
        )
        operator = OperatorPolicy(self, "Operator", stack_prefix=spec.name, key=self.key)
        CfnOutput(self, "OperatorPolicyArn", value=operator.managed_policy_arn)

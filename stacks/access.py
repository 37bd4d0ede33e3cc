"""Who may, and with which key: the stack with the longest life."""

from aws_cdk import CfnOutput
from aws_cdk import aws_kms as kms
from constructs import Construct

from constructs_lib.storage.key import EncryptionKey
from stacks.cluster_spec import ClusterSpec
from stacks.part import ClusterPart, removal
from stacks.people import People


class AccessStack(ClusterPart):
    """The key, new or existing, and the people."""

    def __init__(self, scope: Construct, spec: ClusterSpec) -> None:
        super().__init__(scope, spec, "access", "the key and the people")
        self.key: kms.IKey
        # None for an existing key: its policy, which has to let Auto Scaling use it, is not ours.
        self.node_volume_key: kms.IKey | None = None
        if spec.key.existing_arn:
            self.key = kms.Key.from_key_arn(self, "Key", spec.key.existing_arn)
        else:
            self.key = self.node_volume_key = EncryptionKey(
                self, "Key", alias=spec.name, description=f"{spec.name}: data, secrets and logs", removal_policy=removal(spec)
            )
        self.people = People(self, "People", spec=spec, key=self.key)
        CfnOutput(self, "KeyArn", value=self.key.key_arn)
        CfnOutput(self, "OperatorPolicyArn", value=self.people.operator_policy.managed_policy_arn)
        for name, team in (
            ("Operator", self.people.operator),
            ("Trainer", self.people.trainer),
            ("Reader", self.people.reader),
        ):
            CfnOutput(self, f"{name}Group", value=team.group.group_name)
            CfnOutput(self, f"{name}RoleArn", value=team.role.role_arn)
        for team in (self.people.operator, self.people.trainer, self.people.reader):
            # `deployer: restricted` needs it no longer, but CloudFormation removes no export that a deployed stack imports.
            self.export_value(team.group.group_name)

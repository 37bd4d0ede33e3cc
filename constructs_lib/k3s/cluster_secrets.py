"""The secrets of a self-managed cluster. AWS generates the tokens; the others start empty, and the
control plane fills them.
"""

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from constructs_lib.acknowledged import acknowledge
from constructs_lib.statements import OF_MACHINES, statements

TOKEN = secretsmanager.CfnSecret.GenerateSecretStringProperty(
    password_length=48, exclude_punctuation=True
)


class ClusterSecrets(Construct):
    """Tokens, CA hash and kubeconfigs of one cluster.

    Args:
        cluster_name: first part of the secrets' names.
        encryption_key: KMS key; None: a key that AWS manages (aws/secretsmanager).

    Attributes:
        server_token: ARN of the token with which a control plane opens its own state.
        node_token: ARN of the token with which a node joins.
        ca_hash: ARN of the CA's hash, by which a node verifies what it joins; empty until the
            control plane has started.
        kubeconfigs: team (operator, trainer, reader): ARN of its kubeconfig; empty until the
            control plane has started.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        cluster_name: str,
        encryption_key: kms.IKey | None = None,
    ) -> None:
        super().__init__(scope, id)
        self._cluster_name, self.encryption_key = cluster_name, encryption_key
        opens, joins = "by which the control plane opens its state", "by which nodes join"
        self.server_token = self._secret("ServerToken", "server-token", opens, TOKEN)
        self.node_token = self._secret("NodeToken", "node-token", joins, TOKEN)
        whom = "of the CA, by which nodes know whom they join"
        self.ca_hash = self._secret("CaHash", "ca-hash", whom)
        self.kubeconfigs = {
            team: self._secret(
                f"{team.capitalize()}Kubeconfig", f"kubeconfig/{team}", f"of the {team}"
            )
            for team in ("operator", "trainer", "reader")
        }

    def _secret(
        self,
        id: str,
        name: str,
        what: str,
        generated: secretsmanager.CfnSecret.GenerateSecretStringProperty | None = None,
    ) -> str:
        # An empty secret needs the plain CloudFormation resource: the CDK's construct would
        # generate a value.
        secret = secretsmanager.CfnSecret(
            self,
            id,
            name=f"{self._cluster_name}/{name}",
            description=f"{self._cluster_name}: {name.partition('/')[0]} {what}",
            kms_key_id=self.encryption_key.key_arn if self.encryption_key else None,
            generate_secret_string=generated,
        )
        acknowledge(
            secret,
            "k3s opens its state, or lets nodes join, by the one it started with: one that a "
            "rotation writes locks them out"
            if generated
            else "the control plane writes it at each start and once a month: what a rotation "
            "wrote would open nothing",
            "AwsSolutions-SMG4",
            "NIST.800.53.R5-SecretsManagerRotationEnabled",
        )
        return secret.ref

    def decrypt_statements(self) -> list[iam.PolicyStatement]:
        """Returns permission to decrypt with the KMS key, only through Secrets Manager and S3;
        without a key, an empty list.
        """
        if self.encryption_key is None:
            return []
        stack = Stack.of(self)
        through = [
            f"{service}.{stack.region}.{stack.url_suffix}" for service in ("secretsmanager", "s3")
        ]
        return statements(OF_MACHINES, "open", key=self.encryption_key.key_arn, through=through)

"""An SSH key pair that AWS makes: its private key is in Parameter Store, encrypted, and nowhere else."""

from aws_cdk import aws_ec2 as ec2
from constructs import Construct


class SshKey(Construct):
    """A key pair.

    Args:
        name: its name, which is taken once in an account and region.

    Attributes:
        private_key_parameter: name of the parameter that holds the private key.
    """

    def __init__(self, scope: Construct, id: str, *, name: str) -> None:
        super().__init__(scope, id)
        pair = ec2.CfnKeyPair(self, "Resource", key_name=name, key_type="ed25519")
        # CloudFormation cannot change a pair's tags: it would make a new pair, whose name is taken, and new machines for it.
        pair.add_property_deletion_override("Tags")
        self.name = pair.ref
        self.private_key_parameter = f"/ec2/keypair/{pair.attr_key_pair_id}"

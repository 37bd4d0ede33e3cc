"""The SSH key pair of a cluster's machines: one that is there already, or one that AWS makes.

Promises: a private key that is made here is in Parameter Store, encrypted, and nowhere else; it goes with its stack.
"""

from __future__ import annotations

from aws_cdk import aws_ec2 as ec2
from constructs import Construct


class SshKey(Construct):
    """A key pair.

    Args:
        existing: name of a key pair that is there already; None: one is made.
        name: name of the one that is made; a name is taken once in an account and region.

    Attributes:
        name: the key pair's name.
        private_key_parameter: name of the parameter that holds the private key; None for an existing pair.
    """

    def __init__(self, scope: Construct, id: str, *, existing: str | None = None, name: str | None = None) -> None:
        super().__init__(scope, id)
        self.private_key_parameter: str | None = None
        if existing:
            self.name = existing
            return
        if not name:
            raise ValueError(f"{self.node.path}: neither existing nor name is given: name the key pair")
        pair = ec2.CfnKeyPair(self, "Resource", key_name=name, key_type="ed25519")
        # CloudFormation cannot change a pair's tags: it would make a new pair, whose name is taken, and new machines for it.
        pair.add_property_deletion_override("Tags")
        self.name = pair.ref
        self.private_key_parameter = f"/ec2/keypair/{pair.attr_key_pair_id}"

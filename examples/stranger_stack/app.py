"""Another team's app: their own VPC and machines, and three constructs of this project, one of them
made stricter by subclassing.

cd examples/stranger_stack && cdk synth
"""

from typing import Any

from aws_cdk import App, Environment, Stack, Tags
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_efs as efs
from constructs import Construct

from constructs_lib.storage.bucket import DataBucket
from constructs_lib.storage.file_system import SharedFileSystem
from constructs_lib.storage.key import EncryptionKey


class GenomeStore(SharedFileSystem):
    """Adds their house rules to ours: always backed up, files never leave the fast storage class, a
    separate uid.
    """

    def __init__(self, scope: Construct, id: str, **settings: Any) -> None:
        super().__init__(
            scope,
            id,
            automatic_backups=True,
            infrequent_access_after=None,
            posix_id=2000,
            path="/genomes",
            **settings,
        )
        Tags.of(self).add("data-class", "confidential")


class SequencingStack(Stack):
    """One machine that mounts the store and reads the bucket."""

    def __init__(self, scope: Construct, id: str, **settings: Any) -> None:
        super().__init__(scope, id, **settings)
        vpc = ec2.Vpc(
            self, "Vpc", availability_zones=["eu-central-1a", "eu-central-1b"], nat_gateways=1
        )
        key = EncryptionKey(self, "Key", alias="sequencing")
        store = GenomeStore(
            self,
            "Genomes",
            vpc=vpc,
            encryption_key=key,
            throughput_mode=efs.ThroughputMode.BURSTING,
        )
        reads = DataBucket(self, "Reads", encryption_key=key)
        machine = ec2.Instance(
            self,
            "Sequencer",
            vpc=vpc,
            instance_type=ec2.InstanceType("m5.large"),
            machine_image=ec2.MachineImage.latest_amazon_linux2023(),
            require_imdsv2=True,
        )
        # A client needs the client security group, and must wait for the mount targets.
        machine.add_security_group(store.client_security_group)
        machine.node.add_dependency(store.mount_targets)
        store.grant_read_write(machine)
        reads.grant_read(machine)


def app() -> App:
    """Returns their app."""
    strangers_app = App()
    SequencingStack(strangers_app, "sequencing", env=Environment(region="eu-central-1"))
    return strangers_app


if __name__ == "__main__":
    app().synth()

"""The volume with a control plane's state. It outlives its machine and waits for the next one."""

from aws_cdk import Aws, RemovalPolicy, Stack, Tags
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from constructs_lib.acknowledged import acknowledge
from constructs_lib.statements import OF_MACHINES, statements
from constructs_lib.storage.removal import retain_if_replaced


class StateVolume(Construct):
    """An EBS volume, attached by the machine that needs it.

    Args:
        availability_zone: where it is, and where its machines must be.
        size_gib: GiB; it can grow.
        encryption_key: KMS key; None: the account's default key for EBS.
        snapshot_id: EBS snapshot to create the volume from; None: an empty volume.
        name: value of the Name tag.
        removal_policy: SNAPSHOT leaves a snapshot, DESTROY nothing, RETAIN the volume itself.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        availability_zone: str,
        size_gib: int = 20,
        encryption_key: kms.IKey | None = None,
        snapshot_id: str | None = None,
        name: str | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.SNAPSHOT,
    ) -> None:
        super().__init__(scope, id)
        self._key = encryption_key
        resource = ec2.CfnVolume(
            self,
            "Resource",
            availability_zone=availability_zone,
            size=size_gib,
            encrypted=True,
            kms_key_id=encryption_key.key_arn if encryption_key else None,
            snapshot_id=snapshot_id,
            volume_type="gp3",
        )
        resource.apply_removal_policy(removal_policy)
        retain_if_replaced(resource)
        if name:
            Tags.of(resource).add("Name", name)
        why = "a volume is in one zone, which the caller names: no look-up at synth"
        acknowledge(resource, why, "W3010", "cfn-lint:W3010")
        self.volume_id = resource.ref

    def attach_statements(self, tag: tuple[str, str]) -> list[iam.PolicyStatement]:
        """Returns permission to attach the volume, to machines that carry `tag` only."""
        stack, (key, value) = Stack.of(self), tag
        prefix = f"arn:{Aws.PARTITION}:ec2:{stack.region}:{stack.account}:"
        arns = {"volume": f"{prefix}volume/{self.volume_id}", "instances": f"{prefix}instance/*"}
        attach = statements(OF_MACHINES, "volume", **arns, tag={f"aws:ResourceTag/{key}": value})
        if self._key is None:
            return attach
        return [*attach, *statements(OF_MACHINES, "volume with a key", key=self._key.key_arn)]

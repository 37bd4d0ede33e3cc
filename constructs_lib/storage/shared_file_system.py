"""What nodes, charts and stacks need to know of a shared file system, whoever makes it: EFS, FSx
for Lustre, or one of your own.
"""

from collections.abc import Mapping
from typing import Protocol

from aws_cdk import aws_ec2 as ec2
from constructs import IDependable


class ISharedFileSystem(Protocol):
    """A file system that clients in one security group can mount.

    Any construct with these properties fits `NodeGroupProps.security_groups` and `depends_on`, and
    the charts.
    """

    @property
    def client_security_group(self) -> ec2.ISecurityGroup:
        """Clients need it to mount."""

    @property
    def mount_targets(self) -> IDependable:
        """What must exist before a client mounts."""

    @property
    def volume_source(self) -> Mapping[str, str]:
        """What charts make a PersistentVolume from: fields of `k8s_charts.deployed.ClusterOutputs`
        by name, such as file_system_id. Values may be tokens.
        """

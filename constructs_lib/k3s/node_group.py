"""A node group of a self-managed cluster: an Auto Scaling group whose machines join with a token.

Pods can reach the nodes' role (two hops). The jobs' NetworkPolicy blocks that for all pods but the
data job's.
"""

import hashlib
import re
from collections.abc import Sequence
from typing import Unpack

from aws_cdk import Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from constructs_lib.acknowledged import EVERY_RESOURCE, acknowledge, wildcard_findings
from constructs_lib.ec2.machine import (
    SESSIONS,
    machine_role,
    report_machine_counts,
    session_statement,
)
from constructs_lib.ec2.node_group import NodeGroup, NodeGroupProps
from constructs_lib.k3s.cluster import SelfManagedCluster
from constructs_lib.k3s.release import IMAGE, MachineFiles, Release, boot_user_data
from constructs_lib.statements import OF_MACHINES, statements


def _logical_id(group: Construct) -> str:
    """Returns a logical id that stays when the stack moves, say, into a Stage: the CDK's way to
    make one from a path, which here begins with the stack's name.
    """
    stack = Stack.of(group)
    path = [stack.stack_name, *group.node.path.removeprefix(f"{stack.node.path}/").split("/")]
    digest = hashlib.md5("/".join(path).encode(), usedforsecurity=False).hexdigest()[:8].upper()
    return re.sub(r"[^A-Za-z0-9]", "", "".join(path))[:240] + digest


class TokenNodeRole(Construct):
    """The role of nodes that join with a token. One role serves many groups.

    Args:
        data_arns: objects that jobs may read with the role, such as `<bucket arn>/sources/*`.
        data_bucket_arn: the bucket of those objects; None: no data.
        data_key: KMS key of those objects; None: one that AWS manages.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        cluster: SelfManagedCluster,
        release: Release,
        data_arns: Sequence[str] = (),
        data_bucket_arn: str | None = None,
        data_key: kms.IKey | None = None,
    ) -> None:
        super().__init__(scope, id)
        self.files = MachineFiles(self, "Files", files=release.files_for("node"))
        self.role = machine_role(self, "Role")
        self.node.default_child = self.role.node.default_child
        policy = iam.ManagedPolicy(
            self, "Policy", roles=[self.role], description="Nodes of the cluster"
        )
        secrets = cluster.secrets
        policy.add_statements(
            session_statement(),
            self.files.read_statement(),
            *statements(OF_MACHINES, "join token", secrets=[secrets.node_token, secrets.ca_hash]),
            *secrets.decrypt_statements(),
            *statements(OF_MACHINES, "ready", stack=Stack.of(self).stack_id),
            *statements(OF_MACHINES, "mount targets"),
        )
        if data_bucket_arn:
            policy.add_statements(
                *statements(OF_MACHINES, "data", bucket=data_bucket_arn, objects=list(data_arns))
            )
            why = "training data, which the data job splits"
            acknowledge(policy, why, *wildcard_findings(self, *data_arns))
        if data_key and data_key != secrets.encryption_key:
            s3 = f"s3.{Stack.of(self).region}.{Stack.of(self).url_suffix}"
            policy.add_statements(
                *statements(OF_MACHINES, "data with a key", key=data_key.key_arn, s3=s3)
            )
        why = f"the Describe of EFS reads names and no data; {SESSIONS}"
        acknowledge(policy, why, EVERY_RESOURCE, "CKV_AWS_111")
        self.policy = policy


class K3sNodeGroup(NodeGroup):
    """An Auto Scaling group of nodes on Amazon Linux 2023.

    Args:
        cluster: the self-managed cluster.
        vpc: the VPC.
        release: what the nodes run; never newer than the control plane's.
        role: the nodes' role; None: one is made, without data.
        group_name: name of the group; None: CloudFormation generates one.
        props: see `NodeGroupProps`; a shape with gpu, efa or
            parallel_image_pull is refused.

    Raises:
        ValueError: a sentence for each value that is refused.
    """

    _calls = "self-managed"

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        cluster: SelfManagedCluster,
        vpc: ec2.IVpc,
        release: Release,
        role: TokenNodeRole | None = None,
        group_name: str | None = None,
        **props: Unpack[NodeGroupProps],
    ) -> None:
        super().__init__(scope, id, cluster=cluster, vpc=vpc, **props)
        shape, stack = self.shape, Stack.of(self)
        for field in ("gpu", "efa", "parallel_image_pull"):
            if getattr(shape, field):
                raise ValueError(
                    f"{self.node.path}: {field} is true: a self-managed cluster has no {field} "
                    "nodes, EKS has"
                )
        self._validate(managed=False)
        node_role = role or TokenNodeRole(self, "Joining", cluster=cluster, release=release)
        self.role = node_role.role
        # The template contains the group's logical id, and the group refers to the template: the id
        # is set before both.
        logical_id = _logical_id(self)
        user_data = boot_user_data(
            stack,
            {
                "ROLE": "node",
                "CLUSTER_NAME": cluster.cluster_name,
                "AWS_REGION": stack.region,
                "FILES": node_role.files.lines,
                "DISTRIBUTION_VERSION": release.version,
                "SERVER_URL": cluster.server_url,
                "NODE_TOKEN_SECRET": cluster.secrets.node_token,
                "CA_HASH_SECRET": cluster.secrets.ca_hash,
                "SIGNAL_STACK": stack.stack_name,
                "SIGNAL_RESOURCE": logical_id,
            },
            {
                "server": cluster.server_url,
                "node-label": shape.kubelet_labels,
                "node-taint": shape.kubelet_taints,
            },
            self._mount_files("k3s-agent.service"),
            props.get("extra_user_data"),
            props.get("environment"),
            props.get("certificates"),
        )
        # Two hops: the data job's pod reads the bucket with the machine's role.
        template = self._template(
            role=self.role, image_id=IMAGE, user_data=user_data, metadata_hops=2
        )
        self.resource = self._scaling_group(template, signals=True, name=group_name)
        self.resource.override_logical_id(logical_id)
        report_machine_counts(self.resource)
        self.resource.node.add_dependency(node_role.policy, *self._depends_on)

"""All that one cluster.yaml describes, as one construct: people, network, storage, cluster, nodes.

References lead only from shorter-lived stacks to longer-lived ones (nodes -> cluster -> storage ->
network -> access), so that you can destroy compute and keep data.
"""

import json
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from aws_cdk import CfnOutput, DefaultStackSynthesizer, IStackSynthesizer, Stack, Token
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from constructs_lib.ec2.node_group import NodeGroup
from constructs_lib.people.team import Team
from constructs_lib.storage.shared_file_system import ISharedFileSystem
from constructs_lib.storage.stack_protection import StackProtection
from paddle_aws.stacks.access import AccessStack, access_outputs
from paddle_aws.stacks.cluster import ClusterStack
from paddle_aws.stacks.cluster_spec import ClusterSpec
from paddle_aws.stacks.network import NetworkStack, network_outputs
from paddle_aws.stacks.nodes import NodesStack
from paddle_aws.stacks.part import (
    AccessPart,
    NetworkPart,
    OwnBootstrap,
    Platform,
    PlatformStack,
    StoragePart,
    fix_flags,
)
from paddle_aws.stacks.storage import StorageStack, storage_outputs
from paddle_settings.errors import SettingError

if TYPE_CHECKING:
    from constructs_lib.k3s.cluster import SelfManagedCluster
    from paddle_aws.stacks.k3s_cluster import K3sClusterStack

ADDON_LOCK = "add-ons.json"
"""File that `paddle-aws lock add-ons` writes: the versions that it read from AWS, for stacks that
should deploy the same ones.
"""
QUALIFIER = "@aws-cdk/core:bootstrapQualifier"
"""The CDK's context key of an app's bootstrap."""

Part = TypeVar("Part")
Maker = Callable[[Platform], Part]


def locked_versions(folder: Path, kubernetes_version: str) -> dict[str, str]:
    """Returns {add-on or AMI type: version} for one Kubernetes version, empty if the lock in
    `folder` is missing or lacks it.
    """
    file = folder / ADDON_LOCK
    try:
        versions = json.loads(file.read_text(encoding="utf-8"))["versions"].get(
            kubernetes_version, {}
        )
        return {str(name): str(version) for name, version in versions.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise SettingError(
            f"{file} is not a lock of add-ons: `paddle-aws lock add-ons` writes one"
        ) from None


class TrainingPlatform(Construct):
    """The stacks of one cluster. Two in one app need two names, or two accounts.

    Each part may be replaced: by a subclass of ours, or anything else that makes a part from the
    platform; or by an object that is there already, in a stack of your own, and has what the
    protocols of part.py ask for.

    Args:
        spec: the settings.
        access: people and key; default: AccessStack.
        network: VPC and zone; default: NetworkStack.
        storage: file system, bucket and image repository; default: StorageStack.
        cluster: a ClusterStack, or an EKS cluster of your own called `spec.cluster_name`; default:
            what the settings describe.
        nodes: node groups and add-ons; default: what the settings describe.
        watch: budget, alarms and dashboard; default: WatchStack if the settings have a `budget`.
        locks: the folder that `paddle-aws lock` writes to.
        stacks_in: what the stacks are children of. Default: this construct. Never changes once
            deployed: security groups are described by their path, and would be replaced.

    Attributes:
        access, network, storage, control_plane, nodes, watch: the parts.
        outputs: what the parts put out, by name.

    Raises:
        SettingError: one sentence, for settings that do not fit the app.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        spec: ClusterSpec,
        *,
        access: AccessPart | Maker[AccessPart] = AccessStack,
        network: NetworkPart | Maker[NetworkPart] = NetworkStack,
        storage: StoragePart | Maker[StoragePart] = StorageStack,
        cluster: "eks.ICluster | Maker[ClusterStack | K3sClusterStack] | None" = None,
        nodes: Maker[Construct] | None = None,
        watch: Maker[Stack] | None = None,
        locks: Path | None = None,
        stacks_in: Construct | None = None,
    ) -> None:
        super().__init__(scope, id)
        self.spec, self._locks = spec, locks
        self.stack_scope = stacks_in or self
        self.outputs: dict[str, CfnOutput] = {}
        fix_flags(self)
        self.synthesizer = self._synthesizer()
        self.access: AccessPart = access(self) if callable(access) else access
        self.network: NetworkPart = network(self) if callable(network) else network
        self.storage: StoragePart = storage(self) if callable(storage) else storage
        if spec.cluster.self_managed:
            # Imported here: these services' modules, like the budget's, would cost everybody else
            # synth time.
            from paddle_aws.stacks.k3s_cluster import K3sClusterStack, K3sNodesStack

            usual_cluster: Maker[ClusterStack | K3sClusterStack] = K3sClusterStack
            usual_nodes: Maker[Construct] = K3sNodesStack
        else:
            usual_cluster, usual_nodes = ClusterStack, NodesStack
        self.control_plane: ClusterStack | K3sClusterStack = (
            (cluster or usual_cluster)(self)
            if cluster is None or callable(cluster)
            else ClusterStack(self, cluster=self._check_name(cluster))
        )
        self._output_foreign_parts()
        self.nodes = (nodes or usual_nodes)(self)
        self.watch: Stack | None = None
        if watch or spec.budget:
            self.watch = (watch or _watch)(self)
            if spec.node_metrics:
                # An alarm fires if the agent is silent: it is created after nodes and agent, and
                # deleted before them.
                self.watch.add_stack_dependency(Stack.of(self.nodes))

    @property
    def file_system(self) -> ISharedFileSystem:
        """The shared file system."""
        return self.storage.file_system

    @property
    def bucket(self) -> s3.IBucket:
        """The bucket of the training data."""
        return self.storage.bucket

    @property
    def cluster(self) -> "eks.ICluster | SelfManagedCluster":
        """The cluster; self-managed with `cluster.kind: self-managed`."""
        return self.control_plane.cluster

    @property
    def eks_cluster(self) -> eks.ICluster:
        """The cluster, where it is one of EKS. Raises SettingError for a self-managed one."""
        return self._on_eks().cluster

    @property
    def data_job(self) -> iam.IGrantable:
        """The data job's pods. Raises SettingError for a self-managed cluster, whose pods have
        their node's role.
        """
        return self._on_eks().data_job

    def _on_eks(self) -> ClusterStack:
        if not isinstance(self.control_plane, ClusterStack):
            raise SettingError(
                "cluster.kind is self-managed: it has no cluster of EKS, and its pods have no role "
                "of their own; take `cluster` and `node_groups`"
            )
        return self.control_plane

    @property
    def node_groups(self) -> dict[str, NodeGroup]:
        """The node groups by name; empty with EKS Auto Mode, which makes nodes itself."""
        return dict(zip(self.spec.nodes, getattr(self.nodes, "groups", ()), strict=False))

    @property
    def teams(self) -> Mapping[str, Team]:
        """The teams by name: operator, trainer and reader, and your own."""
        return self.access.teams

    @property
    def stacks(self) -> list[Stack]:
        """The platform's stacks, the longest-lived first; parts of other stacks are not among
        them.
        """
        longer = (self.access, self.network, self.storage)
        parts = (*longer, self.control_plane, self.nodes, self.watch)
        return [part for part in parts if isinstance(part, PlatformStack)]

    @cached_property
    def addon_versions(self) -> Mapping[str, str]:
        """Versions by add-on, and of node images by EKS's AMI type: the settings' before the
        lock's.
        """
        cluster = self.spec.cluster
        locked = locked_versions(self._locks, cluster.version) if self._locks else {}
        return {**locked, **cluster.addons}

    def _synthesizer(self) -> IStackSynthesizer | None:
        """Returns what deploys the stacks by the bootstrap of the settings; None: the app's own
        does. Raises SettingError if the app has another bootstrap.
        """
        spec, app = self.spec, self.node.try_get_context(QUALIFIER)
        chosen = "bootstrap_qualifier" in spec.model_fields_set
        if app and app != spec.qualifier and not chosen:
            raise SettingError(
                f"{QUALIFIER} is {app} in this app's context, and cluster {spec.name} has a "
                f"bootstrap of its own: set bootstrap_qualifier to {app} in cluster.yaml, or to "
                f"{spec.qualifier} to keep its own"
            )
        # Only a stack shows which synthesizer the app gives by default.
        self.node.set_context(QUALIFIER, spec.qualifier)
        probe = Stack(self, "Probe").synthesizer
        self.node.try_remove_child("Probe")
        qualifier = probe.bootstrap_qualifier
        if type(probe) is DefaultStackSynthesizer and qualifier == spec.qualifier:
            return OwnBootstrap(spec.qualifier)
        # jsii gives Python no qualifier of a synthesizer that Python made.
        if not chosen or qualifier not in (None, spec.qualifier):
            theirs = f"qualifier {qualifier or 'unknown here'}"
            raise SettingError(
                f"the app has a default_stack_synthesizer of its own ({theirs}), and cluster "
                f"{spec.name} would deploy by qualifier {spec.qualifier}: name the app's in "
                "cluster.yaml as bootstrap_qualifier"
            )
        if spec.cluster.self_managed:
            raise SettingError(
                "the app has a default_stack_synthesizer, and jsii cannot hand it the files of "
                f"self-managed machines: give the app the context {QUALIFIER} instead"
            )
        return None

    def _check_name(self, cluster: eks.ICluster) -> eks.ICluster:
        # An L2's own attribute is a reference.
        name = getattr(cluster.node.default_child, "name", None) or cluster.cluster_name
        expected = self.spec.cluster_name
        if not Token.is_unresolved(name) and name != expected:
            raise SettingError(
                f"{cluster.node.path} is called {name}: people's rights and commands look for "
                f"{expected}; give it that name"
            )
        return cluster

    def _output_foreign_parts(self) -> None:
        """Adds the outputs that commands read for parts that are not ours, which have none."""
        outputs: dict[str, str] = {}
        if not isinstance(self.access, PlatformStack):
            outputs |= access_outputs(self.access)
            self._protect_without_access_stack()
        if not isinstance(self.network, PlatformStack):
            outputs |= network_outputs(self.network)
        if not isinstance(self.storage, PlatformStack):
            outputs |= storage_outputs(self.storage)
        self.control_plane.output(**outputs)

    def _protect_without_access_stack(self) -> None:
        """Protects the stacks although the access part is not ours. Raises SettingError if
        `protect.lifted_by` names people: their rights are not ours.
        """
        protect = self.spec.protect
        if protect.lifted_by:
            raise SettingError(
                f"protect.lifted_by is {', '.join(protect.lifted_by)}: the people of this platform "
                "are your own (`access`), so deny cloudformation:SetStackPolicy there, and leave "
                "it out"
            )
        if protect.after_deploy:
            parts = (self.network, self.storage, self.control_plane)
            first = next(part for part in parts if isinstance(part, PlatformStack))
            stacks, key = self.spec.stack_names, self.access.key
            StackProtection(first, "Protection", stacks=stacks, encryption_key=key)


def _watch(platform: Platform) -> Stack:
    # Imported here: only a platform that is watched pays for loading these services' modules.
    from paddle_aws.stacks.watch import WatchStack

    return WatchStack(platform)

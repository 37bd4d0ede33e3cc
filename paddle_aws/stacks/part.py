"""What all stacks of one cluster have in common: name, region, description, tags, and what outlives
a destroy (`retain`). And what each kind of part must have, so that you can replace it by your own.
"""

from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary

from aws_cdk import (
    Annotations,
    CfnOutput,
    DefaultStackSynthesizer,
    Environment,
    IBoundStackSynthesizer,
    IStackSynthesizer,
    RemovalPolicy,
    Stack,
    Stage,
    Tags,
    Token,
)
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_route53 as route53
from aws_cdk import aws_s3 as s3
from constructs import Construct, IConstruct

from constructs_lib.ec2.node_rules import unknown_families
from constructs_lib.people.team import Team
from constructs_lib.storage.shared_file_system import ISharedFileSystem
from paddle_aws.stacks.cluster_spec import PLATFORM_OUTPUT, ClusterSpec
from paddle_settings.errors import SettingError

if TYPE_CHECKING:  # Its modules would cost everybody else synth time.
    from constructs_lib.k3s.cluster import SelfManagedCluster

FLAGS = {
    "@aws-cdk/core:defaultCrossStackReferences": "strong",
    "@aws-cdk/aws-efs:mountTargetOrderInsensitiveLogicalId": True,
    "@aws-cdk/core:enablePartitionLiterals": False,
    "@aws-cdk/aws-iam:minimizePolicies": True,
}
"""The CDK's feature flags that would change a template, as the stacks have them in any app."""

_deployed: MutableMapping[IConstruct, dict[tuple[str, str, str], str]] = WeakKeyDictionary()
"""For each app: the path of each part, by account, region and stack name."""


class AccessPart(Protocol):
    """People's permissions, and the KMS key."""

    @property
    def key(self) -> kms.IKey:
        """Encrypts data, secrets and logs."""

    @property
    def node_volume_key(self) -> kms.IKey | None:
        """The key of the nodes' disks, which Auto Scaling may use; None: EBS's own."""

    @property
    def teams(self) -> Mapping[str, Team]:
        """The teams operator, trainer and reader get their rights; other teams get none."""


class NetworkPart(Protocol):
    """Any VPC with private subnets, and the zone of the cluster's names."""

    @property
    def vpc(self) -> ec2.IVpc:
        """The VPC."""

    @property
    def zone(self) -> route53.IHostedZone:
        """The private DNS zone."""


class StoragePart(Protocol):
    """The resources that hold data."""

    @property
    def file_system(self) -> ISharedFileSystem:
        """The file system that pods mount."""

    @property
    def bucket(self) -> s3.IBucket:
        """The bucket that data jobs read."""

    @property
    def bucket_arn(self) -> str:
        """The bucket's ARN, as other stacks see it."""

    @property
    def bucket_key(self) -> kms.IKey:
        """The KMS key of the bucket's objects."""

    @property
    def repository(self) -> ecr.IRepository:
        """The repository of the trainer images."""


class ControlPlanePart(Protocol):
    """The part with the Kubernetes cluster."""

    @property
    def cluster(self) -> "eks.ICluster | SelfManagedCluster":
        """The cluster."""


class Platform(Protocol):
    """What a part reads of its platform: the settings, and the parts that live longer."""

    @property
    def spec(self) -> ClusterSpec:
        """The settings."""

    @property
    def access(self) -> AccessPart:
        """People and the key."""

    @property
    def network(self) -> NetworkPart:
        """The network."""

    @property
    def storage(self) -> StoragePart:
        """The data."""

    @property
    def control_plane(self) -> ControlPlanePart:
        """The part with the Kubernetes cluster."""

    @property
    def outputs(self) -> dict[str, CfnOutput]:
        """The parts' outputs, by name."""

    @property
    def stack_scope(self) -> Construct:
        """The scope of the stacks."""

    @property
    def synthesizer(self) -> IStackSynthesizer | None:
        """The stacks' synthesizer; None: the app's."""

    @property
    def addon_versions(self) -> Mapping[str, str]:
        """Versions by add-on, and of node images by EKS's AMI type."""


def fix_flags(scope: Construct) -> None:
    """Gives a construct without children, and all below it, the flags of `FLAGS`."""
    for flag, value in FLAGS.items():
        scope.node.set_context(flag, value)


class OwnBootstrap(DefaultStackSynthesizer):
    """Deploys a stack by the bootstrap of this qualifier; no other stack inherits it."""

    def __init__(self, qualifier: str) -> None:
        super().__init__(qualifier=qualifier)
        self._qualifier = qualifier

    def reusable_bind(self, stack: Stack) -> IBoundStackSynthesizer:
        # The CDK binds a copy, of which jsii gives Python the unbound original: `stack.synthesizer`
        # would take no file.
        bound = DefaultStackSynthesizer(qualifier=self._qualifier)
        bound.bind(stack)
        return bound


class PlatformStack(Stack):
    """The stack `<cluster>-<part>`, whatever it stands in; no account is needed at synth.

    Args:
        platform: the platform that it is a part of.
        part: the last word of the stack's name.
        holds: what is in it, for the description.

    Attributes:
        removal_policy: what happens to data, and to its key, when their stack is destroyed.
    """

    def __init__(self, platform: Platform, part: str, holds: str) -> None:
        spec, scope = platform.spec, platform.stack_scope
        policies, name = spec.deployment_policies, f"{spec.name}-{part}"
        if scope.node.try_find_child(name):
            raise SettingError(
                f"name is {spec.name}: {scope.node.path or 'the app'} has a cluster of this name"
            )
        _check_environment(scope, spec)
        super().__init__(
            scope,
            name,
            # The CDK's own name would begin with the Stage's, which neither people's policies nor
            # commands know.
            stack_name=name,
            env=Environment(account=spec.account, region=spec.region),
            synthesizer=platform.synthesizer,
            description=f"{spec.name}: {holds}",
        )
        if not self.node.children:
            fix_flags(self)
        if policies:
            # Not by the stack's own property, which makes the ARN before the flags are fixed.
            boundary = iam.ManagedPolicy.from_managed_policy_name(
                self, "Boundary", f"{policies}-boundary"
            )
            iam.PermissionsBoundary.of(self).apply(boundary)
        stacks = _deployed.setdefault(self.node.root, {})
        other = stacks.setdefault((self.account, self.region, name), self.node.path)
        if other != self.node.path:
            raise SettingError(
                f"name is {spec.name}: {other} and {self.node.path} would be one stack, as both go "
                f"to one account in {spec.region}: give each cluster a name, or an account "
                "(`account` in cluster.yaml, or the Stage's env)"
            )
        self.platform, self.spec = platform, spec
        self.removal_policy = RemovalPolicy.RETAIN if spec.retain else RemovalPolicy.DESTROY
        tags = Tags.of(self)
        for key, value in spec.all_tags.items():
            tags.add(key, value)
        # kube-up's old tag, by which its documentation finds a cluster's resources. Not on security
        # groups: Kubernetes' load balancers require that exactly one of a node's groups carries a
        # cluster's tag, and EKS tags the group that it makes. (A self-managed cluster makes no load
        # balancers.)
        but = [] if spec.cluster.self_managed else ["AWS::EC2::SecurityGroup"]
        tags.add("KubernetesCluster", spec.name, exclude_resource_types=but)
        # Commands find the cluster's stacks by this output.
        CfnOutput(self, PLATFORM_OUTPUT, value=spec.name)

    def output(self, **values: str) -> None:
        """Makes an output of each value, by name. Commands and `platform.outputs` find it there."""
        for name, value in values.items():
            self.platform.outputs[name] = CfnOutput(self, name, value=value)


def _check_environment(scope: Construct, spec: ClusterSpec) -> None:
    """Raises SettingError if the settings and the Stage name different places."""
    if (stage := Stage.of(scope)) is None:
        return
    for setting, theirs, chosen in (
        ("account", stage.account, spec.account),
        ("region", stage.region, spec.region),
    ):
        if theirs and chosen and not Token.is_unresolved(theirs) and theirs != chosen:
            raise SettingError(
                f"{setting} is {chosen}: {stage.node.path} deploys to {theirs}; set both alike, or "
                "leave one out"
            )


def warn_of_types(scope: Stack, spec: ClusterSpec) -> None:
    """Warns at synth about instance types that this release does not know: it takes them."""
    types = [value for group in spec.nodes.values() for value in group.instance_types]
    if unknown := unknown_families(types):
        Annotations.of(scope).add_warning_v2(
            "paddle-aws:instance-types",
            f"instance_types has {', '.join(dict.fromkeys(unknown))}, of a family that this "
            "release does not know: `paddle-aws doctor` asks EC2 whether the zones have it",
        )


def removal_summary(spec: ClusterSpec) -> str:
    """Returns a line that says what a destroy keeps and deletes, and one that says what deploys."""
    makes = "" if spec.bootstrap_qualifier else ", which `paddle-aws bootstrap` makes"
    return f"{_removal(spec)}\n{spec.name}: deployed by bootstrap {spec.qualifier}{makes}"


def _removal(spec: ClusterSpec) -> str:
    data = {
        "file system": spec.file_system.existing,
        "bucket": spec.bucket.existing_name,
        "key": spec.key.existing_arn,
        "image repository": spec.images.existing,
    }
    if spec.retain:
        state = ["a snapshot of the control plane's state"] if spec.cluster.self_managed else []
        return (
            f"{spec.name}: retain is true: a destroy keeps {', '.join([*data, *state])}, with all "
            "they hold; everything else goes"
        )
    ours = ", ".join(name for name, existing in data.items() if not existing)
    lost = f", with {ours} and all they hold" if ours else " but what was there before"
    # Those of FSx end with the file system.
    outlive = spec.backup and not (spec.file_system.existing or spec.file_system.lustre)
    backups = ", but for its backups" if outlive else ""
    key = "" if spec.key.existing_arn else "; the key stays while it encrypts anything else"
    return f"{spec.name}: retain is false: a destroy deletes everything{lost}{backups}{key}"

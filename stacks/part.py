"""What all stacks of one cluster have in common: name, region, description, tags, and what outlives
a destroy (`retain`).
"""

from aws_cdk import Environment, PermissionsBoundary, RemovalPolicy, Stack, Tags
from constructs import Construct

from paddle_aws.stacks.cluster_spec import ClusterSpec


class ClusterPart(Stack):
    """The stack `<cluster>-<part>`; no account is needed at synth.

    Args:
        spec: the cluster.
        part: the last word of the stack's name.
        holds: what is in it, for the description.

    Attributes:
        removal_policy: what happens to data, and to its key, when their stack is destroyed.
    """

    def __init__(self, scope: Construct, spec: ClusterSpec, part: str, holds: str) -> None:
        policies = spec.deployment_policies
        super().__init__(
            scope,
            f"{spec.name}-{part}",
            env=Environment(region=spec.region),
            description=f"{spec.name}: {holds}",
            permissions_boundary=PermissionsBoundary.from_name(f"{policies}-boundary")
            if policies
            else None,
        )
        self.spec = spec
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


def removal_summary(spec: ClusterSpec) -> str:
    """Returns one line that says what a destroy keeps and deletes."""
    data = {
        "file system": spec.file_system.existing,
        "bucket": spec.bucket.existing_name,
        "key": spec.key.existing_arn,
        "image repository": spec.images.existing,
    }
    if spec.retain:
        listed = ", ".join(
            [
                *data,
                *(["a snapshot of the control plane's state"] if spec.cluster.self_managed else []),
            ]
        )
        return (
            f"{spec.name}: retain is true: a destroy keeps {listed}, with all they hold; "
            "everything else goes"
        )
    ours = ", ".join(name for name, existing in data.items() if not existing)
    lost = f", with {ours} and all they hold" if ours else " but what was there before"
    backups = ", but for its backups" if spec.backup and not spec.file_system.existing else ""
    return f"{spec.name}: retain is false: a destroy deletes everything{lost}{backups}"

"""`retain`, the one setting that decides what outlives a destroy."""

from __future__ import annotations

from aws_cdk import RemovalPolicy

from stacks.cluster_spec import ClusterSpec


def removal(spec: ClusterSpec) -> RemovalPolicy:
    """What happens to data, and to the key that opens it, when its stack goes."""
    return RemovalPolicy.RETAIN if spec.retain else RemovalPolicy.DESTROY


def fate(spec: ClusterSpec) -> str:
    """One line that says what a destroy will keep and lose."""
    ours = [
        name
        for name, existing in (
            ("file system", spec.file_system.existing),
            ("bucket", spec.bucket.existing_name),
            ("key", spec.key.existing_arn),
            ("image repository", None),
        )
        if not existing
    ]
    listed = ", ".join(ours[:-1]) + f" and {ours[-1]}" if len(ours) > 1 else ours[0]
    backups = ", but for its backups" if spec.backup and not spec.file_system.existing else ""
    if spec.retain:
        if spec.cluster.self_managed:
            listed = f"{', '.join(ours)} and a snapshot of the control plane's state" if ours else "a snapshot of its state"
        return f"{spec.name}: retain is true: a destroy keeps {listed}, with all they hold; everything else goes"
    return f"{spec.name}: retain is false: a destroy deletes everything, {listed} with all they hold{backups}"

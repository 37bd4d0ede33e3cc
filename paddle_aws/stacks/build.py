"""The stacks of one cluster directly below an app or a Stage, in one call; app.py makes the
same TrainingPlatform.
"""

from pathlib import Path

from constructs import Construct

from paddle_aws.stacks.cluster_spec import ClusterSpec
from paddle_aws.stacks.platform import TrainingPlatform


def build(scope: Construct, spec: ClusterSpec, *, locks: Path | None = None) -> TrainingPlatform:
    """Creates the stacks of `spec` as children of `scope`, so that cdk calls them `<name>-<part>`.
    `locks` is the folder that `paddle-aws lock` writes to.
    """
    return TrainingPlatform(scope, f"{spec.name}-platform", spec, stacks_in=scope, locks=locks)

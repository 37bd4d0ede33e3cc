"""All stacks of one cluster. References go only from shorter-lived stacks to longer-lived ones
(nodes -> cluster -> storage -> network -> access), so that compute goes while data stays.
"""

import json
from pathlib import Path

from aws_cdk import Stack
from constructs import Construct

from paddle_aws.settings.errors import SettingError
from paddle_aws.stacks.access import AccessStack
from paddle_aws.stacks.cluster import ClusterStack
from paddle_aws.stacks.cluster_spec import ClusterSpec
from paddle_aws.stacks.network import NetworkStack
from paddle_aws.stacks.nodes import NodesStack
from paddle_aws.stacks.storage import StorageStack

NAME = "add-ons.json"
"""File that `paddle-aws lock add-ons` writes: the versions that it read from AWS, for stacks that
should deploy the same ones.
"""


def locked_versions(folder: Path, kubernetes_version: str) -> dict[str, str]:
    """Returns {add-on or AMI type: version} for one Kubernetes version, empty if the lock in
    `folder` is missing or lacks it.
    """
    file = folder / NAME
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


def build(scope: Construct, spec: ClusterSpec, *, locks: Path | None = None) -> None:
    """Creates the stacks of `spec` below `scope`. `locks` is the folder that `paddle-aws lock`
    writes to.
    """
    # Through the context: jsii hands out a stack's own synthesizer before it is bound, when it
    # takes no file yet.
    scope.node.set_context("@aws-cdk/core:bootstrapQualifier", spec.qualifier)
    storage = StorageStack(scope, spec, NetworkStack(scope, spec, AccessStack(scope, spec)))
    if spec.cluster.self_managed:
        # Imported here: these services' modules, like the budget's, would cost everybody else synth
        # time.
        from paddle_aws.stacks.k3s_cluster import K3sClusterStack, K3sNodesStack, release

        # Read first: without a lock there is one sentence and no template.
        runs = release(spec)
        nodes: Stack = K3sNodesStack(scope, spec, K3sClusterStack(scope, spec, storage, runs), runs)
    else:
        locked = locked_versions(locks, spec.cluster.version) if locks else {}
        versions = {**locked, **spec.cluster.addons}
        nodes = NodesStack(scope, spec, ClusterStack(scope, spec, storage, versions), versions)
    if spec.budget:
        # Imported here: most clusters have no budget, and these services' modules cost a tenth of a
        # second.
        from paddle_aws.stacks.watch import WatchStack

        watch = WatchStack(scope, spec, storage, spec.budget)
        if spec.node_metrics:
            # An alarm fires if the agent is silent: it is created after nodes and agent, and
            # deleted before them.
            watch.add_stack_dependency(nodes)

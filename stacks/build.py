"""All stacks of one cluster: references go only from a shorter life to a longer one (nodes -> cluster -> storage -> network ->
access), so that compute goes while data stays.
"""

import json
from pathlib import Path

from aws_cdk import Stack
from constructs import Construct

from settings.errors import SettingError
from stacks.access import AccessStack
from stacks.cluster import ClusterStack
from stacks.cluster_spec import ClusterSpec
from stacks.network import NetworkStack
from stacks.nodes import NodesStack
from stacks.storage import StorageStack

NAME = "add-ons.json"
"""What `paddle-aws lock add-ons` writes: the versions that it read at AWS, for stacks that should deploy the same ones."""


def locked_versions(folder: Path, kubernetes_version: str) -> dict[str, str]:
    """Add-on or AMI type: version, for one Kubernetes version; none where the lock in `folder` is missing or does not know it."""
    file = folder / NAME
    try:
        versions = json.loads(file.read_text(encoding="utf-8"))["versions"].get(kubernetes_version, {})
        return {str(name): str(version) for name, version in versions.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise SettingError(f"{file} is no lock of add-ons: `paddle-aws lock add-ons` writes one") from None


def build(scope: Construct, spec: ClusterSpec, *, locks: Path | None = None) -> None:
    """Makes the stacks that `spec` asks for, below `scope`; `locks`: the folder that `paddle-aws lock` writes to."""
    # By context: jsii hands out the synthesizer that a stack is given before it is bound, and then it takes no file.
    scope.node.set_context("@aws-cdk/core:bootstrapQualifier", spec.qualifier)
    storage = StorageStack(scope, spec, NetworkStack(scope, spec, AccessStack(scope, spec)))
    if spec.cluster.self_managed:
        # Here, not above: like the budget's, its services' modules cost everybody else's synth time.
        from stacks.k3s_cluster import K3sClusterStack, K3sNodesStack, release

        # Before anything is made: without a lock there is one sentence and no template.
        runs = release(spec)
        nodes: Stack = K3sNodesStack(scope, spec, K3sClusterStack(scope, spec, storage, runs), runs)
    else:
        locked = locked_versions(locks, spec.cluster.version) if locks else {}
        versions = {**locked, **spec.cluster.addons}
        nodes = NodesStack(scope, spec, ClusterStack(scope, spec, storage, versions), versions)
    if spec.budget:
        # Here, not above: most clusters have no budget, and its services' modules cost a tenth of a second.
        from stacks.watch import WatchStack

        watch = WatchStack(scope, spec, storage, spec.budget)
        if spec.node_metrics:
            # An alarm on an agent that is silent: made when nodes and agent are there, gone before they go.
            watch.add_stack_dependency(nodes)

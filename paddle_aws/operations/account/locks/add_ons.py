"""Versions of add-ons and node images, as EKS itself names them.

Promises: the file has a version only if EKS names exactly that one as the default for the
Kubernetes version, and a release of a node image only if Parameter Store recommends it.
"""

from typing import Any

from paddle_aws.operations.account.aws import list_all
from paddle_aws.stacks.cluster_spec import NODE_IMAGES


def defaults(eks: Any, kubernetes_version: str, names: tuple[str, ...]) -> dict[str, str]:
    """Returns by add-on the version that EKS takes for clusters of `kubernetes_version` if none is
    named.
    """
    versions: dict[str, str] = {}
    is_default = f"compatibilities[?clusterVersion == '{kubernetes_version}' && defaultVersion]"
    path = f"addons[].addonVersions[] | [?{is_default}].addonVersion"
    for name in names:
        asked = {"addonName": name, "kubernetesVersion": kubernetes_version}
        default = set(list_all(eks, "describe_addon_versions", path, **asked))
        if len(default) == 1:
            versions[name] = default.pop()
    return versions


def releases(ssm: Any, kubernetes_version: str) -> dict[str, str]:
    """Returns by AMI type the release of its image that EKS recommends for nodes of
    `kubernetes_version`.
    """
    family = f"/aws/service/eks/optimized-ami/{kubernetes_version}/amazon-linux-2023/x86_64"
    kinds = {
        f"{family}/{word}/recommended/release_version": kind for kind, word in NODE_IMAGES.items()
    }
    parameters = ssm.get_parameters(Names=list(kinds))["Parameters"]
    return {kinds[parameter["Name"]]: str(parameter["Value"]) for parameter in parameters}

"""`paddle-aws lock add-ons`: reads what EKS itself says into a dated file. `write` writes any lock
file.

Promises: a version is in the file only if EKS names it, and no other, as the default for that
Kubernetes version; a release of a node image only if Parameter Store recommends it. A file always
begins with `read` (an ISO date, UTC) and `source`, and is written whole or stays as it was.
"""

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from paddle_aws.operations.account.aws import client, every
from paddle_aws.operations.errors import Failed, cli_errors
from paddle_aws.operations.options import CLUSTER, Config, Out
from paddle_aws.operations.screen import say
from paddle_aws.stacks.cluster_spec import ADDONS, KUBERNETES_VERSIONS, NODE_IMAGES, load_cluster

ADD_ONS = Path("locks/add-ons.json")
ADD_ONS_SOURCE = (
    "EKS, DescribeAddonVersions: default versions; Parameter Store: recommended releases of node "
    "images"
)


def write(path: Path, source: str, content: Mapping[str, Any]) -> None:
    """Writes `content` after the date and the source."""
    document = {"read": datetime.now(UTC).strftime("%Y-%m-%d"), "source": source, **content}
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(json.dumps(document, indent=1) + "\n")
    part.replace(path)


def lock(config: Config = CLUSTER, out: Out = ADD_ONS) -> None:
    """Read the versions of EKS's add-ons and node images in a cluster's region, so that every
    deploy takes the same ones.

    Without the file, add-ons and images stay as they were made. Versions in cluster.addons go
    before those of the file. Needs AWS credentials that allow eks:DescribeAddonVersions and
    ssm:GetParameters.

    Example: paddle-aws lock add-ons && cdk diff
    """
    with cli_errors():
        spec = load_cluster(config)
        region, own = spec.region, {spec.cluster.version} if not spec.cluster.self_managed else {}
        eks, ssm = client("eks", region), client("ssm", region)
        versions = sorted({*KUBERNETES_VERSIONS, *own})
        read = {version: defaults(eks, version, ADDONS) for version in versions}
        if not any(read.values()):
            raise Failed(
                f"EKS in {region} names no default version of any add-on: {out} stays as it is"
            )
        read = {version: {**found, **releases(ssm, version)} for version, found in read.items()}
        write(out, ADD_ONS_SOURCE, {"region": region, "versions": read})
        unknown = [
            f"{name} for {key}"
            for key, found in read.items()
            for name in (*ADDONS, *NODE_IMAGES)
            if name not in found
        ]
        count = sum(map(len, read.values()))
        say(
            f"{count} versions are in {out}"
            + (f"; EKS names no default of {', '.join(sorted(unknown))}" if unknown else "")
        )


def defaults(eks: Any, kubernetes_version: str, names: tuple[str, ...]) -> dict[str, str]:
    """Returns by add-on the version that EKS takes for clusters of `kubernetes_version` if none is
    named.
    """
    found: dict[str, str] = {}
    is_default = f"compatibilities[?clusterVersion == '{kubernetes_version}' && defaultVersion]"
    path = f"addons[].addonVersions[] | [?{is_default}].addonVersion"
    for name in names:
        asked = {"addonName": name, "kubernetesVersion": kubernetes_version}
        default = set(every(eks, "describe_addon_versions", path, **asked))
        if len(default) == 1:
            found[name] = default.pop()
    return found


def releases(ssm: Any, kubernetes_version: str) -> dict[str, str]:
    """Returns by AMI type the release of its image that EKS recommends for nodes of
    `kubernetes_version`.
    """
    family = f"/aws/service/eks/optimized-ami/{kubernetes_version}/amazon-linux-2023/x86_64"
    kinds = {
        f"{family}/{word}/recommended/release_version": kind for kind, word in NODE_IMAGES.items()
    }
    found = ssm.get_parameters(Names=list(kinds))["Parameters"]
    return {kinds[one["Name"]]: str(one["Value"]) for one in found}

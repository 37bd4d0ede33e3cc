"""`paddle-aws lock add-ons`: which version of each add-on EKS takes by default, read from EKS into a dated file.

Promises: a version is in the file only if EKS called it, and no other, the default for that Kubernetes version; stacks
synthesized from then on deploy these versions, until the command is run again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from operations.errors import Failed, explained
from operations.screen import say

LOCK = Path("locks/add-ons.json")
SOURCE = "EKS, DescribeAddonVersions: the default version for each Kubernetes version"


def add_ons(
    config: Annotated[Path, typer.Argument(metavar="CLUSTER", help="The cluster's settings.")] = Path("cluster.yaml"),
    out: Annotated[Path, typer.Option(help="The file to write.")] = LOCK,
) -> None:
    """Read the default versions of EKS's add-ons in a cluster's region, so that every deploy takes the same ones.

    Needs AWS credentials that allow eks:DescribeAddonVersions. Versions in cluster.addons go before those of the file.

    Example: paddle-aws lock add-ons && cdk diff
    """
    with explained():
        from operations import lock_file
        from operations.aws import client
        from stacks.cluster_spec import ADDONS, KUBERNETES_VERSIONS, ClusterSpec

        region = ClusterSpec.load(config).region
        eks = client("eks", region)
        read = {version: defaults(eks, version, ADDONS) for version in KUBERNETES_VERSIONS}
        if not any(read.values()):
            raise Failed(f"EKS in {region} names no default version of any add-on: {out} stays as it is")
        lock_file.write(out, SOURCE, {"region": region, "versions": read})
        unknown = sorted(f"{name} for {version}" for version, found in read.items() for name in ADDONS if name not in found)
        count = sum(map(len, read.values()))
        say(f"{count} versions are in {out}" + (f"; EKS names no default of {', '.join(unknown)}" if unknown else ""))


def defaults(eks: Any, kubernetes_version: str, names: tuple[str, ...]) -> dict[str, str]:
    """Add-on: the version that EKS takes for clusters of `kubernetes_version` where none is named."""
    found: dict[str, str] = {}
    for name in names:
        pages = eks.get_paginator("describe_addon_versions").paginate(addonName=name, kubernetesVersion=kubernetes_version)
        versions = [version for page in pages for addon in page["addons"] for version in addon["addonVersions"]]
        default = {version["addonVersion"] for version in versions if _is_default(version, kubernetes_version)}
        if len(default) == 1:
            found[name] = default.pop()
    return found


def _is_default(version: Any, kubernetes_version: str) -> bool:
    return any(
        match.get("clusterVersion") == kubernetes_version and match.get("defaultVersion") for match in version["compatibilities"]
    )

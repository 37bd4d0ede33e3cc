"""EKS's own version rules, which MiniStack lacks: upgrades go one minor version at a time; nodes
have the cluster's version; a node group's version changes alone.
"""

from __future__ import annotations

from typing import Any

from ministack.services import eks
from resource_types import Handler, Properties, wrap_handlers

ALONE = {"Version", "ReleaseVersion"}


def apply() -> None:
    wrap_handlers("AWS::EKS::Cluster", update=_cluster)
    wrap_handlers("AWS::EKS::Nodegroup", update=_group)


def _cluster(
    update: Handler, physical_id: str, old: Properties, new: Properties, *rest: Any
) -> Any:
    current, target = str(eks._clusters[new["Name"]]["version"]), str(new["Version"])
    if int(target.split(".")[1]) - int(current.split(".")[1]) not in (0, 1):
        raise ValueError(
            f"Unsupported Kubernetes minor version update from {current} to {target} "
            "(Service: Eks, Status Code: 400)"
        )
    return update(physical_id, old, new, *rest)


def _group(update: Handler, physical_id: str, old: Properties, new: Properties, *rest: Any) -> Any:
    changed = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
    if changed & ALONE and changed - ALONE:
        raise ValueError(
            "Version and ReleaseVersion updates cannot be combined with other updates (Status "
            "Code: 400)"
        )
    has = eks._clusters[new["ClusterName"]]["version"]
    if "Version" in changed and new["Version"] != has:
        raise ValueError(
            f"Requested Nodegroup version {new['Version']} is not the cluster's {has} (Service: "
            "Eks, Status Code: 400)"
        )
    return update(physical_id, old, new, *rest)

"""What of a deployed cluster is behind: its control plane, nodes and add-ons, against the settings and what AWS has.

Promises: reads only. What can move only at the price of something else is named with the one way to move it (docs/aws.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from operations.account_checks import Check, Found
from operations.aws import every
from operations.lock import defaults, releases
from stacks.cluster_spec import ClusterSpec

UPGRADE = "run `paddle-aws lock add-ons` and `cdk deploy --all`"


def refused_step(spec: ClusterSpec, outputs: Mapping[str, str]) -> str | None:
    """Why the control plane that made `outputs` cannot take the settings' version; None if it can. SettingError: no lock."""
    has = outputs.get("KubernetesVersion")
    setting, wanted = "cluster.version", spec.cluster.version
    if spec.cluster.self_managed and has:
        from stacks.distribution_lock import DistributionLock

        place = spec.cluster.distribution
        setting, wanted = place.lock, DistributionLock.load(place.lock_path).kubernetes
    return _refused(setting, has, wanted) if has else None


def _refused(setting: str, has: str, wanted: str) -> str | None:
    (major, old), (_, new) = _numbers(has), _numbers(wanted)
    if new in (old, old + 1):
        return None
    says = f"{setting} is {wanted} and the control plane runs Kubernetes {has}"
    if new < old:
        return f"{says}: it takes no older version, set {has}"
    return f"{says}: it takes one minor version at a time, deploy {major}.{old + 1} first"


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


class VersionChecks:
    """The checks of one EKS cluster."""

    def __init__(self, spec: ClusterSpec, client: Callable[[str], Any]) -> None:
        self.spec, self._client, self._eks = spec, client, client("eks")
        self._name = {"clusterName": spec.cluster_name}

    def all(self) -> list[Check]:
        """In the order in which an upgrade goes."""
        return [("version", self.version), ("add-on versions", self.addon_versions), ("node images", self.node_images)]

    @cached_property
    def cluster(self) -> dict[str, Any]:
        """As EKS describes it."""
        found: dict[str, Any] = self._eks.describe_cluster(name=self.spec.cluster_name)["cluster"]
        return found

    @cached_property
    def addons(self) -> dict[str, dict[str, Any]]:
        """By name, as EKS describes them."""
        names = every(self._eks, "list_addons", "addons[]", **self._name)
        return {name: self._eks.describe_addon(**self._name, addonName=name)["addon"] for name in names}

    @cached_property
    def node_groups(self) -> dict[str, dict[str, Any]]:
        """The managed ones by name, as EKS describes them."""
        names = every(self._eks, "list_nodegroups", "nodegroups[]", **self._name)
        return {name: self._eks.describe_nodegroup(**self._name, nodegroupName=name)["nodegroup"] for name in names}

    def version(self) -> Found:
        has, wanted = str(self.cluster["version"]), self.spec.cluster.version
        if has == wanted:
            yield "ok", f"the control plane runs Kubernetes {has}, as cluster.version says"
        elif self.spec.cluster.existing:
            yield "warning", f"the control plane runs Kubernetes {has} and cluster.version is {wanted}: set {has}"
        elif fault := _refused("cluster.version", has, wanted):
            yield "problem", fault
        else:
            yield "warning", f"the control plane runs Kubernetes {has} and cluster.version is {wanted}: {UPGRADE}"
        for name, group in self.node_groups.items():
            if group["version"] != has:
                yield "warning", f"{name} runs Kubernetes {group['version']} and the control plane {has}: {UPGRADE}"

    def addon_versions(self) -> Found:
        newest = defaults(self._eks, str(self.cluster["version"]), tuple(self.addons))
        for name, addon in self.addons.items():
            pinned = name in self.spec.cluster.addons
            advice = "change it in cluster.addons and run `cdk deploy --all`" if pinned else UPGRADE
            yield from self._behind(name, addon["addonVersion"], newest.get(name), advice)

    def node_images(self) -> Found:
        for name, group in self.node_groups.items():
            newest = releases(self._client("ssm"), group["version"]).get(group["amiType"])
            yield from self._behind(name, group["releaseVersion"], newest, UPGRADE)

    def _behind(self, name: str, has: str, newest: str | None, advice: str) -> Found:
        version = self.cluster["version"]
        if newest is None or not _numbers(has):
            yield "warning", f"not checked: EKS names no version of {name} for Kubernetes {version} to compare {has or '?'} with"
        elif _numbers(has) < _numbers(newest):
            yield "warning", f"{name} is {has}, EKS's default for Kubernetes {version} is {newest}: {advice}"
        else:
            yield "ok", f"{name} is {has}"

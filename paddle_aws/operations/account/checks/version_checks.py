"""Finds outdated parts of a deployed EKS cluster: compares control plane, nodes and add-ons with
the settings and with AWS.

Promises: reads only; every outdated part is upgraded in the one way of docs/aws.md, which each line
names.
"""

import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from paddle_aws.operations.account.aws import list_all
from paddle_aws.operations.account.check import Check, CheckResults, ok, problem, warning
from paddle_aws.operations.account.locks.add_ons import defaults, releases
from paddle_aws.stacks.cluster_spec import ADDONS, DAEMON_ADDONS, ClusterSpec
from paddle_aws.stacks.distribution_lock import DistributionLock

UPGRADE = "run `paddle-aws lock add-ons` and `cdk deploy --all`"


def refused_step(spec: ClusterSpec, outputs: Mapping[str, str]) -> str | None:
    """Returns why the control plane of `outputs` cannot take the settings' version; None if it can.
    SettingError: no lock.
    """
    has, setting, target = outputs.get("KubernetesVersion"), "cluster.version", spec.cluster.version
    if has and spec.cluster.self_managed:
        setting = spec.cluster.distribution.lock
        target = DistributionLock.load(spec.cluster.distribution.lock_path).kubernetes
    (major, old), (_, new) = _numbers(has or target), _numbers(target)
    if new in (old, old + 1):
        return None
    takes = f"one minor version at a time, deploy {major}.{old + 1} first"
    takes = f"no older version, set {has}" if new < old else takes
    return f"{setting} is {target} and the control plane runs Kubernetes {has}: it takes {takes}"


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


class VersionChecks:
    """The checks of one cluster, and its parts as EKS describes them."""

    def __init__(self, spec: ClusterSpec, client: Callable[[str], Any]) -> None:
        self.spec, self._client, self._eks = spec, client, client("eks")

    def list_checks(self) -> list[Check]:
        """Returns the checks in the order of an upgrade."""
        return [
            ("version", self.version),
            ("add-on versions", self.addon_versions),
            ("node images", self.node_images),
        ]

    @cached_property
    def cluster(self) -> dict[str, Any]:
        return dict(self._eks.describe_cluster(name=self.spec.cluster_name)["cluster"])

    @cached_property
    def addons(self) -> dict[str, dict[str, Any]]:
        return self._parts("addon")

    @cached_property
    def node_groups(self) -> dict[str, dict[str, Any]]:
        return self._parts("nodegroup")

    def _parts(self, kind: str) -> dict[str, dict[str, Any]]:
        where, describe = {"clusterName": self.spec.cluster_name}, f"describe_{kind}"
        names = list_all(self._eks, f"list_{kind}s", f"{kind}s[]", **where)
        ask = getattr(self._eks, describe)
        return {name: ask(**where, **{f"{kind}Name": name})[kind] for name in names}

    def version(self) -> CheckResults:
        has, target = str(self.cluster["version"]), self.spec.cluster.version
        differ = f"the control plane runs Kubernetes {has} and cluster.version is {target}"
        if has == target:
            yield ok(f"the control plane runs Kubernetes {has}, as cluster.version says")
        elif self.spec.cluster.existing:
            yield warning(f"{differ}: set {has}")
        else:
            fault = refused_step(self.spec, {"KubernetesVersion": has})
            yield problem(fault) if fault else warning(f"{differ}: {UPGRADE}")
        for name, group in self.node_groups.items():
            if group["version"] != has:
                yield warning(
                    f"{name} runs Kubernetes {group['version']} and the control plane {has}: "
                    f"{UPGRADE}"
                )

    def addon_versions(self) -> CheckResults:
        others = DAEMON_ADDONS if self.spec.cluster.existing else ()
        ours = [name for name in ADDONS if name in self.addons and name not in others]
        newest = defaults(self._eks, str(self.cluster["version"]), tuple(ours))
        for name in ours:
            pinned = name in self.spec.cluster.addons
            advice = "change cluster.addons and run `cdk deploy --all`" if pinned else UPGRADE
            has = self.addons[name]["addonVersion"]
            yield from _compare_versions(name, has, newest.get(name), advice)

    def node_images(self) -> CheckResults:
        for name, group in self.node_groups.items():
            newest = releases(self._client("ssm"), group["version"]).get(group["amiType"])
            yield from _compare_versions(name, group["releaseVersion"], newest, UPGRADE)


def _compare_versions(name: str, has: str, newest: str | None, advice: str) -> CheckResults:
    if newest is None or not has:
        yield warning(
            f"not checked: AWS names no version of {name} to compare {has or 'an unknown one'} with"
        )
    elif _numbers(has) < _numbers(newest):
        yield warning(
            f"{name} is {has}, AWS's default for this Kubernetes version is {newest}: {advice}"
        )
    else:
        yield ok(f"{name} is {has}")

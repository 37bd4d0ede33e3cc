"""cluster.yaml, checked: the one description of a cluster that everything else is built from.

Imports no aws_cdk, so that tools can read it.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import re
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from importlib import resources
from ipaddress import IPv4Address
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, ValidationInfo, field_validator

from constructs_lib.ec2.node_rules import XEN_TYPE
from constructs_lib.rules import EMAIL, EMAIL_LENGTH, EMAILS, USD, LogDays
from paddle_aws.stacks.conditions import ADMINISTRATOR, EKS, FIXED
from paddle_aws.stacks.control_plane_settings import (
    ADDONS,
    DAEMON_ADDONS,
    KUBERNETES_VERSIONS,
    NODE_IMAGES,
    TUNNEL_TYPE,
    ControlPlane,
)
from paddle_aws.stacks.network_settings import (
    Network,
    Proxy,
    Zone,
    check_certificates,
    ip_network,
    require_unique,
)
from paddle_aws.stacks.node_settings import NodeGroup, most_vcpus
from paddle_aws.stacks.project import read_context
from paddle_aws.stacks.storage_settings import Bucket, FileSystem, Images, Key
from paddle_settings import layers
from paddle_settings.errors import SettingError
from paddle_settings.model import Fault, Refused, Settings, check, parse
from paddle_settings.shared_names import IMAGE, NAMESPACE

# Tools import this module only, none of those below it.
__all__ = [
    "ADDONS",
    "DAEMON_ADDONS",
    "KUBERNETES_VERSIONS",
    "NODE_IMAGES",
    "PLATFORM_OUTPUT",
    "TUNNEL_TYPE",
    "ClusterSpec",
    "load_cluster",
    "most_vcpus",
]

GroupName = Annotated[
    str, Field(pattern=r"^[a-z]([a-z0-9-]{0,28}[a-z0-9])?$", examples=["workers"])
]

ADDRESSES_PER_NODE = 32
"""VPC addresses to reserve per node: its own, those of its daemons and its jobs' pods, and those
that the VPC CNI holds ready.
"""

LONGEST_BUNDLE = 4000
"""Characters of `certificates`, which are an output of a stack and part of machines' user data."""
ENDPOINTS: dict[str, dict[str, str]] = json.loads(
    (resources.files("constructs_lib") / "network/endpoint_services.json").read_text("utf-8")
)
"""The AWS services with an interface endpoint, by kind of cluster."""

USED_IMAGE = "used-"
"""Begins the tag of an image that a submitted job names, which never expires."""
POLICY_PATH = "/deployment/"
"""IAM path of the policies that an administrator makes. No policy that a template makes has this
path.
"""

PARTS = ("access", "network", "storage", "cluster", "nodes", "watch")
"""The last words of the stacks' names."""

PLATFORM_OUTPUT = "TrainingPlatform"
"""The output of each stack that names its cluster, so that commands find stacks of any name."""

OUR_TAGS = ("project", "cluster", "owner", "KubernetesCluster", "Name")

PART_OF_AUTO = (
    "vpc-cni",
    "kube-proxy",
    "eks-pod-identity-agent",
    "coredns",
    "eks-node-monitoring-agent",
)
"""Add-ons that are built into EKS Auto Mode's machines."""

DnsLabel = Annotated[
    str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", examples=["paddle"])
]
UserArn = Annotated[
    str,
    Field(
        pattern=r"^arn:aws[a-z-]*:iam::\d{12}:user/[\w+=,.@/-]+$",
        examples=["arn:aws:iam::123456789012:user/ada"],
    ),
]
Email = Annotated[
    str,
    Field(max_length=EMAIL_LENGTH, pattern=EMAIL, examples=["somebody@example.com"]),
]


ImageName = Annotated[
    str,
    Field(
        pattern=f"^{IMAGE}$",
        examples=["123456789012.dkr.ecr.us-west-2.amazonaws.com/paddle:1"],
    ),
]
"""What a node pulls: [registry/]repository[:tag][@digest]."""


class Jobs(Settings):
    """Where jobs run, as their manifests say."""

    namespace: DnsLabel = NAMESPACE
    """The jobs' Kubernetes namespace, as in job.yaml."""
    queue: DnsLabel | None = None
    """Name of the Kueue queue that `paddle-aws setup` makes (docs/jobs.md)."""
    images: Annotated[list[ImageName], require_unique("image"), FIXED] = Field(
        default=[], max_length=20
    )
    """Images that every node pulls before its first job and keeps, once you have run `paddle-aws
    setup` (docs/start-up.md).
    """

    def _faults(self) -> Iterator[Fault]:
        if self.namespace.startswith("kube-"):
            allowed = "kube-* belongs to the cluster; choose one for training jobs, such as paddle"
            yield Refused("namespace", self.namespace, allowed)


class Logs(Settings):
    """Container logs in CloudWatch, kept beyond the life of their pods."""

    days: Annotated[LogDays, EKS] = 0
    """Retention of container logs in CloudWatch; 0: none are sent."""


class Protection(Settings):
    """What a deploy may not replace or remove: all that holds data, and what other stacks use."""

    after_deploy: bool = True
    """Each deploy protects the stacks that it makes or changes from later deploys (docs/aws.md).
    false: only `paddle-aws protect` does.
    """
    lifted_by: Annotated[list[UserArn], require_unique("user"), ADMINISTRATOR] = Field(
        default=[], max_length=10
    )
    """ARNs of the operators' IAM users who may lift it, with their users' credentials, not with the
    team's role. Empty: every operator may.
    """


class Budget(Settings):
    """A monthly budget, with alarms by e-mail and a dashboard. On EKS an agent on the nodes counts
    them.
    """

    monthly_usd: int | None = Field(default=None, ge=USD.least)
    """US dollars a month for all that has this cluster's tag; `paddle-aws doctor --fix` activates
    the tag, a day after the first deploy. Unset: only alarms and a dashboard.
    """
    emails: Annotated[list[Email], require_unique("address")] = Field(
        min_length=EMAILS.least, max_length=EMAILS.most
    )
    """E-mail addresses that get the alarms, and a message at 80 % and 100 % of the budget and when
    the forecast exceeds it.
    """


class ClusterSpec(Settings):
    """cluster.yaml."""

    model_config = ConfigDict(json_schema_extra={"$id": "urn:paddle-aws:schema:cluster"})

    name: str = Field(default="paddle", max_length=40)
    """Name of the cluster and prefix of its stacks: lower-case letters, digits, hyphens; a letter
    first.
    """
    region: str = Field(
        default="us-west-2", pattern=r"^[a-z]{2,3}(-[a-z]+)+-\d$", examples=["us-west-2"]
    )
    """AWS region."""
    owner: str = Field(
        default="paddle",
        min_length=1,
        max_length=64,
        pattern=r"^[\w .:/=+@-]+$",
        examples=["vision team"],
    )
    """Value of the `owner` tag."""
    tags: dict[str, str] = Field(default={}, max_length=40)
    """More tags."""
    deployer: Literal["administrator", "restricted"] = "administrator"
    """administrator: a deployment may do everything. restricted: only what this cluster needs
    (docs/deployment-policy.md). After a change, run `paddle-aws bootstrap`.
    """
    account: str | None = Field(default=None, pattern=r"^\d{12}$", examples=["123456789012"])
    """The AWS account, in quotes: cdk and the commands refuse credentials of any other account.
    Unset: the account of your credentials.
    """
    bootstrap_qualifier: Annotated[str | None, ADMINISTRATOR] = Field(
        default=None, pattern=r"^[a-z0-9]{1,10}$", examples=["corp"]
    )
    """Qualifier of your organization's bootstrap, if that deploys the cluster. Unset: `paddle-aws
    bootstrap` makes a bootstrap for this cluster.
    """
    extends: str | None = Field(default=None, examples=["org.yaml"])
    """A settings file that this one extends, by its path from here: groups are merged, any other
    value is replaced (docs/library.md).
    """
    locked: list[str] = Field(default=[], examples=[["retain", "nodes.*.ssh"]])
    """Settings that a file may not change when it extends this one."""
    retain: bool
    """true keeps file system, bucket, key and image repository on a destroy; false deletes them
    with everything in them.
    """
    protect: Protection = Protection()
    """What a deploy may not replace or remove."""
    network: Network = Network()
    """The VPC."""
    proxy: Annotated[Proxy | None, FIXED] = None
    """The proxy through which the cluster reaches the internet; unset: none."""
    certificates: Annotated[str | None, AfterValidator(check_certificates), FIXED] = Field(
        default=None, max_length=LONGEST_BUNDLE, examples=["-----BEGIN CERTIFICATE-----..."]
    )
    """Certificates, in PEM, that nodes, data and environment Jobs trust beside the public ones."""
    zone: Zone = Zone()
    """The cluster's names."""
    key: Key = Key()
    """The KMS key."""
    bucket: Bucket = Bucket()
    """The bucket."""
    file_system: FileSystem = FileSystem()
    """The shared file system."""
    images: Images = Images()
    """The image repository."""
    cluster: ControlPlane = ControlPlane()
    """The Kubernetes control plane."""
    compute: Literal["fixed", "auto"] = "fixed"
    """fixed: as many nodes as you set. auto: EKS Auto Mode starts nodes for pods that wait
    (docs/aws.md compares the two).
    """
    nodes: dict[GroupName, NodeGroup] = Field(
        default={"workers": NodeGroup()}, min_length=1, validate_default=True
    )
    """Node groups by name; unset: one, `workers`."""
    jobs: Jobs = Jobs()
    """Where jobs run."""
    logs: Logs = Logs()
    """Container logs."""
    budget: Budget | None = None
    """A monthly budget, alarms and a dashboard; unset: none."""

    @classmethod
    def load(cls, path: Path) -> Self:
        """Returns the settings in the file at `path`. Raises SettingError, one sentence per fault,
        if they are unusable.
        """
        layered = layers.load(path)
        layered.check_locks(cls, "cluster.yaml")
        with layered.naming_files():
            return parse(cls, layered.merged, layered.handed_down)

    @classmethod
    def parse(cls, settings: Mapping[str, Any]) -> Self:
        """Checks settings from a mapping. Raises SettingError, one sentence per fault."""
        return parse(cls, settings)

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        # The narrowest of all names derived from it: CloudFormation's stacks (no underscore), ECR's
        # repository (lower case, no two hyphens in a row).
        if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", value):
            allowed = (
                "allowed are lower-case letters, digits and single hyphens, a letter first, no "
                "hyphen last"
            )
        elif f"{value}-".startswith("cdk-") or value == "hnb659fds":
            allowed = "names that begin with cdk- and hnb659fds belong to the CDK's bootstrap"
        elif value.startswith(("aws", "amazon", "amzn", "sg-")):
            allowed = "AWS keeps names that begin with aws, amazon, amzn and sg- to itself"
        # The stacks of paddle-nodes would generate names that those of paddle, which pick them by
        # prefix, take for theirs. A name like paddle-cluster is kept apart (deployment_policy.py).
        elif value.endswith(taken := tuple(f"-{part}" for part in PARTS if part != "cluster")):
            allowed = (
                f"names that end with {', '.join(taken)} are those of another cluster's stacks"
            )
        else:
            return value
        raise Refused("", value, allowed)

    @field_validator("region")
    @classmethod
    def _check_region(cls, value: str) -> str:
        partitions = json.loads(
            (resources.files("botocore") / "data" / "partitions.json").read_text()
        )["partitions"]
        if not any(value in partition["regions"] for partition in partitions):
            allowed = "as far as this boto3 knows: allowed is one such as us-west-2"
            raise Refused("", value, f"AWS has no such region, {allowed}")
        return value

    @field_validator("nodes")
    @classmethod
    def _groups(cls, groups: dict[str, NodeGroup], info: ValidationInfo) -> dict[str, NodeGroup]:
        auto = info.data.get("compute") == "auto"
        for name, group in groups.items():
            for fault in check(partial(_group_faults, name, group, auto)):
                raise fault
        return groups

    @field_validator("tags")
    @classmethod
    def _tags(cls, tags: dict[str, str]) -> dict[str, str]:
        # IAM treats keys that differ only in case as the same key.
        reserved = {key.lower() for key in OUR_TAGS}
        for key, value in tags.items():
            if key.lower() in reserved or key.lower().startswith("aws:"):
                ours = f"{', '.join(OUR_TAGS)} and aws: are set by the project or AWS"
                raise Refused(
                    key, value, f"taken, whatever its case: {ours}, and each key may be given once"
                )
            if not re.fullmatch(r"[\w .:/=+@-]{1,128}", key) or not re.fullmatch(
                r"[\w .:/=+@-]{0,256}", value
            ):
                allowed = (
                    "allowed are keys of 1 to 128 characters and values of up to 256: letters, "
                    "digits, spaces and _.:/=+@-"
                )
                raise Refused(key, value, allowed)
            reserved.add(key.lower())
        return tags

    def _faults(self) -> Iterator[Fault]:
        yield from self._without_effect()
        yield from check(
            self._zones,
            self._addresses,
            self._compute,
            self._self_managed,
            self._taints,
            self._lustre,
            self._region,
            self._bootstrap,
            self._protection,
        )

    def _zones(self) -> Iterator[Fault]:
        existing = self.network.existing
        field = f"network.{'existing.private_subnets' if existing else 'availability_zones'}"
        zones = self.network.zones
        if len(zones) < 2 and not self.cluster.self_managed:
            allowed = (
                "EKS wants two at least; to keep nodes in one zone, set "
                "nodes.<group>.availability_zones"
            )
            yield Refused(field, ", ".join(zones), allowed)
        for zone in zones:
            if not re.fullmatch(re.escape(region := self.region) + "[a-z]", zone):
                such = f"such as [{region}a, {region}b]"
                yield Refused(field, zone, f"allowed are zones of region {region}, {such}")
        zones_by_setting = {
            f"nodes.{name}.availability_zones": group.availability_zones
            for name, group in self.nodes.items()
        }
        if files := self.file_system.existing:
            setting = "file_system.existing.zones_without_mount_target"
            zones_by_setting[setting] = files.zones_without_mount_target
        for setting, names in zones_by_setting.items():
            for zone in names:
                if zone not in zones:
                    yield Refused(setting, zone, f"allowed are {field} ({', '.join(zones)})")

    def _addresses(self) -> Iterator[Fault]:
        vpc, self_managed = self.network.range, self.cluster.self_managed
        field = "network.existing.cidr" if self.network.existing else "network.cidr"
        taken = {field: vpc, "cluster.service_cidr": ip_network(self.cluster.services)}
        if self_managed:
            taken["cluster.pod_cidr"] = pods = ip_network(self.cluster.pod_cidr)
            machines = sum(group.max for group in self.nodes.values()) + 1
            has = 2 ** (24 - pods.prefixlen)
            if machines > has:
                allowed = (
                    f"each machine takes a /24 of it, which makes {has}, and there may be "
                    f"{machines}: take a wider range"
                )
                yield Refused("cluster.pod_cidr", str(pods), allowed)
        for (other, theirs), (setting, ours) in combinations(taken.items(), 2):
            if ours.overlaps(theirs):
                allowed = f"it overlaps {other} ({theirs}): take a range apart from it"
                yield Refused(setting, str(ours), allowed)
        has = self.network.private_addresses_per_zone
        if self_managed or has is None:
            return
        for zone in self.network.zones:
            zones_of_groups = (
                (group, group.availability_zones or self.network.zones)
                for group in self.nodes.values()
            )
            nodes = sum(
                -(-group.max // len(zones)) for group, zones in zones_of_groups if zone in zones
            )
            if nodes * ADDRESSES_PER_NODE > has:
                take = (
                    f"{nodes} nodes with their pods take {nodes * ADDRESSES_PER_NODE}: take a "
                    "wider range or fewer nodes"
                )
                yield Refused(
                    field, str(vpc), f"its private subnet in {zone} has {has} addresses, and {take}"
                )
                return

    def _self_managed(self) -> Iterator[Fault]:
        if not self.cluster.self_managed:
            return
        for name, group in self.nodes.items():
            for value in group.instance_types:
                if XEN_TYPE.fullmatch(value):
                    allowed = (
                        "it is from before Nitro: allowed with cluster.kind self-managed is one "
                        "such as m5.large"
                    )
                    yield Refused(f"nodes.{name}.instance_types", value, allowed)
        zone, zones = self.control_plane_zone, self.network.zones
        if zone not in zones:
            allowed = f"allowed is one of the network's zones ({', '.join(zones)})"
            yield Refused("cluster.availability_zone", zone, allowed)
            return
        if self.cluster.elastic_ip and not self.network.has_public_subnets:
            allowed = (
                f"there is no public subnet in {zone} (network.nat_gateways 0, or none named in "
                "network.existing)"
            )
            yield Refused("cluster.elastic_ip", True, allowed)
        if address := self.cluster.private_address:
            subnet = self.network.subnet(zone, public=self.cluster.elastic_ip)
            inside = subnet or self.network.range
            # AWS reserves the first four addresses of each subnet and the last; a NAT gateway takes
            # a public one's last but one.
            first, last = inside[4], inside[-3 if subnet and self.cluster.elastic_ip else -2]
            if not first <= IPv4Address(address) <= last:
                yield Refused("cluster.private_address", address, f"allowed are {first} to {last}")

    def _taints(self) -> Iterator[Fault]:
        # coredns and the EFS driver's controller tolerate no taint of ours: if all nodes are
        # tainted, they stay pending, and the deploy fails after twenty minutes. An existing cluster
        # may have other nodes for them; a self-managed one runs them beside its control plane.
        if self.cluster.existing or self.cluster.self_managed:
            return
        groups = self.nodes.values()
        if not any(not group.repels and (self.auto or group.desired) for group in groups):
            unpaid = f"to pay for no node, destroy {self.name}-nodes"
            size = "" if self.auto else f", and desired 1 or more ({unpaid})"
            allowed = (
                f"allowed is one group at least with neither gpu nor taints{size}: else add-ons "
                "and data jobs find no node"
            )
            yield Refused("nodes", ", ".join(self.nodes), allowed)

    def _lustre(self) -> Iterator[Fault]:
        if not self.file_system.lustre:
            return
        efs = "set file_system.kind to efs"
        if self.cluster.self_managed:
            allowed = f"allowed with cluster.kind eks only, which has FSx's driver: {efs}"
            yield Refused("file_system.kind", "lustre", allowed)
        if self.auto:
            allowed = (
                "allowed with compute fixed only: nobody sets up EKS Auto Mode's machines, so its "
                f"root would stay closed to jobs: {efs}"
            )
            yield Refused("file_system.kind", "lustre", allowed)
        if self.file_system.bucket_folder and self.bucket.existing_name:
            allowed = (
                "allowed with a bucket of the cluster's own only: FSx would change the "
                f"notifications of {self.bucket.existing_name}"
            )
            yield Refused("file_system.bucket_folder", self.file_system.bucket_folder, allowed)
        if (zone := self.file_system_zone) not in self.network.zones:
            allowed = f"allowed is one of the network's zones ({', '.join(self.network.zones)})"
            yield Refused("file_system.availability_zone", zone, allowed)

    def _compute(self) -> Iterator[Fault]:
        if self.auto and (self.cluster.self_managed or self.cluster.existing):
            yield Refused("compute", "auto", "allowed with a new cluster of cluster.kind eks only")
        if self.auto and self.deployer == "restricted":
            allowed = (
                "with deployer administrator only: no boundary holds what EKS Auto Mode may do"
            )
            yield Refused("compute", "auto", f"allowed {allowed}")
        if self.auto and (ours := sorted(self.cluster.addons.keys() & set(PART_OF_AUTO))):
            field, version = f"cluster.addons.{ours[0]}", self.cluster.addons[ours[0]]
            yield Refused(field, version, "EKS Auto Mode has it built in: leave it out")

    def _region(self) -> Iterator[Fault]:
        arn = self.key.existing_arn
        if arn and arn.split(":")[3] != self.region:
            yield Refused("key.existing_arn", arn, f"allowed is a key in region {self.region}")

    def _protection(self) -> Iterator[Fault]:
        for index, user in enumerate(self.protect.lifted_by):
            if self.account and user.split(":")[4] != self.account:
                allowed = f"users of account {self.account} (`account`) are allowed"
                yield Refused(f"protect.lifted_by[{index}]", user, allowed)

    def _bootstrap(self) -> Iterator[Fault]:
        if self.extends:
            yield Refused("extends", self.extends, "allowed in a file that ClusterSpec.load reads")

    @property
    def qualifier(self) -> str:
        """Distinguishes this cluster's bootstrap from others. The CDK accepts at most ten letters
        and digits.
        """
        if self.bootstrap_qualifier:
            return self.bootstrap_qualifier
        if re.fullmatch("[a-z0-9]{1,10}", self.name):
            return self.name
        return self.name.replace("-", "")[:4] + hashlib.sha256(self.name.encode()).hexdigest()[:6]

    @property
    def stack_names(self) -> list[str]:
        """Names of all stacks that the cluster may have. The prefix `paddle-` would also match
        those of cluster paddle-two.
        """
        return [f"{self.name}-{part}" for part in PARTS]

    @property
    def deployment_policies(self) -> str | None:
        """Name prefix of the policies that an administrator makes for a restricted deployer; None
        for another deployer.
        """
        if self.deployer != "restricted":
            return None
        return f"{POLICY_PATH}{self.policy_prefix}".lstrip("/")

    @property
    def policy_prefix(self) -> str:
        """How the names of these policies begin. IAM has one set of names for all regions, and two
        clusters of one name in two regions need different rights.
        """
        return f"{self.name}-{self.region}"

    @property
    def cluster_name(self) -> str:
        """The cluster's name in EKS."""
        return self.cluster.existing.name if self.cluster.existing else self.name

    @property
    def all_tags(self) -> dict[str, str]:
        """The tags of every resource."""
        return {**self.tags, "project": "paddle-aws", "cluster": self.name, "owner": self.owner}

    @property
    def auto(self) -> bool:
        """Whether EKS Auto Mode makes the nodes."""
        return self.compute == "auto"

    @property
    def without_proxy(self) -> list[str]:
        """Hosts, domains and ranges that the cluster reaches without its proxy."""
        aws = "amazonaws.com.cn" if self.region.startswith("cn-") else "amazonaws.com"
        services = ENDPOINTS[self.cluster.kind] if self.network.interface_endpoints else {}
        # Endpoint ecr.api has the name api.ecr.<region>.
        names = [".".join(reversed(service.split("."))) for service in services.values()]
        names += [] if self.network.existing else ["s3"]
        return [
            *("localhost", "127.0.0.1", "169.254.169.254", "169.254.170.23", ".internal"),
            *(".svc", ".cluster.local", f".eks.{aws}", (self.zone.existing or self.zone).name),
            *map(str, (self.network.range, self.cluster.services)),
            *([self.cluster.pod_cidr] if self.cluster.self_managed else []),
            *(f"{name}.{self.region}.{aws}" for name in names),
            *(self.proxy.no if self.proxy else []),
        ]

    @property
    def proxy_variables(self) -> dict[str, str]:
        """The variables by which a machine's services find the proxy; empty: there is none."""
        if self.proxy is None:
            return {}
        no = ",".join(self.without_proxy)
        values = {"HTTP_PROXY": self.proxy.http, "HTTPS_PROXY": self.proxy.https, "NO_PROXY": no}
        given = {name: value for name, value in values.items() if value}
        # curl and dnf read small letters, the AWS CLI and Go both.
        return given | {name.lower(): value for name, value in given.items()}

    @property
    def node_metrics(self) -> bool:
        """Whether CloudWatch's agent runs on the nodes: for container logs, and for the alarms that
        come with a budget.
        """
        return bool(self.logs.days or self.budget) and not self.cluster.self_managed

    @property
    def metrics_server(self) -> bool:
        """Whether `kubectl top` gets EKS's add-on: not in China, where EKS has none, and not in
        somebody else's cluster, unless its version is named. k3s brings one of its own.
        """
        usual = not (self.cluster.existing or self.region.startswith("cn-"))
        return "metrics-server" in self.cluster.addons or usual

    @property
    def backup(self) -> bool:
        """Whether the file system is backed up."""
        if self.file_system.backup is None:
            return self.retain and self.file_system.bucket_folder is None
        return self.file_system.backup

    @property
    def file_system_zone(self) -> str:
        """Availability zone of a file system of kind lustre."""
        return self.file_system.availability_zone or self.network.zones[0]

    @property
    def control_plane_zone(self) -> str:
        """Availability zone of a self-managed control plane and its volume."""
        return self.cluster.availability_zone or self.network.zones[0]

    @property
    def control_plane_address(self) -> str | None:
        """The fixed private address of a self-managed control plane; None: AWS picks one (in
        existing subnets).
        """
        if self.cluster.private_address:
            return self.cluster.private_address
        subnet = self.network.subnet(self.control_plane_zone, public=self.cluster.elastic_ip)
        return str(subnet[9]) if subnet else None

    @property
    def control_plane_group(self) -> str:
        """Name of a self-managed control plane's Auto Scaling group."""
        return f"{self.name}-cluster-control-plane"

    @property
    def tunnel_document(self) -> str:
        """Name of the Session Manager document that leads to a private endpoint."""
        return f"{self.name}-tunnel"

    def node_group_name(self, group: str) -> str:
        """Returns the name of the Auto Scaling group for a node group of a self-managed cluster."""
        return f"{self.name}-nodes-{group}"


def _group_faults(name: str, group: NodeGroup, auto: bool) -> Iterator[Refused]:
    """Yields what a node group's name and `compute` exclude."""
    if auto and name in ("default", "general-purpose", "system"):
        yield Refused(
            "",
            name,
            "EKS Auto Mode has a node pool or node class of this name: give the group another name",
        )
    if auto and None in map(most_vcpus, group.instance_types):
        yield Refused(
            f"{name}.instance_types",
            ", ".join(group.instance_types),
            "EKS Auto Mode takes no metal machines",
        )
    if name in ADDONS or name.endswith("-self-managed"):
        yield Refused(
            "",
            name,
            "names of add-ons, and those that end with -self-managed, are taken; give "
            "the group another name",
        )


SPEC_CONTEXT = "paddle-aws:cluster-spec"
"""The key in cdk.json's context of an organization's own settings, `package.module:Class`."""


def load_cluster(path: Path) -> ClusterSpec:
    """Returns the settings at `path`, as the subclass of ClusterSpec that cdk.json in the current
    folder names, if it does. That file says what cdk runs; cluster.yaml only holds values.

    Raises SettingError, one sentence per fault.
    """
    return _cluster_spec().load(path)


def _cluster_spec() -> type[ClusterSpec]:
    name = read_context(Path()).get(SPEC_CONTEXT)
    if name is None:
        return ClusterSpec
    # As where cdk runs `python app.py`; last, so that no file there takes a library's name.
    sys.path.append(str(Path.cwd()))
    try:
        module, _, attribute = str(name).partition(":")
        spec_class = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise SettingError(
            f"cdk.json: context {SPEC_CONTEXT} is {name}: {error}; allowed is package.module:Class"
        ) from None
    finally:
        sys.path.remove(str(Path.cwd()))
    if not (isinstance(spec_class, type) and issubclass(spec_class, ClusterSpec)):
        raise SettingError(
            f"cdk.json: context {SPEC_CONTEXT} is {name}: allowed is a subclass of ClusterSpec"
        )
    return spec_class

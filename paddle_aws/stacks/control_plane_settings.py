"""cluster.yaml's `cluster`: the Kubernetes control plane, EKS or self-managed, and who may talk to
it. Imports no aws_cdk.
"""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from constructs_lib.addresses import API_CLIENTS, EKS_SERVICES, K3S_PODS
from constructs_lib.ec2.node_rules import PORTS, STATE_GIB, control_plane_type, wrong_ports
from constructs_lib.rules import KUBERNETES_VERSION, LogDays
from paddle_aws.stacks.conditions import (
    EKS,
    NEW_CLUSTER,
    PRIVATE,
    REACHED,
    SELF_MANAGED,
)
from paddle_aws.stacks.network_settings import (
    SshRanges,
    require_unique,
)
from paddle_aws.stacks.project import project_folder
from paddle_aws.stacks.rule_settings import apply_rule
from paddle_settings.model import Fault, Refused, Settings


class Distribution(Settings):
    """The files that the machines run, as `paddle-aws lock distribution` wrote them."""

    lock: str = "locks/distribution.json"
    """The lock file."""
    files: str = ".cache/distribution"
    """Folder of the files, by version."""

    @property
    def lock_path(self) -> Path:
        """Path of the lock file."""
        return project_folder() / self.lock

    @property
    def files_path(self) -> Path:
        """Path of the folder with the files of all versions."""
        return project_folder() / self.files


class Snapshots(Settings):
    """Snapshots of etcd, the cluster's state, in the bucket below cluster/snapshots/."""

    schedule: str = Field(
        default="0 */6 * * *", pattern=r"^[\d*/,-]+( [\d*/,A-Za-z-]+){4}$", examples=["0 */6 * * *"]
    )
    """When to take one, as five cron fields in UTC."""
    keep: int = Field(default=28, ge=1, le=1000)
    """How many to keep."""


class ClusterSsh(Settings):
    """SSH to the control plane, and to node groups without `ssh` of their own, beside Session
    Manager.
    """

    key_pair: str | None = Field(default=None, min_length=1, max_length=255)
    """An existing EC2 key pair; unset: one is made, with its private key in Parameter Store."""
    allowed_from: SshRanges
    """CIDRs that may connect to port 22."""


KUBERNETES_VERSIONS = ("1.34", "1.35", "1.36")
"""Versions in EKS standard support at the time of this release. A newer version is accepted with a
warning: only EKS knows which versions it has by now and until when it supports them (`paddle-aws
doctor` asks it).
"""


def minor(version: str) -> int:
    """Returns the minor version of, say, "1.36": 36."""
    return int(version.partition(".")[2])


TUNNEL_TYPE = "t4g.nano"
"""EC2 type of the tunnel machine for a private endpoint."""

DAEMON_ADDONS = ("vpc-cni", "kube-proxy", "eks-pod-identity-agent")
"""Add-ons that come with a new cluster. Those of an existing cluster stay as they are."""
ADDONS = (
    *DAEMON_ADDONS,
    "coredns",
    "aws-efs-csi-driver",
    "aws-fsx-csi-driver",
    "amazon-cloudwatch-observability",
    "eks-node-monitoring-agent",
    "metrics-server",
)
"""Add-ons that this project installs, some of them only where a setting asks for them."""

NODE_IMAGES = {"AL2023_x86_64_STANDARD": "standard", "AL2023_x86_64_NVIDIA": "nvidia"}
"""AMI types of managed nodes, and what Parameter Store calls them."""

Principal = Annotated[
    str,
    Field(
        pattern=r"^arn:aws[a-z-]*:iam::\d{12}:(role|user)/[\w+=,.@/-]+$",
        examples=["arn:aws:iam::123456789012:role/Admin"],
    ),
]
_OCTET = r"(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
AddonName = Annotated[str, Field(pattern=f"^({'|'.join(ADDONS)})$", examples=list(ADDONS))]
AddonVersion = Annotated[
    str, Field(pattern=r"^v\d+\.\d+\.\d+-eksbuild\.\S+$", examples=["v1.2.3-eksbuild.1"])
]


PortRange = Annotated[str, Field(pattern=PORTS, examples=["7164-7167"])]


class ExistingCluster(Settings):
    """An existing EKS cluster in the network's VPC, with authentication mode API."""

    name: str = Field(pattern=r"^[0-9A-Za-z][0-9A-Za-z_-]{0,99}$", examples=["their-cluster"])
    """The cluster's name."""
    endpoint: str = Field(
        pattern=r"^https://\S+$",
        examples=["https://0123456789ABCDEF.gr7.us-west-2.eks.amazonaws.com"],
    )
    """API server endpoint."""
    certificate_authority: str = Field(pattern=r"^[A-Za-z0-9+/=]+$")
    """Certificate authority, base64 as in `aws eks describe-cluster`."""
    security_group: str = Field(pattern=r"^sg-[0-9a-f]{8,17}$", examples=["sg-0123456789abcdef0"])
    """Cluster security group."""


class ControlPlane(Settings):
    """The Kubernetes control plane, run by AWS or a machine of your own."""

    kind: Literal["eks", "self-managed"] = "eks"
    """eks: AWS runs the control plane. self-managed: k3s on EC2 (docs/self-managed.md)."""
    version: str = "1.36"
    """Kubernetes version; docs/aws.md explains an upgrade. Kind self-managed: the version of the
    lock file, which is also the default.
    """
    service_cidr: Annotated[str, apply_rule(partial(EKS_SERVICES, ""))] | None = None
    """Addresses of Kubernetes services: /12 to /24, outside the VPC; unset: 172.20.0.0/16
    (self-managed: 10.43.0.0/16).
    """
    public_access_from: Annotated[
        list[str], apply_rule(partial(API_CLIENTS, "")), NEW_CLUSTER, REACHED
    ] = Field(default=[])
    """CIDRs that may reach the API endpoint from the internet; empty: it is private."""
    tunnel: Annotated[bool | None, PRIVATE] = None
    """A small machine for `paddle-aws kubeconfig --tunnel`. Unset: a new cluster gets it if its
    endpoint is private.
    """
    administrators: Annotated[list[Principal], EKS] = Field(default=[])
    """IAM ARNs that administer the cluster."""
    deployers: Annotated[list[Principal], EKS] = Field(default=[])
    """IAM ARNs that submit and delete jobs."""
    readers: Annotated[list[Principal], EKS] = Field(default=[])
    """IAM ARNs that see everything but secrets."""
    log_days: Annotated[LogDays, EKS, NEW_CLUSTER] = 90
    """Retention of control-plane logs; 0: none."""
    support: Annotated[Literal["standard", "extended"], EKS, NEW_CLUSTER] = "standard"
    """What EKS does when standard support of the version ends. standard: it upgrades the control
    plane to the next version. extended: it keeps the version for twelve more months, at six times
    the price.
    """
    addons: Annotated[dict[AddonName, AddonVersion], EKS] = Field(default={})
    """Version of each add-on that you name, such as v1.2.3-eksbuild.1 (docs/aws.md)."""
    oidc_provider: Annotated[bool, EKS, NEW_CLUSTER] = False
    """An IAM OIDC provider, for tools that use IAM roles for service accounts."""
    existing: Annotated[ExistingCluster | None, EKS] = None
    """Use this cluster; docs/aws.md says what it must have."""
    distribution: Annotated[Distribution, SELF_MANAGED] = Distribution()
    """The files that the machines run."""
    pod_cidr: Annotated[str, apply_rule(partial(K3S_PODS, "")), SELF_MANAGED] = "10.42.0.0/16"
    """Addresses of pods, /12 to /22, outside the VPC and the services; each machine
    takes a /24.
    """
    instance_type: Annotated[str, apply_rule(control_plane_type), SELF_MANAGED] = "t3.medium"
    """The control plane's EC2 type (Nitro)."""
    availability_zone: Annotated[str | None, SELF_MANAGED] = None
    """The control plane's zone, which cannot change later; unset: the first zone."""
    private_address: Annotated[str | None, SELF_MANAGED] = Field(
        default=None, pattern=rf"^{_OCTET}(\.{_OCTET}){{3}}$", examples=["10.0.64.9"]
    )
    """The control plane's private address; choose it before the first deploy. Unset:
    the ninth of its subnet.
    """
    elastic_ip: Annotated[bool, SELF_MANAGED] = False
    """A public address, at which `public_access_from` reaches the endpoint; choose it
    before the first deploy.
    """
    volume_gib: Annotated[int, SELF_MANAGED] = Field(
        default=20, ge=STATE_GIB.least, le=STATE_GIB.most
    )
    """Size of the volume that holds the cluster's state, GiB."""
    volume_snapshot: Annotated[str | None, SELF_MANAGED] = Field(
        default=None, pattern=r"^snap-[0-9a-f]{8,17}$", examples=["snap-0123456789abcdef0"]
    )
    """EBS snapshot from which this volume is made."""
    snapshots: Annotated[Snapshots, SELF_MANAGED] = Snapshots()
    """Etcd's snapshots."""
    host_ports: Annotated[
        list[PortRange], require_unique("range"), apply_rule(wrong_ports), SELF_MANAGED
    ] = Field(default=[])
    """TCP ports that nodes open to each other, for jobs with host ports."""
    ssh: Annotated[ClusterSsh | None, SELF_MANAGED] = None
    """SSH, beside Session Manager; unset: none."""

    def _faults(self) -> Iterator[Fault]:
        if not re.search(KUBERNETES_VERSION.pattern, self.version):
            yield Refused("version", self.version, 'allowed is a Kubernetes version such as "1.36"')
        elif self.kind == "eks" and minor(self.version) < minor(KUBERNETES_VERSIONS[0]):
            yield Refused(
                "version",
                self.version,
                f"allowed is {KUBERNETES_VERSIONS[0]} or newer (EKS standard support)",
            )
        everybody = [*self.administrators, *self.deployers, *self.readers]
        for arn in everybody:
            if everybody.count(arn) > 1:
                allowed = (
                    "EKS takes one access entry for each: name it once among "
                    "{here}administrators, deployers and readers"
                )
                yield Refused("administrators", arn, allowed)

    @property
    def self_managed(self) -> bool:
        """Whether the control plane runs on a machine of your own."""
        return self.kind == "self-managed"

    @property
    def has_tunnel(self) -> bool:
        """Whether a machine tunnels to the endpoint. By default not for an existing cluster, whose
        owner has another way.
        """
        return (
            not (self.public_access_from or self.existing) if self.tunnel is None else self.tunnel
        )

    @property
    def services(self) -> str:
        """Addresses of Kubernetes services."""
        return self.service_cidr or ("10.43.0.0/16" if self.self_managed else "172.20.0.0/16")

"""cluster.yaml's `cluster`: the Kubernetes control plane and who may talk to it. Imports no aws_cdk."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from stacks.network_settings import ip_network, log_days
from stacks.settings import Refused, Settings

KUBERNETES_VERSIONS = ("1.34", "1.35", "1.36")
"""Versions in EKS standard support that aws_eks_v2 knows too; standard support of 1.34 ends in 2026-12, of 1.35 in 2027-03."""

ADDONS = (
    "vpc-cni",
    "kube-proxy",
    "eks-pod-identity-agent",
    "coredns",
    "aws-efs-csi-driver",
    "amazon-cloudwatch-observability",
    "eks-node-monitoring-agent",
)
"""Add-ons that this project installs, some of them only where a setting asks for them."""

Principal = Annotated[str, Field(pattern=r"^arn:aws[a-z-]*:iam::\d{12}:(role|user)/[\w+=,.@/-]+$")]


class ExistingCluster(Settings):
    """An EKS cluster that is there already, in the network's VPC, with authentication mode API."""

    name: str = Field(pattern=r"^[0-9A-Za-z][0-9A-Za-z_-]{0,99}$")
    """Its name."""
    endpoint: str = Field(pattern=r"^https://\S+$")
    """Its API server endpoint."""
    certificate_authority: str = Field(pattern=r"^[A-Za-z0-9+/=]+$")
    """Its certificate authority, base64 as `aws eks describe-cluster` shows it."""
    security_group: str = Field(pattern=r"^sg-[0-9a-f]{8,17}$")
    """Its cluster security group."""


class ControlPlane(Settings):
    """The EKS control plane."""

    version: str = "1.35"
    """Kubernetes version."""
    service_cidr: str = "172.20.0.0/16"
    """Addresses of Kubernetes services: /12 to /24, apart from the VPC's."""
    public_access_from: list[str] = Field(default=[])
    """CIDRs that may reach the API endpoint from the internet; empty: it is private (docs/aws.md has the port forward)."""
    administrators: list[Principal] = Field(default=[])
    """ARNs of IAM roles or users that administer the cluster."""
    deployers: list[Principal] = Field(default=[])
    """ARNs of IAM roles or users that submit and delete jobs in jobs.namespace."""
    readers: list[Principal] = Field(default=[])
    """ARNs of IAM roles or users that see everything but secrets, and change nothing."""
    log_days: int = 90
    """How long control-plane logs are kept; 0: none are written."""
    addons: dict[str, str] = Field(default={})
    """Add-on: version, such as v1.2.3-eksbuild.1; unset: that of locks/add-ons.json, else EKS's default (docs/aws.md)."""
    oidc_provider: bool = False
    """An IAM OIDC provider for the cluster, for tools that still use IAM roles for service accounts; ours use Pod Identity."""
    existing: ExistingCluster | None = None
    """A cluster that is there already, instead of a new one. It must have the daemons that a new one gets (docs/aws.md)."""

    @field_validator("version")
    @classmethod
    def _version(cls, value: str) -> str:
        if value not in KUBERNETES_VERSIONS:
            raise Refused("", value, f"allowed is one of {', '.join(KUBERNETES_VERSIONS)} (EKS standard support)")
        return value

    @field_validator("service_cidr")
    @classmethod
    def _service_cidr(cls, value: str) -> str:
        network = ip_network(value)
        if not 12 <= network.prefixlen <= 24 or not network.is_private:
            raise Refused("", value, "allowed is a private IPv4 range from /12 to /24, such as 172.20.0.0/16")
        return value

    @field_validator("public_access_from")
    @classmethod
    def _restricted(cls, ranges: list[str]) -> list[str]:
        for value in ranges:
            if ip_network(value).prefixlen == 0:
                raise Refused("", value, "the endpoint is never opened to everybody; name your own range, such as 203.0.113.7/32")
        return ranges

    @field_validator("log_days")
    @classmethod
    def _days(cls, value: int) -> int:
        return log_days(value)

    @field_validator("addons")
    @classmethod
    def _addons(cls, versions: dict[str, str]) -> dict[str, str]:
        for name in versions:
            if name not in ADDONS:
                raise Refused(name, versions[name], f"allowed add-ons are {', '.join(ADDONS)}")
        return versions

    @model_validator(mode="after")
    def _one_or_the_other(self) -> Self:
        if self.existing is not None:
            for field in ("public_access_from", "log_days", "oidc_provider"):
                if field in self.model_fields_set:
                    allowed = "{here}existing names a cluster that is there already; leave one of the two out"
                    raise Refused(field, getattr(self, field), allowed)
        everybody = [*self.administrators, *self.deployers, *self.readers]
        for arn in everybody:
            if everybody.count(arn) > 1:
                allowed = "EKS takes one access entry for each: name it once among {here}administrators, deployers and readers"
                raise Refused("administrators", arn, allowed)
        return self

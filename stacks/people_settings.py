"""cluster.yaml's `people`, `jobs`, `logs` and `budget`: who works with the cluster, and what it may cost. Imports no aws_cdk."""

from typing import Annotated

from pydantic import Field, field_validator

from settings.model import Refused, Settings
from stacks.network_settings import LogDays, once

DnsLabel = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", examples=["paddle"])]
Email = Annotated[str, Field(max_length=50, pattern=r"^[^@\s]+@[^@\s.]+(\.[^@\s.]+)+$", examples=["somebody@example.com"])]

DATA_ACCOUNT = "paddle-data"
"""Service account of the data job, as its manifests name it: it alone may read the bucket. Trainers have no rights in AWS."""


class Jobs(Settings):
    """Where jobs run, as their manifests say."""

    namespace: DnsLabel = "paddle"
    """The jobs' Kubernetes namespace, as in job.yaml."""

    @field_validator("namespace")
    @classmethod
    def _namespace(cls, value: str) -> str:
        if value.startswith("kube-"):
            raise Refused("", value, "kube-* belongs to the cluster; choose one for training jobs, such as paddle")
        return value


class Logs(Settings):
    """Container logs in CloudWatch, kept beyond the life of their pods."""

    days: LogDays = 0
    """Retention of container logs in CloudWatch; 0: none are sent."""


NO_BUDGETS = (
    *("af-south-1", "ap-east-1", "ap-east-2", "ap-northeast-3", "ap-south-2", "ap-southeast-3", "ap-southeast-4"),
    *("ap-southeast-5", "ap-southeast-6", "ap-southeast-7", "ca-west-1", "eu-central-2", "eu-north-1", "eu-south-1"),
    *("eu-south-2", "il-central-1", "me-central-1", "mx-central-1", "us-gov-east-1", "us-gov-west-1"),
)
"""Regions whose CloudFormation does not know AWS::Budgets::Budget: its resource schemas by region, November 2026."""


class Budget(Settings):
    """A monthly budget, with alarms by e-mail and a dashboard; nodes are counted (on EKS by an agent on them)."""

    monthly_usd: int | None = Field(default=None, ge=1)
    """US dollars a month for this cluster's tag, which `paddle-aws doctor --fix` activates a day after the first deploy;
    unset: alarms and dashboard alone."""
    emails: Annotated[list[Email], once("address")] = Field(min_length=1, max_length=10)
    """E-mail addresses for alarms, 80 % and 100 % of the budget, and a forecast above it."""

"""CloudWatch metrics, by the names and dimensions that AWS gives them."""

from collections.abc import Mapping
from typing import TypedDict, Unpack

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch

AUTO_SCALING = "AWS/AutoScaling"
CONTAINER_INSIGHTS = "ContainerInsights"
EFS = "AWS/EFS"
FSX = "AWS/FSx"
S3 = "AWS/S3"


class MetricOptions(TypedDict, total=False):
    """What `cloudwatch.Metric` takes besides name and dimensions."""

    account: str
    color: str
    label: str
    period: Duration
    """Five minutes unless given."""
    region: str
    statistic: str
    """Such as Average, Sum or p99; Average unless the method says another."""
    unit: cloudwatch.Unit


def metric(
    namespace: str,
    metric_name: str,
    dimensions: Mapping[str, str],
    **options: Unpack[MetricOptions],
) -> cloudwatch.Metric:
    """Returns a metric."""
    options.setdefault("period", Duration.minutes(5))
    return cloudwatch.Metric(
        namespace=namespace, metric_name=metric_name, dimensions_map=dimensions, **options
    )

"""A name for the cluster's endpoint in a private DNS zone: `api.<zone>`.

Promises: a CNAME beside the zone's apex (DNS allows none at it). EKS's certificate does not carry the name: a kubeconfig
that uses it sets tls-server-name to the endpoint's own.
"""

from __future__ import annotations

from aws_cdk import Duration, Fn
from aws_cdk import aws_route53 as route53
from constructs import Construct

from constructs_lib.any_cluster import AnyCluster


class EndpointName(Construct):
    """`api.<zone>` as another name of the cluster's endpoint.

    Attributes:
        name: the whole name.
    """

    def __init__(self, scope: Construct, id: str, *, zone: route53.IHostedZone, cluster: AnyCluster) -> None:
        super().__init__(scope, id)
        self.name = f"api.{zone.zone_name}"
        # The endpoint attribute is an https address: the name is what follows the two slashes.
        host = Fn.select(2, Fn.split("/", cluster.cluster_endpoint))
        route53.CnameRecord(
            self, "Record", zone=zone, record_name="api", domain_name=host, ttl=Duration.minutes(1), comment="EKS API endpoint"
        )

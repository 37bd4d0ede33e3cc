"""The control plane, who may talk to it, and its name."""

from __future__ import annotations

from aws_cdk import CfnOutput, Environment, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms
from aws_cdk import aws_route53 as route53
from aws_cdk import aws_s3 as s3
from constructs import Construct

from constructs_lib.cluster import TrainingCluster
from constructs_lib.pod_identity import PodIdentity
from constructs_lib.private_zone import EndpointName
from stacks.cluster_spec import ClusterSpec


class ClusterStack(Stack):
    """The EKS cluster without nodes."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        spec: ClusterSpec,
        key: kms.IKey,
        vpc: ec2.IVpc,
        zone: route53.IHostedZone,
        bucket: s3.IBucket,
        env: Environment,
    ) -> None:
        super().__init__(scope, id, env=env, description=f"{spec.name}: Kubernetes control plane")
        self.vpc = vpc
        self.training_cluster = TrainingCluster(
            self,
            "Cluster",
            vpc=vpc,
            cluster_name=spec.name,
            version=spec.cluster.version,
            encryption_key=key,
            public_access_from=spec.cluster.public_access_from,
        )
        self.cluster = self.training_cluster.cluster
        for number, arn in enumerate(spec.cluster.administrators):
            self.training_cluster.grant_admin(f"Administrator{number}", arn)
        data = PodIdentity(
            self, "DataJob", cluster=self.cluster, namespace=spec.jobs.namespace, service_account=spec.jobs.data_account
        )
        bucket.grant_read(data)
        EndpointName(self, "EndpointName", zone=zone, cluster=self.cluster)
        CfnOutput(self, "ClusterName", value=self.cluster.cluster_name)
        CfnOutput(self, "ClusterEndpoint", value=self.cluster.cluster_endpoint)
        CfnOutput(self, "Region", value=self.region)
        CfnOutput(self, "KubeconfigCommand", value=f"aws eks update-kubeconfig --name {spec.name} --region {spec.region}")

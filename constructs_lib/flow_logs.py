"""Records of a VPC's traffic, in an encrypted log group that ends.

Promises: every accepted and refused connection for a number of days; the role that writes them can write nothing else.
"""

from __future__ import annotations

from aws_cdk import Aws
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from constructs_lib.log_group import EndingLogGroup


class FlowLogs(Construct):
    """Flow logs of one VPC.

    Args:
        vpc: whose traffic.
        days: how long the records are kept.
        encryption_key: KMS key of the log group; None: AWS's own.

    Attributes:
        log_group: where the records are.
    """

    def __init__(
        self, scope: Construct, id: str, *, vpc: ec2.IVpc, days: int = 30, encryption_key: kms.IKey | None = None
    ) -> None:
        super().__init__(scope, id)
        self.log_group = EndingLogGroup(self, "Logs", days=days, encryption_key=encryption_key)
        writer = iam.ServicePrincipal(
            "vpc-flow-logs.amazonaws.com", conditions={"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}}
        )
        role = iam.Role(self, "Role", assumed_by=writer)
        actions = ["logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"]
        writes = iam.PolicyStatement(actions=actions, resources=[self.log_group.log_group_arn])
        policy = iam.ManagedPolicy(self, "Policy", roles=[role], description="Writes flow logs", statements=[writes])
        flow_log = ec2.CfnFlowLog(
            self,
            "Resource",
            resource_type="VPC",
            resource_id=vpc.vpc_id,
            traffic_type="ALL",
            log_destination_type="cloud-watch-logs",
            log_group_name=self.log_group.log_group_name,
            deliver_logs_permission_arn=role.role_arn,
        )
        flow_log.node.add_dependency(policy)

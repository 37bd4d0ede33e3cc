"""The stack policy with which CloudFormation refuses updates that replace or remove what holds
data. Imports no aws_cdk, so that tools can read it.
"""

from typing import Any

DATA_TYPES = (
    "AWS::EFS::FileSystem",
    "AWS::EFS::AccessPoint",
    "AWS::FSx::FileSystem",
    "AWS::S3::Bucket",
    "AWS::ECR::Repository",
    "AWS::KMS::Key",
    "AWS::EC2::Volume",
    "AWS::EKS::Cluster",
)
"""The resource types that hold data, or give access to it."""
USED_TYPES = ("AWS::EC2::VPC", "AWS::EC2::Subnet", "AWS::Route53::HostedZone")
"""Types that other stacks use, so that CloudFormation changes them in new stacks only."""

_ALL = {"Effect": "Allow", "Action": "Update:*", "Principal": "*", "Resource": "*"}
_KEPT = {
    "Effect": "Deny",
    "Action": ["Update:Replace", "Update:Delete"],
    "Principal": "*",
    "Resource": "*",
    "Condition": {"StringEquals": {"ResourceType": [*DATA_TYPES, *USED_TYPES]}},
}
OPEN: dict[str, Any] = {"Statement": [_ALL]}
"""Allows every update. CloudFormation cannot take a policy away."""
KEPT: dict[str, Any] = {"Statement": [_ALL, _KEPT]}
"""Refuses updates that replace or remove what holds data; a stack's deletion is no update."""

"""`paddle-aws protect`: keeps a `cdk deploy` from replacing or removing what holds data."""

import json
from typing import Annotated

import typer

from paddle_aws.operations.account.account_checks import AccountChecks
from paddle_aws.operations.account.aws import check_account
from paddle_aws.operations.errors import BadInput, cli_errors
from paddle_aws.operations.options import CLUSTER, Config
from paddle_aws.operations.screen import say
from paddle_aws.stacks.cluster_spec import load_cluster

HOLDS_DATA = {
    "AWS::EFS::FileSystem": "shards, programs and passes on the file system",
    "AWS::EFS::AccessPoint": "the pods' access to what the file system holds: its folder stays "
    "with the old user id",
    "AWS::FSx::FileSystem": "all that the file system holds, and its backups",
    "AWS::S3::Bucket": "what the bucket holds, with all old versions",
    "AWS::ECR::Repository": "the trainer images",
    "AWS::KMS::Key": "the key: it stays, but what it encrypted is no longer of this cluster",
    "AWS::EC2::Volume": "the control plane's state",
    "AWS::EKS::Cluster": "the control plane, with all jobs, claims and secrets in it",
}
"""The resource types that hold data, and what a user loses with each."""
SET_BACK = "set it back, or deploy a cluster of another `name`"
IN_USE = dict.fromkeys(
    ("AWS::EC2::VPC", "AWS::EC2::Subnet", "AWS::Route53::HostedZone"),
    f"CloudFormation refuses it while the other stacks use it: {SET_BACK}",
)
"""Resource types that other stacks use, so that only a new cluster can change them."""
_ALL = {"Effect": "Allow", "Action": "Update:*", "Principal": "*", "Resource": "*"}
_KEPT = {
    "Effect": "Deny",
    "Action": ["Update:Replace", "Update:Delete"],
    "Principal": "*",
    "Resource": "*",
    "Condition": {"StringEquals": {"ResourceType": [*HOLDS_DATA, *IN_USE]}},
}
OPEN, KEPT = ({"Statement": statements} for statements in ([_ALL], [_ALL, _KEPT]))


def protect(
    config: Config = CLUSTER,
    lift: Annotated[
        bool, typer.Option("--lift", help="Allow it again, for one deploy on purpose.")
    ] = False,
) -> None:
    """Refuse every update that would replace or remove what holds data. `cdk destroy` stays as it
    is.

    Sets a stack policy on the cluster's stacks; run it once after the first deploy. To lose or move
    data on purpose: --lift, deploy, and protect again.

    Example: paddle-aws protect
    """
    with cli_errors():
        spec = load_cluster(config)
        check_account(spec.account, spec.region)
        account = AccountChecks(spec)
        stacks = [stack["StackName"] for stack in account.deployed_stacks]
        if not stacks:
            raise BadInput(
                f"no stack of cluster {spec.name} is deployed in {spec.region}: run `cdk deploy "
                "--all` first"
            )
        body = json.dumps(OPEN if lift else KEPT)
        for stack in stacks:
            account.client("cloudformation").set_stack_policy(StackName=stack, StackPolicyBody=body)
        what = (
            "may be replaced and removed by the next deploy"
            if lift
            else "is safe from every deploy"
        )
        say(f"what holds data in {', '.join(stacks)} {what}")

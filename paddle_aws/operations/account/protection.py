"""The resources that hold data in a cluster's stacks, and the stack policy that keeps a `cdk
deploy` from replacing or removing them.
"""

import json

from constructs_lib.storage.stack_policy import DATA_TYPES, KEPT, OPEN, USED_TYPES
from paddle_aws.operations.account.cluster_account import ClusterAccount
from paddle_aws.operations.errors import BadInput
from paddle_aws.stacks.cluster_spec import ClusterSpec

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
assert HOLDS_DATA.keys() == set(DATA_TYPES)
SET_BACK = "set it back, or deploy a cluster of another `name`"
IN_USE = dict.fromkeys(
    USED_TYPES, f"CloudFormation refuses it while the other stacks use it: {SET_BACK}"
)
"""Resource types that other stacks use, so that only a new cluster can change them."""


def set_policy(spec: ClusterSpec, account: ClusterAccount, *, lift: bool) -> list[str]:
    """Protects the cluster's stacks, or lifts the protection; returns their names. Raises BadInput
    if none is deployed.
    """
    stacks = [stack["StackName"] for stack in account.deployed_stacks]
    if not stacks:
        raise BadInput(
            f"no stack of cluster {spec.name} is deployed in {spec.region}: run `cdk deploy "
            "--all` first"
        )
    body = json.dumps(OPEN if lift else KEPT)
    for stack in stacks:
        account.client("cloudformation").set_stack_policy(StackName=stack, StackPolicyBody=body)
    return stacks

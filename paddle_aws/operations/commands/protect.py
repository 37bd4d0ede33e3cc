"""`paddle-aws protect`: keeps a `cdk deploy` from replacing or removing what holds data."""

from typing import Annotated

import typer

from paddle_aws.operations.account.aws import check_account
from paddle_aws.operations.account.cluster_account import ClusterAccount
from paddle_aws.operations.account.protection import set_policy
from paddle_aws.operations.errors import cli_errors
from paddle_aws.operations.options import CLUSTER, Config
from paddle_aws.operations.screen import say
from paddle_aws.stacks.cluster_spec import load_cluster


def protect(
    config: Config = CLUSTER,
    lift: Annotated[
        bool, typer.Option("--lift", help="Allow it again, for one deploy on purpose.")
    ] = False,
) -> None:
    """Refuse every update that would replace or remove what holds data. `cdk destroy` stays as it
    is.

    Sets a stack policy on the cluster's stacks, as each deploy does by itself (`protect` in
    cluster.yaml). To lose or move data on purpose: --lift, and deploy. The deploy protects the
    stacks that it changes again; protect the others.

    Example: paddle-aws protect --lift
    """
    with cli_errors():
        spec = load_cluster(config)
        check_account(spec.account, spec.region)
        stacks = set_policy(spec, ClusterAccount(spec), lift=lift)
        what = (
            "may be replaced and removed by the next deploy"
            if lift
            else "is safe from every deploy"
        )
        say(f"what holds data in {', '.join(stacks)} {what}")

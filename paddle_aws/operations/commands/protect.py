"""`paddle-aws protect`: keeps a `cdk deploy` from replacing or removing what holds data."""

from typing import Annotated

import typer

from paddle_aws.operations.account.aws import load_deployable
from paddle_aws.operations.account.cluster_account import ClusterAccount
from paddle_aws.operations.account.protection import set_policy
from paddle_aws.operations.options import CLUSTER, Config
from paddle_aws.operations.screen import say


def protect(
    config: Config = CLUSTER,
    lift: Annotated[
        bool, typer.Option("--lift", help="Allow such updates again, for one deploy.")
    ] = False,
) -> None:
    """Refuse every update that would replace or remove resources with data. `cdk destroy` still
    works.

    Sets a stack policy on the cluster's stacks, as each deploy does by itself (`protect` in
    cluster.yaml). To replace or remove such a resource on purpose, run it with --lift and deploy.
    The deploy protects the stacks that it changes; protect the others again.

    Example: paddle-aws protect --lift
    """
    spec = load_deployable(config)
    stacks = set_policy(spec, ClusterAccount(spec), lift=lift)
    may = "may now" if lift else "can no longer"
    say(f"a deploy {may} replace or remove resources with data in {', '.join(stacks)}")

"""`paddle-aws leftovers`: what the account still holds of a cluster, and how to remove it."""

from dataclasses import asdict

from paddle_aws.operations.account import account_search
from paddle_aws.operations.account.aws import load_deployable
from paddle_aws.operations.errors import Failed, Unreachable
from paddle_aws.operations.options import CLUSTER, Config, Json
from paddle_aws.operations.screen import print_json, print_table, say


def leftovers(config: Config = CLUSTER, json: Json = False) -> None:
    """List everything in the account that carries this cluster's tags or names, with the command
    that removes each.

    What a stack owns is deployed, and `cdk destroy` removes it. Exit code 1 if anything else is
    left that `retain` does not keep, 3 if nothing was found but not everything could be asked. It
    removes nothing itself.

    Example: cdk destroy --all && paddle-aws leftovers
    """
    spec = load_deployable(config)
    left, unasked = account_search.search(spec)
    if json:
        print_json({"left": [asdict(leftover) for leftover in left], "not_asked": unasked})
    elif left:
        rows = [
            (
                leftover.service,
                leftover.id,
                leftover.expected or leftover.problem or "unexpected",
                leftover.command,
            )
            for leftover in left
        ]
        print_table(("SERVICE", "WHAT", "WHY", "REMOVE IT WITH"), rows)
    for reason, names in unasked.items():
        say(f"not checked ({reason}): {', '.join(names)}")
    unexpected = [leftover for leftover in left if not leftover.expected]
    if unexpected:
        raise Failed(
            f"cluster {spec.name} is not gone from {spec.region} ({len(unexpected)} left): run "
            "the commands above"
        )
    if unasked:
        many = sum(map(len, unasked.values()))
        raise Unreachable(
            f"nothing unexpected of cluster {spec.name} was found, but {many} checks could "
            "not be completed"
        )
    if any(leftover.service == "cloudformation" for leftover in left):
        say(
            f"cluster {spec.name} is deployed in {spec.region}: `cdk destroy --all` removes "
            "it, and nothing else is left"
        )
    else:
        kept = " but what is kept on purpose" if left else ""
        say(f"nothing of cluster {spec.name} is left in {spec.region}{kept}")

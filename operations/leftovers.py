"""`paddle-aws leftovers`: what a destroyed cluster left behind, and how to remove it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from operations.errors import Failed, Unreachable, explained
from operations.screen import Json, as_json, say, show


def leftovers(
    config: Annotated[Path, typer.Argument(metavar="CLUSTER", help="The cluster's settings.")] = Path("cluster.yaml"),
    json: Json = False,
) -> None:
    """List everything in the account that carries this cluster's tags or names, with the command that removes each.

    Run it after `cdk destroy --all`. Exit code 1 if anything is left that `retain` does not keep, 3 if nothing was found
    but not everything could be asked. It removes nothing itself.

    Example: cdk destroy --all && paddle-aws leftovers
    """
    with explained():
        from dataclasses import asdict

        from operations import account_search
        from stacks.cluster_spec import ClusterSpec

        spec = ClusterSpec.load(config)
        found, unasked = account_search.search(spec)
        if json:
            as_json({"left": [asdict(one) for one in found], "not_asked": unasked})
        elif found:
            rows = [(one.service, one.id, one.expected or "unexpected", one.command) for one in found]
            show(("SERVICE", "WHAT", "WHY", "REMOVE IT WITH"), rows)
        for reason, names in unasked.items():
            say(f"not asked ({reason}): {', '.join(names)}")
        unexpected = [one for one in found if not one.expected]
        if unexpected:
            raise Failed(f"{len(unexpected)} things of cluster {spec.name} are left in {spec.region}")
        if unasked:
            many = sum(map(len, unasked.values()))
            raise Unreachable(f"nothing unexpected of cluster {spec.name} was found, but {many} questions got no answer")
        say(f"nothing of cluster {spec.name} is left in {spec.region}" + (" but what is kept on purpose" if found else ""))

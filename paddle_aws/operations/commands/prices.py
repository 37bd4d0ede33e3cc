"""`paddle-aws lock prices`: reads list prices from AWS's public files, which need no credentials,
into a dated file. An instance type that the list lacks is refused, and the file stays as it was.
"""

from difflib import get_close_matches
from typing import Annotated

import typer

from paddle_aws.operations.account.locks.lock_file import PRICES, write
from paddle_aws.operations.account.locks.price_list import queries, read_prices, read_spot_prices
from paddle_aws.operations.account.machines import machines
from paddle_aws.operations.errors import BadInput, Failed, cli_errors
from paddle_aws.operations.options import CLUSTER, Config, Out
from paddle_aws.operations.screen import say
from paddle_aws.stacks.cluster_spec import load_cluster

SOURCE = "AWS's public price list, on demand, in US dollars"
FILES = "https://pricing.us-east-1.amazonaws.com"
"""Where AWS publishes its price lists for the regions of its partitions aws and aws-us-gov."""


@cli_errors("interrupted: the lock is as it was")
def prices(
    config: Config = CLUSTER,
    out: Out = PRICES,
    files: Annotated[
        str, typer.Option(help="Where AWS's price list files are, or a mirror.")
    ] = FILES,
) -> None:
    """Read today's list prices for a cluster's region and instance types from AWS, for `paddle-aws
    cost`.

    Needs no AWS credentials, but for the prices of spot nodes (ec2:DescribeSpotPriceHistory).
    Prices that the list does not state clearly stay unknown.

    Example: paddle-aws lock prices && paddle-aws cost
    """
    spec = load_cluster(config)
    named = [(group.name, kind) for group in machines(spec) for kind in group.types]
    system = spec.file_system
    rate = system.per_unit_storage_throughput if system.lustre else None
    asked = queries(sorted({kind for _, kind in named}), rate)
    read, offered = read_prices(files, spec.region, asked)
    for name, kind in named:
        if kind not in offered:
            close = get_close_matches(kind, offered, 1)
            meant = f"; did you mean {close[0]}?" if close else ""
            raise BadInput(
                f"{config.name}: {name} asks for {kind}: AWS lists no such type in "
                f"{spec.region}{meant}"
            )
    if not read:
        raise Failed(
            f"AWS's price list of {spec.region} has no price that was asked for: {out} stays "
            "as it is"
        )
    spot = sorted({group.instance_types[0] for group in spec.nodes.values() if group.spot})
    read |= read_spot_prices(spec, spot)
    write(out, SOURCE, {"region": spec.region, "prices": read})
    unknown = sorted({*asked, *(f"{kind}-spot-hour" for kind in spot)} - read.keys())
    rest = f"; still unknown: {', '.join(unknown)}" if unknown else ""
    say(f"{len(read)} prices of {spec.region} are in {out}{rest}")

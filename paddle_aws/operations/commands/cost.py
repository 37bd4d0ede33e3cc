"""`paddle-aws cost`: what a cluster costs per month, and per run of some hours, from prices that
were read from AWS.
"""

from pathlib import Path
from typing import Annotated

import typer

from paddle_aws.operations.account.cost_items import LEFT_OUT, estimate, items
from paddle_aws.operations.account.locks.lock_file import PRICES, read_prices
from paddle_aws.operations.errors import BadInput
from paddle_aws.operations.options import CLUSTER, Config, Json
from paddle_aws.operations.screen import echo, print_json, print_table, say
from paddle_aws.stacks.cluster_spec import load_cluster


def cost(
    config: Config = CLUSTER,
    hours: Annotated[float, typer.Option(min=0, max=8760, help="Length of one run.")] = 1.0,
    lock: Annotated[Path, typer.Option(help="What `paddle-aws lock prices` wrote.")] = PRICES,
    json: Json = False,
) -> None:
    """Estimate what a cluster costs, item by item: in a month and in a run. Run `paddle-aws lock
    prices` first.

    Example: paddle-aws cost cluster.yaml --hours 8
    """
    spec = load_cluster(config)
    locked = read_prices(lock, spec.region)
    asked = items(spec)
    for item in asked:
        # Only a machine's price: any other that AWS's list does not state clearly is unknown,
        # as is spot without credentials.
        if "." in item.price and item.price not in locked["prices"] and "spot" not in item.price:
            raise BadInput(
                f"{lock} has no price of {item.what}: `paddle-aws lock prices` reads it, if "
                "AWS has such a type"
            )
    rows = estimate(asked, locked["prices"], hours)
    month, run = (sum(row[part] or 0 for row in rows) for part in ("month_usd", "run_usd"))
    unknown = [row["what"] for row in rows if row["month_usd"] is None]
    if json:
        sums = {"month_usd": month, "run_usd": run, "unknown": unknown, "left_out": LEFT_OUT}
        read = {name: locked[name] for name in ("read", "source", "region")}
        print_json({**read, "hours": hours, "items": rows, **sums})
        return
    lines = []
    for row in rows:
        dollars = _dollars(row["month_usd"]), _dollars(row["run_usd"])
        lines.append((row["what"], f"{row['count']:g}", row["usd"] or "unknown", *dollars))
    columns = ("WHAT", "COUNT", "USD EACH", "USD A MONTH", f"USD IN {hours:g} H")
    print_table(columns, lines, right=columns[1:], folds="WHAT")
    some = "at least " if unknown else ""
    echo(
        f"in all {some}{_dollars(month)} USD a month, {some}{_dollars(run)} USD in a run of "
        f"{hours:g} h"
    )
    say(f"list prices of {spec.region}, read {locked['read']} ({locked['source']})")
    if unknown:
        spot = any("spot" in what for what in unknown)
        why = "; spot prices are read with AWS credentials alone" if spot else ""
        say(f"unknown: {', '.join(unknown)}{why}")
    say(f"left out: {LEFT_OUT}")


def _dollars(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.2f}"

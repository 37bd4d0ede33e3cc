"""`paddle-aws acceptance`: the first day on AWS in one line, with a receipt."""

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
import yaml

from paddle_aws.operations.account.person import Person
from paddle_aws.operations.errors import BadInput, Exit, Failed, cli_errors
from paddle_aws.operations.images.container_runtime import ContainerRuntime
from paddle_aws.operations.jobs.acceptance import Acceptance, logged, own_address, quiet, settings
from paddle_aws.operations.screen import say
from paddle_aws.stacks.cluster_spec import load_cluster

PROJECT = Path(__file__).parents[3]


@cli_errors("interrupted: nothing was deployed")
def acceptance(
    max_usd: Annotated[
        float, typer.Option(min=0, help="Dollars after which it stops and destroys.")
    ] = 5.0,
    gpu: Annotated[bool, typer.Option("--gpu", help="With a group of one g4dn.xlarge.")] = False,
    base: Annotated[
        str | None,
        typer.Option(help="With --gpu: base of the image, with CUDA and Python 3.11 or 3.12."),
    ] = None,
    region: Annotated[str, typer.Option(help="Where.")] = "us-west-2",
    reachable_from: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="CIDR",
            help="Who reaches the cluster's API. Default: your own address, asked of "
            "checkip.amazonaws.com.",
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(help="A new folder for all its files. Default: acceptance-<time>."),
    ] = None,
    lock: Annotated[
        Path | None,
        typer.Option(help="What `paddle-aws lock prices` wrote. Default: today's prices."),
    ] = None,
) -> None:
    """Try this release in your account: deploy a small cluster named acceptance, train through the
    loss of a pod, measure, fetch the model, destroy, look for leftovers; about an hour and a
    dollar.

    At the first failure, at --max-usd (list prices times hours) and at Ctrl-C it destroys the
    cluster, too. receipt.json says what each step saw, and names neither account nor people: send
    it to us. Run it in a clone, with credentials that may make roles; docker or podman builds the
    image.

    Example: paddle-aws acceptance --max-usd 3
    """
    if not (PROJECT / "cdk.json").is_file():
        raise BadInput(f"{PROJECT} is an installed package: run this in a clone")
    if gpu != bool(base):
        raise BadInput("--gpu and --base belong together: docs/data.md says which bases there are")
    place = (folder or Path(f"acceptance-{datetime.now(UTC):%Y%m%d-%H%M%S}")).absolute()
    if place.exists():
        raise BadInput(f"{place} is there already: name a new folder")
    ContainerRuntime.find()
    if shutil.which("aws") is None:
        raise BadInput("the aws CLI is not on PATH, and gives the cluster's tokens: install it")
    chosen = settings(region, reachable_from or own_address(), gpu=gpu)
    place.mkdir(parents=True)
    config = place / "cluster.yaml"
    config.write_text(yaml.safe_dump(chosen, sort_keys=False))
    with logged(place / "log.txt") as report:
        person = Person(PROJECT, place, report)
        try:
            load_cluster(config)
            if lock is None:
                lock = place / "prices.json"
                person.paddle_aws("lock", "prices", str(config), "--out", str(lock))
            day = Acceptance(person, config, lock, max_usd, base)
        except BaseException:
            shutil.rmtree(place)
            raise
        receipt = day.run(say)
    where = f"{place / 'receipt.json'}; each command's output is in {place / 'log.txt'}"
    spent = receipt["usd"]["spent"]
    if receipt["result"] == "interrupted":
        quiet(say)(f"interrupted, about ${spent:.2f}: {where}")
        raise SystemExit(Exit.INTERRUPTED)
    if receipt["result"] != "passed":
        raise Failed(f"{receipt['result']}, about ${spent:.2f}: {day.why}\n{where}")
    say(f"passed, about ${spent:.2f}: {where}")

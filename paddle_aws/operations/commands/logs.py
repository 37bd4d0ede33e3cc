"""`paddle-aws logs`: what all ranks of a job write."""

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Literal

import typer

from paddle_aws.operations import options
from paddle_aws.operations.errors import BadInput, cli_errors
from paddle_aws.operations.jobs.backend import Backend, choose_backend
from paddle_aws.operations.jobs.volume.access import BLOCK, Volume
from paddle_aws.operations.jobs.watch import log_stream
from paddle_aws.operations.jobs.watch.log_stream import PodLine, PodSelection
from paddle_aws.operations.screen import say

TAIL_FACTOR = 50
"""Lines of a pod that --tail reads for each line that it shows, because Paddle may have written the
others.
"""


@cli_errors("interrupted: the job keeps running")
def logs(
    job: options.JobArgument = options.DEFAULT,
    rank: Annotated[
        str, typer.Option("--rank", "-r", help="all, a trainer id, or several: 0-3, 0,2.")
    ] = "all",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow until the job ends.")
    ] = False,
    of: Annotated[
        Literal["training", "data", "environment"],
        typer.Option(help="The training's pods, the data job's, or the environment Job's."),
    ] = "training",
    volume: Annotated[
        Literal["train", "server"] | None,
        typer.Option(
            help="The log to read on the job's volume, where it outlives the pods, instead of the "
            "pods' own: train.log or server.log."
        ),
    ] = None,
    tail: Annotated[
        int | None, typer.Option(min=0, help="Show only so many last lines of each pod.")
    ] = None,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            "-v",
            help="Also show what Paddle and brpc write about themselves, as --json does.",
        ),
    ] = False,
    rehearsal: options.OfRehearsal = None,
    namespace: options.Namespace = None,
    context: options.Context = None,
    json: Annotated[
        bool, typer.Option("--json", help="A JSON object a line: time, pod, rank, text.")
    ] = False,
) -> None:
    """Show a job's logs, all ranks interleaved in order of time.

    Lines that Paddle and brpc write about themselves are left out. With --follow, it shows new
    lines until the job ends, across lost connections and replaced pods. With --volume, a small pod
    reads the logs from the volume, even when the job's pods are gone.

    Example: paddle-aws logs quick-start --rank 0 --follow
    """
    chosen = PodSelection(log_stream.parse_ranks(rank), of)
    if volume is not None and (follow or of != "training"):
        raise BadInput(f"--volume is {volume}: it reads what is there; leave --follow and --of out")
    where = choose_backend(job, namespace, context, rehearsal)
    show = log_stream.Printer(json, verbose)
    if volume is not None:
        _show_volume_logs(where, volume, chosen, tail, show)
        show.end()
        return
    # A mistyped name is refused at once.
    where.status()
    if follow:
        last = where.follow(chosen, tail, show)
        show.end()
        if last.phase == "failed":
            say(f"job {where.name} failed: {last.reason}")
        return
    for line in _read_written(where, chosen, tail, show):
        show(line)
    show.end()
    if not show.shown and not show.left_out:
        say(
            "no pod has written anything yet: `paddle-aws status "
            f"{options.job_arguments(where.name, where.namespace)}` says why"
        )


def _read_written(
    where: Backend, chosen: PodSelection, tail: int | None, show: log_stream.Printer
) -> Iterator[PodLine]:
    """Yields what the pods have written; `tail` counts the lines that are shown."""
    if tail is None:
        yield from where.logs(chosen, tail)
        return
    lines = [line for line in where.logs(chosen, tail * TAIL_FACTOR) if show.is_shown(line.text)]
    number = Counter(line.who for line in lines)
    for line in lines:
        number[line.who] -= 1
        if number[line.who] < tail:
            yield line


def _show_volume_logs(
    where: Backend, log: str, chosen: PodSelection, tail: int | None, show: log_stream.Printer
) -> None:
    """Shows one rank after the other, as their lines have no common time."""
    with where.volume() as volume:
        files = {entry["name"]: entry["bytes"] for entry in volume.files("output")}
        names = ((rank, f"node_{rank}/{log}.log") for rank in range(10_000))
        log_files = [(rank, name) for rank, name in names if name in files]
        if not log_files:
            raise BadInput(
                f"job {where.name} has no {log}.log on the volume: no pod of it has begun to "
                "train yet"
            )
        for rank, name in log_files:
            if chosen.ranks is not None and rank not in chosen.ranks:
                continue
            for text in _lines(volume, f"output/{name}", files[name], tail, show):
                show(PodLine("", f"trainer {rank}", text, rank))


def _lines(
    volume: Volume, path: str, size: int, tail: int | None, show: log_stream.Printer
) -> Iterator[str]:
    if tail is not None:
        # The last block of a longer log holds more lines than anybody asks for.
        last = volume.read(path, -min(size, BLOCK) if size else 0).decode(errors="replace")
        lines = [line for line in last.splitlines() if show.is_shown(line)]
        yield from lines[-tail or size :]
        return
    rest = b""
    for offset in range(0, size, BLOCK):
        *whole, rest = (rest + volume.read(path, offset, min(BLOCK, size - offset))).split(b"\n")
        yield from (line.decode(errors="replace") for line in whole)
    if rest:
        yield rest.decode(errors="replace")

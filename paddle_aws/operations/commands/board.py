"""`paddle-aws board`: a job in the browser, while it runs and afterwards; without a job, all of a
namespace.
"""

import threading
import time
import webbrowser
from contextlib import AbstractContextManager, ExitStack
from importlib import resources
from typing import Annotated, NoReturn

import typer

from paddle_aws.operations import options
from paddle_aws.operations.account.locks.lock_file import node_hour
from paddle_aws.operations.board.comparison import Comparison
from paddle_aws.operations.board.job_list import JobList
from paddle_aws.operations.board.job_page import JobPage
from paddle_aws.operations.board.site import Page, Site
from paddle_aws.operations.cluster.cluster_api import ClusterApi
from paddle_aws.operations.errors import BadInput, cli_errors
from paddle_aws.operations.jobs.backend import Backend, choose_backend, is_rehearsal
from paddle_aws.operations.jobs.volume.access import Volume
from paddle_aws.operations.screen import say

KEEP_ALIVE_INTERVAL = 30.0
"""Seconds between two requests that keep the inspection pod alive while no page is open."""


@cli_errors("the board is closed")
def board(
    jobs: options.OptionalJobArguments = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of this machine; 0: any that is free.")
    ] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page.")] = True,
    evaluate: Annotated[
        bool,
        typer.Option("--evaluate", help="Measure the newest pass on the held-out records first."),
    ] = False,
    rehearsal: options.OfRehearsal = None,
    namespace: options.Namespace = None,
    context: options.Context = None,
) -> None:
    """Show a job in the browser: metrics, pods and their logs, attempts, where the time went.

    Without JOB: all jobs of the namespace, with state, loss, goodput and cost so far; or the
    rehearsal, if that ran last in this folder. With several: their curves in one chart, and the
    settings that differ.

    A small pod with the job's image mounts the volume read-only until Ctrl-C. In the folder of a
    rehearsal it shows that rehearsal, even while it runs.

    Example: paddle-aws board quick-start

    Example: paddle-aws board news-lr3 news-lr4
    """
    resources.files("plotly")  # Refuses at once where the extra that brings it is missing.
    jobs = jobs or []
    if not jobs and not is_rehearsal(namespace, context, rehearsal):
        if evaluate:
            raise BadInput("--evaluate measures one job: name it: `paddle-aws board JOB`")
        where = namespace or options.DEFAULT_NAMESPACE
        with JobList(ClusterApi(context, say), where, node_hour()) as listed:
            serve(listed, f"the jobs of namespace {where} are shown", port, browser)
    if evaluate and len(jobs) > 1:
        raise BadInput("--evaluate measures one job: name one")
    names = jobs or [options.DEFAULT]
    chosen = [choose_backend(name, namespace, context, rehearsal) for name in names]
    if len(jobs) > 1:
        with ExitStack() as stack:
            pairs = list[tuple[Backend, Volume]]()
            for job in chosen:
                folder: AbstractContextManager[Volume] = job.volume()
                pairs.append((job, stack.enter_context(folder)))
            title = f"{', '.join(job.name for job in chosen)} are shown"
            serve(Comparison(pairs), title, port, browser)
    (run,) = chosen
    score = run.evaluate().model_dump(by_alias=True) if evaluate else None
    with run.volume() as volume:
        page = JobPage(run, volume, score, node_hour())
        serve(page, f"{run.name} is shown", port, browser)


def serve(page: Page, title: str, port: int, browser: bool) -> NoReturn:
    """Serves a page until Ctrl-C. Raises BadInput for a port that is taken."""
    site = Site(page)
    try:
        server = site.server(port)
    except OSError as error:
        raise BadInput(f"--port is {port}: {error.strerror}; 0 takes any that is free") from None
    with server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}/{site.secret}/"
        say(f"{title} at {address} until Ctrl-C")
        if browser:
            webbrowser.open(address)
        while True:
            time.sleep(KEEP_ALIVE_INTERVAL)
            page.refresh()

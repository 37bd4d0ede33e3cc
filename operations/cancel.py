"""`paddle-aws cancel`: end what runs of a job."""

from __future__ import annotations

from operations.errors import explained
from operations.job_argument import DEFAULT, JobArgument, named
from operations.screen import Context, Namespace, say


def cancel(job: JobArgument = DEFAULT, namespace: Namespace = None, context: Context = None) -> None:
    """End a job's pods now. Its data, program and passes stay on the volume.

    The trainers get their grace period to save; `paddle-aws resume` goes on from the newest complete pass.

    Example: paddle-aws cancel quick-start
    """
    with explained("interrupted: the pods may still be ending"):
        which = named(job, namespace)
        from operations import removal
        from operations.cluster import Cluster

        cluster = Cluster.connect(context, say)
        if running := removal.running(cluster, which.name, which.namespace):
            say(f"ending {', '.join(running)}: the pods get their time to save")
        ended = removal.end_running(cluster, which.name, which.namespace)
        say(f"job {which.name} is ended ({', '.join(ended)})" if ended else f"job {which.name} does not run: nothing to end")

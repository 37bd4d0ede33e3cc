"""`paddle-aws status`: one job, its pods, and why any of them does not run."""

from datetime import UTC, datetime

from paddle_aws.operations import options, screen
from paddle_aws.operations.jobs.backend import choose_backend
from paddle_aws.operations.jobs.objects.job_objects import JobState
from paddle_aws.operations.jobs.watch.job_view import JobView
from paddle_aws.operations.screen import age, echo, print_json, span


def status(
    job: options.JobArgument = options.DEFAULT,
    rehearsal: options.OfRehearsal = None,
    namespace: options.Namespace = None,
    context: options.Context = None,
    json: options.Json = False,
) -> None:
    """Show a job: its state and progress, its pods, and why a pod waits or failed.

    Example: paddle-aws status quick-start
    """
    view = choose_backend(job, namespace, context, rehearsal).status()
    if json:
        print_json(view.as_json())
    else:
        print_view(view)


def print_view(view: JobView) -> None:
    """Prints the screen of `status`."""
    is_ = view.phase if view.phase == "failed" else f"is {view.phase}"
    separator = ", " if view.phase == "done" else ": "
    reason = separator + view.reason if view.reason else ""
    screen.print_table(("",), [(f"{view.name} {is_}{reason}",)])
    jobs = {"environment": view.environment, "data": view.data, "training": view.training}
    parts = [(word, _line(job)) for word, job in jobs.items() if job is not None]
    if view.progress is not None:
        moment = f" ({age(view.progress.reported)} ago)" if view.progress.reported else ""
        parts.append(("progress", f"{view.progress}{moment}"))
    if view.goodput is not None:
        parts.append(("goodput", str(view.goodput)))
        parts += [("slow", view.goodput.slow)] if view.goodput.slow else []
    if view.lost:
        attempt = f", attempt {view.progress.attempt}" if view.progress else ""
        parts.append(("lost pods", f"{view.lost} so far{attempt}"))
    screen.print_table(("", " "), [(f"  {word}", line) for word, line in parts])
    if view.pods:
        echo()
        rows = [(pod.who, pod.phase, pod.node, age(pod.created), pod.reason) for pod in view.pods]
        screen.print_table(("POD", "STATE", "NODE", "AGE", "REASON"), rows)
    elif not view.reason:
        echo("  no pods: they are not created yet, or were removed with their Job")


def _line(job: JobState) -> str:
    text = f"{job.phase}, {job.succeeded} of {job.completions} pods done"
    if job.failed:
        text += f", {job.failed} failed"
    seconds = job.seconds(datetime.now(UTC))
    if seconds is not None:
        text += f", {'ran' if job.ended else 'for'} {span(seconds)}"
    return f"{text} ({job.object})"

"""Training jobs from Python, with the functions that the command `paddle-aws` calls.

    import paddle_aws

    run = paddle_aws.submit("job.yaml")
    run.wait()
    print(run.results()[-1].loss, run.model("model"))

Every failure raises an `Error`; progress messages go to the logger `paddle_aws`.
A wrong setting is one, before anything is asked or sent:

    >>> import paddle_aws
    >>> paddle_aws.submit({"name": "words", "trainers": 0, "data": {"source": "s3://corpus/words"}})
    Traceback (most recent call last):
    paddle_aws.operations.errors.BadInput: trainers must be at least 1 (found 0)

`paddle_aws.rehearse("job.yaml")` runs the same job on this machine, and
`paddle_aws.try_("job.yaml")` tries its program. Each takes a job file or a mapping of settings.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paddle_aws.operations.errors import BadInput, Failed, JobFailed, TimedOut, Unreachable
    from paddle_aws.operations.errors import OperationError as Error
    from paddle_aws.operations.jobs.objects.job_objects import JobState
    from paddle_aws.operations.jobs.objects.pod_state import PodState
    from paddle_aws.operations.jobs.progress.training_metrics import Pass, TrainerPass
    from paddle_aws.operations.jobs.progress.training_progress import StepProgress, TrainingProgress
    from paddle_aws.operations.jobs.rehearsal_backend import RehearsalBackend as Rehearsal
    from paddle_aws.operations.jobs.rehearsal_run import rehearse
    from paddle_aws.operations.jobs.run import Run, find, submit
    from paddle_aws.operations.jobs.trial import try_
    from paddle_aws.operations.jobs.watch.job_view import JobView

__all__ = [
    "JobState",
    "JobView",
    "Pass",
    "PodState",
    "Run",
    "TrainerPass",
    "TrainingProgress",
    "find",
    "submit",
]
__all__ += ["Rehearsal", "StepProgress", "rehearse", "try_"]
__all__ += ["BadInput", "Error", "Failed", "JobFailed", "TimedOut", "Unreachable"]

_HOMES = {
    "jobs.objects.pod_state": ("PodState",),
    "jobs.trial": ("try_",),
    "errors": ("BadInput", "Error", "Failed", "JobFailed", "TimedOut", "Unreachable"),
    "jobs.objects.job_objects": ("JobState",),
    "jobs.watch.job_view": ("JobView",),
    "jobs.rehearsal_backend": ("Rehearsal",),
    "jobs.rehearsal_run": ("rehearse",),
    "jobs.run": ("Run", "find", "submit"),
    "jobs.progress.training_metrics": ("Pass", "TrainerPass"),
    "jobs.progress.training_progress": ("StepProgress", "TrainingProgress"),
}
_ORIGINALS = {"Error": "OperationError", "Rehearsal": "RehearsalBackend"}


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used: a CDK app that reads only the settings waits
    for no Kubernetes client.
    """
    for module, names in _HOMES.items():
        if name in names:
            home = import_module(f"paddle_aws.operations.{module}")
            value = getattr(home, _ORIGINALS.get(name, name))
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

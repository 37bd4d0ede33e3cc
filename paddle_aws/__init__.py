"""Training jobs from Python, with the functions that the command `paddle-aws` calls.

    import paddle_aws

    run = paddle_aws.submit("job.yaml")
    run.wait()
    print(run.results()[-1].loss, run.model("model"))

Every failure raises an `Error`; progress messages go to the logger `paddle_aws`.
`paddle_aws.rehearse("job.yaml")` runs the same job on this machine, and
`paddle_aws.try_("job.yaml")` tries its program. Each takes a job file or a mapping of settings.
"""

from operations.cluster.pod_words import PodState
from operations.commands.trial import try_
from operations.errors import BadInput, Failed, JobFailed, TimedOut, Unreachable
from operations.errors import OperationError as Error
from operations.jobs.job_objects import JobState
from operations.jobs.job_view import JobView
from operations.jobs.rehearsal_backend import RehearsalBackend as Rehearsal
from operations.jobs.rehearsal_run import rehearse
from operations.jobs.run import Run, submit
from operations.jobs.step_progress import StepProgress
from operations.jobs.training_metrics import Pass, TrainerPass
from operations.jobs.training_progress import TrainingProgress

find = Run.find

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

"""Where a job ran, for the commands that inspect it: on a cluster, or in the rehearsal that this
folder's `.rehearsal` holds.

By default the rehearsal is taken if it ran last in this folder, and the command says so.
"""

from typing import TypeAlias

from paddle_aws.operations.errors import BadInput
from paddle_aws.operations.jobs import rehearsal_backend
from paddle_aws.operations.jobs.job_source import resolve_job
from paddle_aws.operations.jobs.rehearsal_backend import RehearsalBackend
from paddle_aws.operations.jobs.run import Run
from paddle_aws.operations.options import DEFAULT
from paddle_aws.operations.screen import say

Backend: TypeAlias = Run | RehearsalBackend
"""One job, where it ran: its status, its pods' logs, its folder, and the evaluation of its newest
pass.
"""


def choose_backend(
    argument: str, namespace: str | None, context: str | None, rehearsal: bool | None
) -> Backend:
    """Returns the backend for a command's JOB and options. Raises BadInput."""
    if is_rehearsal(namespace, context, rehearsal):
        name = None if argument == DEFAULT else resolve_job(argument, None).name
        if name is None or rehearsal or name in rehearsal_backend.names():
            found = rehearsal_backend.load(name=name)
            other = "" if rehearsal else "; --no-rehearsal asks the cluster"
            say(f"the rehearsal of {found.name}, {found.age}{other}")
            return found

    return Run.find(argument, namespace=namespace, context=context, say=say)


def is_rehearsal(namespace: str | None, context: str | None, rehearsal: bool | None) -> bool:
    """Returns whether a command's options mean this folder's rehearsal. Raises BadInput."""
    if rehearsal and (namespace or context):
        raise BadInput("--rehearsal has no cluster: leave --namespace and --context out")
    if rehearsal is None:
        return not namespace and not context and rehearsal_backend.is_newest()
    return rehearsal

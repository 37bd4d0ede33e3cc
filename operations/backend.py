"""Where a job ran, for the commands that look at it: on a cluster, or in the rehearsal that this folder's `.rehearsal` keeps.

Promises: a command reads both in the same way; where nobody says which, the rehearsal is taken only if it ran last in this
folder, and the user is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from operations.errors import BadInput
from operations.job_argument import DEFAULT, Named, named
from operations.screen import say

if TYPE_CHECKING:
    from operations.evaluate import Evaluation
    from operations.job_view import JobView
    from operations.log_stream import Line, Wanted

OfRehearsal = Annotated[
    bool | None,
    typer.Option(
        "--rehearsal/--no-rehearsal", help="The job of the last `make rehearse`. Default: if that is what ran last here.",
        show_default=False,
    ),
]  # fmt: skip


class Volume(Protocol):
    """A job's folder, to be read. `VolumeAccess` says what each does."""

    @property
    def where(self) -> str: ...

    def files(self, path: str) -> list[dict[str, Any]]: ...

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes: ...

    def sum(self, path: str, offset: int, size: int) -> tuple[str, int, int]: ...


class Backend(Protocol):
    """One job, where it ran: how it is, what its pods wrote, its folder, and how good its newest pass is."""

    @property
    def job(self) -> Named: ...

    def status(self) -> JobView: ...

    def logs(self, wanted: Wanted, tail: int | None) -> Iterator[Line]: ...

    def volume(self) -> AbstractContextManager[Volume]: ...

    def evaluate(self) -> Evaluation: ...


def backend(argument: str, namespace: str | None, context: str | None, rehearsal: bool | None) -> Backend:
    """Of a command's JOB and options. Raises BadInput."""
    from operations import rehearsal_backend

    if rehearsal and (namespace or context):
        raise BadInput("--rehearsal has no cluster: leave --namespace and --context out")
    if rehearsal or (rehearsal is None and not namespace and not context and rehearsal_backend.ran_last()):
        found = rehearsal_backend.load()
        if argument == DEFAULT or named(argument, None).name == found.job.name:
            say(
                f"the rehearsal of {found.job.name}, {found.age} ago" + ("" if rehearsal else "; --no-rehearsal asks the cluster")
            )
            return found
        if rehearsal:
            raise BadInput(f"JOB is {argument}: the last rehearsal here was of {found.job.name}; leave JOB out, or rehearse that")
    from operations.run import Run

    return Run.find(argument, namespace=namespace, context=context, say=say)

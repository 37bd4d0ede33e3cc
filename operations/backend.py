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
    """A job's folder, to be read."""

    @property
    def where(self) -> str:
        """Whose folder it is, among all."""

    def files(self, path: str) -> list[dict[str, Any]]:
        """Everything below a folder: name, bytes, time; empty where there is no such folder."""

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        """A file's bytes, or a part of them; a negative offset counts from its end. Raises Missing."""

    def sum(self, path: str, offset: int, size: int) -> tuple[str, int, int]:
        """BLAKE2 of a part of a file, the part's bytes (fewer at its end), and the file's. Raises Missing."""


class Backend(Protocol):
    """One job, where it ran."""

    job: Named

    def view(self) -> JobView:
        """The job as it is now. Raises BadInput where there is none of that name."""

    def logs(self, wanted: Wanted, tail: int | None) -> Iterator[Line]:
        """What its pods have written so far."""

    def volume(self) -> AbstractContextManager[Volume]:
        """Its folder."""

    def evaluate(self) -> Evaluation:
        """Measures its newest complete pass on the held-out records."""


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
    from operations.cluster_backend import ClusterBackend

    return ClusterBackend(named(argument, namespace), context)

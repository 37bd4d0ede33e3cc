"""The logs of a job's pods as one stream: all ranks interleaved, each line once, even if
connections break.

A follow that is cut off continues after the last line it showed, includes replacement pods, and
ends with the job. A program's control characters never reach the terminal.
"""

import heapq
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from json import dumps

from paddle_aws.operations.cluster.cluster_api import (
    REOPEN_PAUSE,
    TRIES,
    ApiError,
    ClusterApi,
    Outage,
    StreamLost,
)
from paddle_aws.operations.errors import BadInput, Unreachable
from paddle_aws.operations.jobs.objects.job_objects import pods
from paddle_aws.operations.jobs.objects.object_fields import moment
from paddle_aws.operations.jobs.objects.paddle_noise import is_noise
from paddle_aws.operations.jobs.objects.pod_state import PodState
from paddle_aws.operations.jobs.watch.job_view import JobView, poll_job
from paddle_aws.operations.jobs.watch.waiting import ENDS, Follower
from paddle_aws.operations.options import job_arguments
from paddle_aws.operations.screen import clean, console, say

REOPEN_AFTER = 3600.0
"""Seconds for which a program may be silent before the stream is reopened."""
COLOURS = (
    "cyan",
    "green",
    "magenta",
    "yellow",
    "blue",
    "bright_cyan",
    "bright_green",
    "bright_magenta",
)


@dataclass(frozen=True, order=True)
class PodLine:
    """One line of one pod."""

    time: str
    who: str
    text: str
    rank: int


@dataclass(frozen=True)
class PodSelection:
    """Selects pods: of the environment, the data job or the training, of all ranks or some."""

    ranks: frozenset[int] | None = None
    of: str = "training"

    def includes(self, pod: PodState) -> bool:
        """Returns whether this pod is selected."""
        return pod.part == self.of and (self.ranks is None or pod.rank in self.ranks)


TRAINING = PodSelection()
"""All pods of the training."""


def parse_ranks(text: str) -> frozenset[int] | None:
    """Parses `all` (as None), or numbers and ranges: 0, 0-3, 0,2. Raises BadInput."""
    if text == "all":
        return None
    chosen: set[int] = set()
    for part in text.split(","):
        # Five digits: a Job has at most 100,000 indexes.
        match = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", part.strip())
        if not match or (match[2] and int(match[2]) < int(match[1])):
            raise BadInput(
                f"--rank is {text}: all, a number, a range such as 0-3, or several with commas "
                "are allowed"
            )
        chosen.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return frozenset(chosen)


class Printer:
    """Prints lines to stdout: `who | text`, coloured by rank on a terminal; with `json`, an object
    per line.

    Leaves out what Paddle and brpc write about themselves, except for `verbose` and in JSON.
    """

    def __init__(self, json: bool = False, verbose: bool = False) -> None:
        self._screen, self._json, self._complete = console(), json, json or verbose
        self._coloured = self._screen.is_terminal and not self._screen.no_color
        self.shown = self.left_out = False
        """Whether there were lines of either kind."""

    def is_shown(self, text: str) -> bool:
        """Returns whether a line with this text is printed."""
        shown = self._complete or not is_noise(text)
        self.shown, self.left_out = self.shown or shown, self.left_out or not shown
        return shown

    def __call__(self, line: PodLine) -> None:
        from rich.text import Text

        if not self.is_shown(line.text):
            return
        if self._json:
            shown = {"time": line.time, "pod": line.who, "rank": line.rank, "text": line.text}
            print(dumps(shown), flush=True)
        elif self._coloured:
            who = (f"{line.who} | ", COLOURS[line.rank % len(COLOURS)])
            self._screen.print(Text.assemble(who, clean(line.text)), soft_wrap=True)
        else:
            print(f"{line.who} | {clean(line.text)}", flush=True)

    def end(self) -> None:
        """Says on stderr if lines were left out."""
        if self.left_out:
            say("lines that Paddle writes about itself are left out: --verbose shows them")


def read_written(
    cluster: ClusterApi, name: str, namespace: str, match: PodSelection, tail: int | None
) -> Iterator[PodLine]:
    """Yields what the pods have written so far, in order of time. Raises BadInput if no pod
    matches.
    """
    chosen = [pod for pod in poll_job(cluster, name, namespace).pods if match.includes(pod)]
    if not chosen:
        raise BadInput(
            f"job {name} has no such pods in namespace {namespace}: they are not created yet, or "
            f"were removed with their Job; `paddle-aws logs {job_arguments(name, namespace)} "
            "--volume train` reads the logs on the volume"
        )
    yield from heapq.merge(*(_read_pod(cluster, namespace, pod, tail) for pod in chosen))


def _read_pod(
    cluster: ClusterApi,
    namespace: str,
    pod: PodState,
    tail: int | None,
    ended: threading.Event | None = None,
) -> Iterator[PodLine]:
    """Yields each line once, even if the answer is cut off; with `over`, as long as the pod writes,
    or until `over` is set.

    Without `over`, raises Lost if the answer is cut off again and again before a new line.
    """
    path, last, cuts, outage = f"{pods(namespace)}/{pod.name}", "", 0, Outage(cluster)
    # Counted: a program may write two equal lines in one tick of the clock.
    of_last_second: Counter[bytes] = Counter()
    while True:
        again, query = of_last_second.copy(), {"timestamps": "true"}
        if since := moment(last and f"{last[:19]}Z"):
            # The server only knows whole seconds: some lines arrive again and are left out.
            query["sinceTime"] = since.strftime("%Y-%m-%dT%H:%M:%SZ")
        elif tail is not None:
            query["tailLines"] = str(tail)
        follow = ended is not None and not ended.is_set()
        if follow:
            query["follow"] = "true"
        try:
            for raw in cluster.lines(f"{path}/log", query, read=REOPEN_AFTER if follow else None):
                if again[raw]:
                    again[raw] -= 1
                    continue
                stamp, _, text = raw.decode(errors="replace").partition(" ")
                if stamp[:19] > last[:19]:
                    of_last_second.clear()
                of_last_second[raw] += 1
                last, cuts = max(last, stamp), 0
                yield PodLine(stamp, pod.who, text, pod.rank or 0)
            # A server may end a stream while the pod still writes.
            now = (cluster.find(path) or {}).get("status", {}) if follow else {}
            if now.get("phase") not in ("Pending", "Running"):
                return
            outage.end()
        except ApiError as error:
            # A container that has not started has written nothing, and neither has a pod that is
            # gone.
            if error.status not in (400, 404):
                raise
            if error.status == 404 or not follow:
                return
        except StreamLost:
            outage.end()
            cuts += 1
            if ended is None and cuts >= TRIES:
                raise
        except Unreachable as error:
            if ended is None:
                raise
            outage.wait(error)
        time.sleep(REOPEN_PAUSE)


def follow_job(
    job: Follower,
    show: Callable[[PodLine], None],
    match: PodSelection = TRAINING,
    tail: int | None = None,
) -> JobView:
    """Shows lines as they arrive until the job has ended, says why pods do not start, and returns
    the job's last view.
    """
    one_by_one, job_ended = threading.Lock(), threading.Event()
    readers: dict[str, threading.Thread] = {}
    failures: list[BaseException] = []

    def read(pod: PodState) -> None:
        try:
            for line in _read_pod(job.cluster, job.namespace, pod, tail, job_ended):
                with one_by_one:
                    show(line)
        except BaseException as error:  # Also the exit that rich raises when nobody reads any more.
            failures.append(error)

    seen = JobView(job.name, job.namespace, None, None, ())
    has_ended = ENDS[match.of]
    for seen in job.poll():
        for pod in seen.pods:
            begun = pod.phase in ("running", "done", "failed", "ending")
            if begun and match.includes(pod) and pod.name not in readers:
                readers[pod.name] = threading.Thread(target=read, args=(pod,), daemon=True)
                readers[pod.name].start()
        job.tell(seen, only_what_waits=True)
        if has_ended(seen) or failures:
            break
    job_ended.set()
    for reader in () if failures else readers.values():
        reader.join(timeout=30)
    if failures:
        raise failures[0]
    return seen

"""The Job controller of one rehearsal: pods by index, retries, the back-off limit and the failure
policy.

Follows https://kubernetes.io/docs/concepts/workloads/controllers/job/. A failed index gets a new
pod at a new address, with the same hostname if the Job is Indexed. The Job ends as Complete, or,
after every other pod has ended, as Failed with Kubernetes' own reason.
"""

import asyncio
import secrets
import string
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from paddle_node.contract import Label, Variable

from paddle_aws.rehearsal.pods.addresses import AddressBlock
from paddle_aws.rehearsal.pods.environment import PodFacts
from paddle_aws.rehearsal.pods.manifests import (
    AnyJob,
    Container,
    EnvironmentEntry,
    Job,
    PodTemplate,
)
from paddle_aws.rehearsal.pods.pod import Host, Pod, PodEnd, back_off

_SUFFIX = string.ascii_lowercase + string.digits
ENDED = "ended with the job"
"""The reason of a pod that ended because its Job ended."""
CANCELLED = "Cancelled"
"""The reason of a Job that was cancelled."""
POLL_INTERVAL = 0.2
"""Seconds between two checks for changes."""


class Watcher:
    """Receives each pod's start and end; this base class ignores them."""

    def prepare(self, job: AnyJob, host: Host) -> tuple[AnyJob, Host]:
        """Returns the job and the host that replace these before any pod starts."""
        return job, host

    def pod_started(self, pod: Pod, index: int | None) -> None: ...

    def pod_ended(self, pod: Pod, index: int | None, end: PodEnd, verdict: str) -> None: ...

    async def follow(self) -> None:
        """Runs alongside the pods until it is cancelled at their end."""


@dataclass(frozen=True)
class JobResult:
    """`reason` is the Job condition's: CompletionsReached, BackoffLimitExceeded, PodFailurePolicy,
    ...
    """

    succeeded: bool
    reason: str
    ended: tuple[PodEnd, ...] = ()
    """The ends of all pods, in order of time."""
    culprit: PodEnd | None = None
    """The pod whose failure ended the Job; of those that end together, the one whose own program
    failed.
    """
    retries: int = 0


async def run_job(
    job: Job,
    host: Host,
    addresses: AddressBlock,
    *watchers: Watcher,
    cancelled: Callable[[], bool] = lambda: False,
) -> JobResult:
    """Runs `job` on this machine. Cancelling the call kills every pod before it returns; once
    `cancelled()` is true, the pods get their grace period, and the job ends as `CANCELLED`.
    """
    uid = str(uuid.uuid4())
    makers = [partial(_pod, job, uid, index, host, addresses) for index in range(job.completions)]
    return await PodsRun(job, makers, watchers, cancelled).run()


class PodsRun:
    """One run of pods under a Job's rules for failures."""

    def __init__(
        self,
        job: Job,
        pods: Sequence[Callable[[], Pod]],
        watchers: Sequence[Watcher],
        cancelled: Callable[[], bool],
    ) -> None:
        """`pods`: for each index a function that returns its next pod."""
        self.job, self.pod_makers, self.watchers, self._cancelled = job, pods, watchers, cancelled
        self._pods: set[Pod] = set()
        self._failures = 0
        self._ends: list[PodEnd] = []
        self._culprit: PodEnd | None = None
        self._reason = ""

    async def run(self) -> JobResult:
        """Runs the pods to their end."""
        tasks = [asyncio.create_task(self._index(index)) for index in range(len(self.pod_makers))]
        following = [watcher.follow() for watcher in self.watchers]
        beside = list(map(asyncio.create_task, (*following, self._follow_cancellation())))
        try:
            done, late = await asyncio.wait(
                tasks, timeout=self.job.deadline, return_when=asyncio.FIRST_EXCEPTION
            )
            if late and not any(task.exception() for task in done):
                await self._fail("DeadlineExceeded")
            await asyncio.gather(*tasks)
        finally:
            # What follows the pods sees their ends.
            for group in (tasks, beside):
                for task in group:
                    task.cancel()
                await asyncio.gather(*group, return_exceptions=True)
        reason, culprit = self._reason, self._culprit if self._reason else None
        ended = tuple(self._ends)
        return JobResult(not reason, reason or "CompletionsReached", ended, culprit, self._failures)

    async def _index(self, index: int) -> None:
        """Runs one index's pods in turn until one succeeds, or no retry is allowed."""
        failures = 0
        while not self._reason:
            pod = self.pod_makers[index]()
            self._pods.add(pod)
            shown = index if self.job.indexed else None
            for watcher in self.watchers:
                watcher.pod_started(pod, shown)
            try:
                end = await pod.run()
            finally:
                self._pods.remove(pod)
            self._ends.append(end)
            if end.succeeded or self._reason:
                if self._culprit is not None and end.is_own and not self._culprit.is_own:
                    self._culprit = end
                self._report_end(pod, shown, end, "done" if end.succeeded else ENDED)
                return
            self._culprit = end
            verdict = self._verdict(end)
            if verdict == "Count":
                failures += 1
                self._failures += 1
                verdict = self._limits(failures)
            self._report_end(pod, shown, end, verdict)
            if verdict not in ("retry", "Ignore"):
                await self._fail(verdict)
                return
            # Failures that cost no retry still count for the back-off.
            per_index = self.job.back_off_limit_per_index is not None
            counted = f"{pod.hostname if per_index else self.job.name}-"
            names = [end.name for end in self._ends if not end.succeeded]
            await asyncio.sleep(back_off(sum(name.startswith(counted) for name in names)))

    def _report_end(self, pod: Pod, index: int | None, end: PodEnd, verdict: str) -> None:
        for watcher in self.watchers:
            watcher.pod_ended(pod, index, end, verdict)

    async def _follow_cancellation(self) -> None:
        while not self._cancelled():
            await asyncio.sleep(POLL_INTERVAL)
        await self._fail(CANCELLED)

    def _verdict(self, end: PodEnd) -> str:
        rule = next((rule for rule in self.job.failure_rules if rule.matches(end.codes)), None)
        if rule is None or end.deadline_exceeded:
            return "Count"
        return "PodFailurePolicy" if rule.action == "FailJob" else rule.action

    def _limits(self, failures_of_index: int) -> str:
        per_index = self.job.back_off_limit_per_index
        if per_index is not None and failures_of_index > per_index:
            return "MaxFailedIndexesExceeded"
        return "BackoffLimitExceeded" if self._failures > self.job.retries else "retry"

    async def _fail(self, reason: str) -> None:
        if not self._reason:
            self._reason = reason
            await asyncio.gather(*(pod.terminate() for pod in self._pods))


def _pod(job: Job, uid: str, index: int, host: Host, addresses: AddressBlock) -> Pod:
    base, template = f"{job.name}-{index}" if job.indexed else job.name, job.template
    name = f"{base}-{''.join(secrets.choice(_SUFFIX) for _ in range(5))}"
    labels = {
        **template.labels,
        **{"job-name": job.name, "controller-uid": uid},
        **{Label.JOB_NAME.value: job.name, Label.RUN_ID.value: uid},
    }
    annotations = dict(template.annotations)
    if job.indexed:
        labels[Label.INDEX.value] = annotations[Label.INDEX.value] = str(index)
        template = _add_index(template)
    account, shift = template.service_account, addresses.port_shift
    facts = PodFacts(name, job.namespace, labels, annotations, addresses.next(), account, shift)
    return Pod(host, template, facts, hostname=base if job.indexed else name)


def _add_index(template: PodTemplate) -> PodTemplate:
    """Sets JOB_COMPLETION_INDEX where a container does not, as the Job controller does."""
    entry = EnvironmentEntry(
        name=Variable.COMPLETION_INDEX, field_path=f"metadata.annotations['{Label.INDEX.value}']"
    )

    def add_entry(container: Container) -> Container:
        if entry.name in {variable.name for variable in container.environment}:
            return container
        return container.model_copy(update={"environment": (entry, *container.environment)})

    groups = ("init_containers", "containers")
    changes = {group: tuple(map(add_entry, getattr(template, group))) for group in groups}
    return template.model_copy(update=changes)


def last_lines(log: Path, count: int = 20) -> str:
    """The last `count` lines of a log that are not empty, for a message that gives the reason."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join([line for line in lines if line.strip()][-count:])

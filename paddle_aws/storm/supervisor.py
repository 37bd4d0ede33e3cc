"""Watches the pods of one run, and carries out the run's schedule of faults."""

import asyncio
import errno
import os
import re
import signal
import time
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from paddle_node.contract import Variable
from paddle_node.volume.job_folder import JobFolder
from paddle_node.volume.steps import LineReader

from paddle_aws.rehearsal.pods.container import CallFilter, RunningContainer
from paddle_aws.rehearsal.pods.job import POLL_INTERVAL
from paddle_aws.rehearsal.pods.manifests import Container, EnvironmentEntry, Job
from paddle_aws.rehearsal.pods.pod import Host, Pod, PodEnd
from paddle_aws.rehearsal.rehearse import Supervisor, job_folder
from paddle_aws.storm import connections
from paddle_aws.storm.calls import Call, CallReply, Listener, filter_program
from paddle_aws.storm.contents import read_output
from paddle_aws.storm.faults import COUNTED, FREEZES, SERVERS, VOLUME, Fault
from paddle_aws.storm.lines import GLOG, printable, read_numbers
from paddle_aws.storm.processes import (
    ancestors,
    children,
    descendants,
    send_signal,
    signal_processes,
)
from paddle_aws.storm.ranks import Rank, Ranks
from paddle_aws.storm.trace import Event, InflictedFault, Trace

ATTEMPTS = 20
"""Attempts without progress after which a storm's job ends, in place of `limits.attempts`: a storm
has more faults between two checkpoints than a cluster.
"""
_STALLED = re.compile(
    r"\[agent \d+\] attempt (\d+) ends: no step, no output and no progress for .*?"
    r"(?:silent first: (.*))?$"
)
"""The agent's line when an attempt hangs."""
_SLOW = 2.0
"""Seconds that an operation on a slow volume takes."""
_PATIENCE = 10.0
"""Seconds within which the target of a fault has to be there."""
_SCRATCH = ("/tmp/", "/var/tmp/", "/root/", "/home/")
_CACHES = re.compile(r"/\.cache/|/__pycache__/|/\.config/|\.pyc|/\.(?:paddle|nv|triton)/|\.lock$")
"""Files that programs write besides their results."""


@dataclass
class _VolumeFault:
    """A fault of the volume that lasts."""

    fault: Fault
    left: int
    """Operations that it still meets."""
    attempt: int | None = None
    """The attempt that it has met; None: none yet."""


class StormSupervisor(Supervisor):
    """Supervises one run. Its `trace` is complete when the run has ended."""

    def __init__(
        self,
        faults: Sequence[Fault],
        metrics: Mapping[str, str],
        *,
        processes: int,
        silence: float,
        stall: int | None,
        last_step: int | None,
        cancel: Path,
    ) -> None:
        """`metrics`: the job's patterns of lines that report steps; `processes`: ranks of each pod;
        `silence`: seconds without any event after which the run is ended; `stall`: those after
        which a pod counts as stalled, in place of the job's own `limits.stall_seconds`;
        `last_step`: the last that a calm run reports; `cancel`: the file that asks a rehearsal for
        its end.
        """
        self.trace = Trace()
        self._armed, self._silence, self._stall = list(faults), silence, stall
        self._last_step, self._cancel = last_step, cancel
        self._reader, self._ranks = LineReader(metrics), Ranks(processes)
        self.error: Exception | None = None
        """The error that made the storm fail; None: there is none."""
        self._began = self._last = time.monotonic()
        self._homes: dict[int, tuple[Pod, RunningContainer]] = {}
        """Each container and its pod, by the container's first process. Not by the pod's index: a
        pod of a Job without indexes learns its rank from its peers.
        """
        self._listeners: list[Listener] = []
        self._texts: dict[tuple[int, int], bytes] = {}
        self._inflicting: Fault | None = None
        self._volume_faults: dict[int, _VolumeFault] = {}
        """By rank."""
        self._refusals: dict[Fault, int] = {}
        self._disturbed = 0
        """The attempt of the last fault."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._saves = 0
        self._saving: dict[int, Path] = {}
        """The file that each thread has opened last to write it."""
        self._saved: dict[Path, int] = {}
        """The attempt that wrote each file below output/."""
        self._writers: dict[str, int] = {}
        """The same by the file's path below the attempt's output: where a command resumes, its
        files are in the new attempt's folder.
        """
        self._appended: set[Path] = set()
        self._scratch: dict[str, int] = {}
        self._results: dict[int, dict[str, float]] = {}
        """By rank: the job's metrics in lines without a step; where it has none, the numbers in the
        last line with any.
        """

    # What the rehearsal calls.

    def prepare(self, job: Job, host: Host) -> tuple[Job, Host]:
        self._volume = host.volume.resolve()
        self._folder = JobFolder(job_folder(job, host).root.resolve())
        self._pod_folder = host.pods.resolve()
        self._quick = (str(host.interpreter.resolve().parent), "/usr/", "/lib", "/proc/", "/sys/",
                       "/etc/", "/dev/")  # fmt: skip
        containers = tuple(map(self._with_variables, job.template.containers))
        template = job.template.model_copy(update={"containers": containers})
        self._began = self._last = time.monotonic()
        filtered = replace(host, call_filter=self._filter)
        return job.model_copy(update={"template": template}), filtered

    def _with_variables(self, container: Container) -> Container:
        changed = {Variable.PRINT_STEPS.value: "1"}
        if self._stall is not None:
            changed[Variable.STALL.value] = str(self._stall)
            changed[Variable.ATTEMPTS.value] = str(ATTEMPTS)
        kept = [entry for entry in container.environment if entry.name not in changed]
        more = [EnvironmentEntry(name=name, value=value) for name, value in changed.items()]
        return container.model_copy(update={"environment": (*kept, *more)})

    def pod_started(self, pod: Pod, index: int | None) -> None:
        self._note_life()
        self._say(f"pod {pod.facts.name} starts")

    def pod_ended(self, pod: Pod, index: int | None, end: PodEnd, verdict: str) -> None:
        codes = ", ".join(map(str, end.codes.values()))
        self._say(f"pod {pod.facts.name} ended with {codes}: {verdict}")
        self._note_life()

    async def follow(self) -> None:
        """Ends a run without events."""
        try:
            while True:
                await asyncio.sleep(POLL_INTERVAL)
                if time.monotonic() - self._last > self._silence:
                    self.trace.silent = True
                    self._say(f"nothing has happened for {self._silence:.0f} s: the run is ended")
                    self._cancel.touch()
                    return
        finally:
            self._finish()

    def _finish(self) -> None:
        """Completes the trace."""
        self._note_life()
        for listener in self._listeners:
            listener.close()
        for task in self._tasks:
            task.cancel()
        self.trace.inflicted += [InflictedFault(fault, None) for fault in self._armed]
        for place, inflicted in enumerate(self.trace.inflicted):
            if (met := self._refusals.get(inflicted.fault)) is not None:
                effect = f"met {met} operations"
                self.trace.inflicted[place] = InflictedFault(
                    inflicted.fault, inflicted.seconds, effect, inflicted.attempt
                )
        self.trace.servers = self._ranks.servers
        self.trace.seconds = time.monotonic() - self._began
        lowest = min(self._results, default=None)
        if lowest is not None:
            self.trace.last = self._results[lowest]
        self.trace.files = read_output(self._folder, self.trace.attempts)
        self.trace.elsewhere = sorted(self._scratch)

    # What happens.

    def _filter(self, pod: Pod) -> CallFilter:
        def listen(container: RunningContainer, listener: int) -> None:
            self._homes[container.init] = pod, container
            answer = partial(self._answer, container)
            self._listeners.append(Listener(listener, answer, self._note_done, self._give_up))

        return CallFilter(filter_program(), listen)

    def _give_up(self, error: Exception) -> None:
        """Ends the run, because the storm's code failed on something that the program did."""
        if self.error is None:
            self.error = error
            self._say(f"the storm failed: {error!r}")
            self._cancel.touch()

    def _answer(
        self, container: RunningContainer, call: Call
    ) -> CallReply | Awaitable[CallReply | None] | None:
        quick = call.opens and not call.writes and call.name.startswith(self._quick)
        if (
            not quick
            and self._ranks.find(call.process) is None
            and self._ranks.is_unannounced(call.process)
        ):
            return self._answer_later(container, call)
        return self._answer_now(container, call)

    async def _answer_later(self, container: RunningContainer, call: Call) -> CallReply | None:
        """Answers a process of the program once the agent has said which it is."""
        deadline = time.monotonic() + _PATIENCE
        while self._ranks.find(call.process) is None and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
            self._ranks.forget(call.process)
        if self._ranks.find(call.process) is None:
            self._ranks.leave_out(call.process)
        answer = self._answer_now(container, call)
        return answer if answer is None or isinstance(answer, CallReply) else await answer

    def _answer_now(
        self, container: RunningContainer, call: Call
    ) -> CallReply | Awaitable[CallReply | None] | None:
        if call.prints:
            return self._answer_print(container, call)
        if call.exits:
            return self._answer_exit(call)
        if call.opens and not call.writes and call.name.startswith(self._quick):
            return CallReply()
        rank = self._ranks.find(call.process)
        if rank is None:
            return CallReply()
        self._note_life()
        path = call.path if not call.syncs else None
        if path is not None and not path.is_relative_to(self._volume):
            self._note_outside(call, path, rank)
            return CallReply()
        if answer := self._answer_of_volume(call, rank, path):
            return answer
        if path is None or not self._is_output(path):
            return CallReply()
        if call.opens and not call.writes:
            if self._writers.get(self._below(path), rank.attempt) < rank.attempt:
                self._add(
                    Event("load", self._now(), rank.attempt, rank.rank, path=self._below(path))
                )
                if fault := self._take_due("load"):
                    return self._inflict(fault, call)
            return CallReply()
        if call.writes and not call.flags & os.O_APPEND:
            saved = self._answer_saved(call)
            self._saves += 1
            self._saved[path] = self._writers[self._below(path)] = rank.attempt
            self._saving[call.thread] = path
            self._add(Event("save", self._now(), rank.attempt, rank.rank, path=self._below(path)))
            if fault := self._take_due("save", self._saves):
                # As if the file had been opened, but not written yet.
                _create(path, call.flags)
                return self._inflict(fault, call)
            return saved
        if call.renames:
            # This attempt wrote the file that is there afterwards.
            self._saved[path] = self._writers[self._below(path)] = rank.attempt
            self._saving[call.thread] = path
        elif call.writes:
            self._appended.add(path)
        return CallReply()

    def _answer_print(
        self, container: RunningContainer, call: Call
    ) -> CallReply | Awaitable[CallReply | None]:
        self._note_line(call)
        if self._ranks.is_captured(call.process, call.arguments[0]):
            call.drop_text()
            return CallReply()
        rank = self._ranks.find(call.process)
        if rank is None:
            # Only the container's first process is the agent: a program may print anything.
            if call.process in children(container.init):
                self._read_agent(call.text, container)
            return CallReply()
        step = self._step_in(call)
        if step is not None and (fault := self._take_due("step", step)):
            # The program has done this step, whatever happens next.
            self._note_done(call)
            self._read_held(call, rank)
            return self._inflict(fault, call)
        return self._answer_saved(call)

    def _answer_exit(self, call: Call) -> CallReply | Awaitable[CallReply | None]:
        rank = self._ranks.find(call.process)
        whole = rank is not None and rank.pid == call.process and self._has_reported_all_steps()
        if whole and call.arguments[0] == 0 and (fault := self._take_due("end")):
            return self._inflict(fault, call)
        return CallReply()

    def _answer_saved(self, call: Call) -> CallReply | Awaitable[CallReply | None]:
        """Notes that the file is written that this thread opened before."""
        path = self._saving.pop(call.thread, None)
        rank = self._ranks.find(call.process)
        if path is None or rank is None:
            return CallReply()
        self._add(Event("saved", self._now(), rank.attempt, rank.rank, path=self._below(path)))
        if fault := self._take_due(
            "saved", sum(event.kind == "saved" for event in self.trace.events)
        ):
            return self._inflict(fault, call)
        return CallReply()

    def _note_done(self, call: Call) -> None:
        if not call.prints:
            return
        with suppress(OSError):
            rank = self._ranks.find(call.process)
            if rank is None:
                return
            key = call.process, call.arguments[0]
            *lines, rest = re.split(rb"[\r\n]", self._texts.get(key, b"") + call.text)
            self._texts[key] = rest[-2000:]
            if rank.trains:
                for line in lines:
                    self._read_line(line.decode(errors="replace"), replace(rank, pid=call.process))
            call.drop_text()

    def _read_line(self, line: str, rank: Rank) -> None:
        if not line.strip():
            return
        self._say(f"rank {rank.rank}: {line[:300]}")
        step, metrics = self._reader.parse(line)
        if step is not None:
            self._ranks.reporting[rank.rank] = rank
            self.trace.add_step(Event("step", self._now(), rank.attempt, rank.rank, step, metrics))
            return
        if self._reader.metrics:
            self._results.setdefault(rank.rank, {}).update(metrics)
        elif (values := read_numbers(line)) and not GLOG.match(line):
            self._results[rank.rank] = values

    def _read_held(self, call: Call, rank: Rank) -> None:
        """Notes a step whose line has not ended yet: `print` writes the end of a line by itself.
        The rest of the line is read when it has ended.
        """
        rest = self._texts.get((call.process, call.arguments[0]), b"").decode(errors="replace")
        if rank.trains and (step := self._reader.parse(rest).step) is not None:
            self.trace.add_step(Event("step", self._now(), rank.attempt, rank.rank, step))

    def _step_in(self, call: Call) -> int | None:
        """Returns the newest step in a text that is about to be printed."""
        key = call.process, call.arguments[0]
        text = (self._texts.get(key, b"") + call.text).decode(errors="replace")
        steps = [self._reader.parse(line).step for line in re.split(r"[\r\n]", text)]
        return next((step for step in reversed(steps) if step is not None), None)

    def _read_agent(self, text: bytes, container: RunningContainer) -> None:
        for line in map(printable, text.decode(errors="replace").splitlines()):
            if line.startswith("[agent"):
                self._say(line)
            if match := _STALLED.match(line):
                self.trace.stalled.setdefault(int(match[1]), (self._now(), match[2]))
        newest = self._ranks.attempt
        for rank in self._ranks.learn(text, container.init):
            if rank.attempt > newest:
                newest = rank.attempt
                self._add(Event("start", self._now(), rank.attempt, rank.rank))
                self._say(f"attempt {rank.attempt} starts")
                if fault := self._take_due("start"):
                    self._keep(self._inflict(fault, None))

    # The faults.

    def _take_due(self, event: str, number: int = 0) -> Fault | None:
        """Returns the next fault if this is its event, and then arms the following one."""
        if self._inflicting is not None or not self._armed:
            return None
        fault = self._armed[0]
        if fault.event == "load" and event in COUNTED and self._ranks.attempt > self._disturbed:
            # The attempt after the last fault began from the beginning.
            self.trace.inflicted.append(InflictedFault(self._armed.pop(0), None))
            return self._take_due(event, number)
        if fault.event != event or number < fault.number:
            return None
        self._inflicting = fault
        return self._armed.pop(0)

    async def _inflict(self, fault: Fault, call: Call | None) -> CallReply | None:
        """Does what the fault says, and those of the same event on other ranks with it, while the
        call at whose event they come waits.
        """
        faults = [fault]
        while (
            self._armed
            and (self._armed[0].event, self._armed[0].number) == (fault.event, fault.number)
            and self._armed[0].rank not in {earlier.rank for earlier in faults}
        ):
            faults.append(self._armed.pop(0))
        for simultaneous in faults:
            await self._inflict_alone(simultaneous)
        self._inflicting = None
        if call is not None and not call.prints and not call.exits:
            rank = self._ranks.find(call.process)
            path = None if call.syncs else call.path
            if rank is not None and (refused := self._answer_of_volume(call, rank, path)):
                return await refused if not isinstance(refused, CallReply) else refused
        return CallReply()

    async def _inflict_alone(self, fault: Fault) -> None:
        seconds = self._now()
        self._say(f"fault: {fault}")
        attempt = self._disturbed = self._ranks.attempt
        try:
            effect = await self._do(fault)
        except OSError as error:
            effect = f"not possible: {error.strerror}"
        self._say(f"{fault}: {effect}")
        self.trace.inflicted.append(InflictedFault(fault, seconds, effect, attempt))

    async def _do(self, fault: Fault) -> str:
        """Returns what it did, in words."""
        kind = fault.kind
        if kind in VOLUME:
            self._volume_faults[fault.rank] = _VolumeFault(fault, VOLUME[kind])
            self._refusals[fault] = 0
            return "met 0 operations"
        rank = await self._wait_for(fault.rank, kind not in SERVERS)
        inits = [above for above in ancestors(rank.pid) if above in self._homes] if rank else []
        if rank is None or not inits:
            return "no effect: the rank was not there"
        pod, container = self._homes[inits[0]]
        if kind == "damage-checkpoint":
            if what := self._damage():
                signal_processes([rank.pid], container.init, signal.SIGKILL)
            return what or "no effect: there is no older checkpoint beside the newest"
        if kind in ("kill-rank", "kill-server"):
            signal_processes([rank.pid], container.init, signal.SIGKILL)
        elif kind == "kill-agent":
            signal_processes(children(container.init), container.init, signal.SIGKILL)
        elif kind == "kill-pod":
            self._keep(pod.kill())
        elif kind == "spot-notice":
            self._keep(pod.terminate())
        elif kind in FREEZES:
            top = rank.pid if kind != "freeze-pod" else children(container.init)[0]
            self._keep(self._freeze([top, *descendants(top)], container.init, FREEZES[kind]))
        elif kind in ("cut", "half-open"):
            with ExitStack() as stack:
                ours = signal_processes([rank.pid], container.init, signal.SIGCONT, stack)
                half_open = kind == "half-open"
                count = sum(connections.cut(rank.pid, pidfd, half_open=half_open) for pidfd in ours)
            return f"{count} connections" if count else "no effect: the rank has no connection"
        return f"process {rank.pid}"

    async def _wait_for(self, number: int, trains: bool) -> Rank | None:
        deadline = time.monotonic() + _PATIENCE
        while (
            rank := self._ranks.find_newest(number, trains)
        ) is None and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        return rank

    async def _freeze(self, pids: Sequence[int], init: int, seconds: float) -> None:
        with ExitStack() as stack:
            for process in signal_processes(pids, init, signal.SIGSTOP, stack):
                stack.callback(send_signal, process, signal.SIGCONT)
            await asyncio.sleep(seconds)

    def _damage(self) -> str:
        written = [
            path
            for path in self._saved
            if path not in self._appended and path.is_file() and path.stat().st_size
        ]
        newest = max(written, key=lambda path: path.stat().st_mtime_ns, default=None)
        older = [
            path
            for path in written
            if newest is not None
            and self._below(path) != self._below(newest)
            and self._without_numbers(path) == self._without_numbers(newest)
        ]
        # Without an older checkpoint, no program could have survived this.
        if newest is None or not older:
            return ""
        size = newest.stat().st_size
        os.truncate(newest, size // 2)
        beside = self._below(max(older, key=lambda path: path.stat().st_mtime_ns))
        return f"{self._below(newest)} has {size // 2} of {size} bytes; {beside} lies beside it"

    def _answer_of_volume(
        self, call: Call, rank: Rank, path: Path | None
    ) -> CallReply | Awaitable[CallReply] | None:
        """Returns the answer to a call on the volume during a fault of the volume; None: there is
        no such fault, or it does not concern this call.
        """
        lasting = self._volume_faults.get(rank.rank)
        if lasting is None or not rank.trains or call.prints or call.exits:
            return None
        if lasting.attempt is not None and rank.attempt > lasting.attempt:
            del self._volume_faults[rank.rank]  # It ends with the attempt that met it.
            return None
        fault = lasting.fault
        changes = call.writes or call.renames or call.removes or not (call.opens or call.syncs)
        answer: CallReply | Awaitable[CallReply]
        if fault.kind == "volume-full":
            if not (call.opens and call.writes) or path is None:
                return None
            _create(path, call.flags)
            answer = CallReply(file=os.open("/dev/full", os.O_RDWR))
        elif fault.kind == "volume-failing":
            answer = CallReply(errno.EIO)
        elif fault.kind == "volume-read-only":
            if not changes:
                return None
            answer = CallReply(errno.EROFS)
        else:
            answer = _later()
        lasting.attempt = lasting.attempt or rank.attempt
        self._refusals[fault] += 1
        name = "a sync" if path is None else self._below(path)
        self._say(f"{fault}: rank {rank.rank} meets it at {name}")
        lasting.left -= 1
        if not lasting.left:
            del self._volume_faults[rank.rank]
        return answer

    # Records.

    def _note_outside(self, call: Call, path: Path, rank: Rank) -> None:
        """Notes files that the program writes where they are lost with the pod."""
        name = str(path)
        if not name.startswith(_SCRATCH) and not path.is_relative_to(self._pod_folder):
            return
        if _CACHES.search(name) or not call.opens:
            return
        if path.is_relative_to(self._pod_folder):
            # <pod>/<container>/<path in it>: the same place in each pod of a rank.
            name = "/" + "/".join(path.relative_to(self._pod_folder).parts[2:])
        name = printable(name)
        if (call.writes and not path.exists()) or call.flags & os.O_TRUNC:
            self._scratch.setdefault(name, rank.attempt)
        elif self._scratch.get(name, rank.attempt) < rank.attempt and name not in (
            self.trace.outside
        ):
            self.trace.outside.append(name)

    def _is_output(self, path: Path) -> bool:
        """Whether the program keeps the file: logs and reports of its steps are the agents'."""
        return path.is_relative_to(self._folder.output) and not re.fullmatch(
            r"(train|server|rank-\d+)\.log|(metrics|steps)\S*\.jsonl|log", path.name
        )

    def _below(self, path: Path) -> str:
        """The path below the output or, of an attempt's folder, below that: the next attempt has
        the same files in its own.
        """
        if path.is_relative_to(self._folder.attempts):
            path = Path(*path.relative_to(self._folder.attempts).parts[1:])
        for folder in (self._folder.output, self._folder.root):
            if path.is_relative_to(folder):
                path = path.relative_to(folder)
        return printable(str(path))

    def _without_numbers(self, path: Path) -> str:
        """What checkpoints of a series have in common: the path without its numbers."""
        return re.sub(r"\d+", "#", self._below(path))

    def _has_reported_all_steps(self) -> bool:
        steps = [event.step or 0 for event in self.trace.events if event.kind == "step"]
        return self._last_step is None or max(steps, default=0) >= self._last_step

    def _add(self, event: Event) -> None:
        self.trace.events.append(event)

    def _say(self, text: str) -> None:
        self.trace.lines.append(f"{self._now():7.2f}  {printable(text)}")

    def _now(self) -> float:
        return time.monotonic() - self._began

    def _note_life(self) -> None:
        now = time.monotonic()
        self.trace.longest_silence = max(self.trace.longest_silence, now - self._last)
        self._last = now

    def _note_line(self, call: Call) -> None:
        """A line of a rank is a sign of life; a line of an agent is not."""
        if self._ranks.find(call.process) is not None:
            self._note_life()

    def _keep(self, work: Awaitable[object]) -> None:
        async def run() -> None:
            await work

        task = asyncio.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _create(path: Path, flags: int) -> None:
    """Changes a file as an open for writing does, before anything is written. Raises OSError."""
    # Without blocking: the program may have replaced it by a pipe.
    kept = flags & (os.O_CREAT | os.O_EXCL | os.O_TRUNC | os.O_NOFOLLOW)
    os.close(os.open(path, kept | os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC, 0o644))


async def _later() -> CallReply:
    await asyncio.sleep(_SLOW)
    return CallReply()

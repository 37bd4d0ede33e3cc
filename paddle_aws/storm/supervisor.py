"""Watches the pods of one run: it answers the calls of their programs, records what they do, and
lets the faults come at their events.
"""

import asyncio
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from paddle_node.contract import Variable
from paddle_node.volume.job_folder import JobFolder
from paddle_node.volume.steps import one_line

from paddle_aws.rehearsal.pods.container import CallFilter, RunningContainer
from paddle_aws.rehearsal.pods.job import POLL_INTERVAL, Watcher
from paddle_aws.rehearsal.pods.manifests import AnyJob, EnvironmentEntry
from paddle_aws.rehearsal.pods.pod import Host, Pod, PodEnd
from paddle_aws.rehearsal.rehearse import job_folder
from paddle_aws.storm.calls import Call, CallReply, Listener, filter_program
from paddle_aws.storm.contents import read_output
from paddle_aws.storm.faults import Fault
from paddle_aws.storm.inflictor import PATIENCE, Inflictor
from paddle_aws.storm.processes import children
from paddle_aws.storm.program_files import ProgramFiles, create_file
from paddle_aws.storm.ranks import Rank, Ranks
from paddle_aws.storm.recorder import Recorder
from paddle_aws.storm.trace import Trace

ATTEMPTS = 20
"""Attempts without progress after which a storm's job ends, in place of `limits.attempts`: a storm
has more faults between two checkpoints than a cluster.
"""
_STALLED = re.compile(
    r"\[agent \d+\] attempt (\d+) ends: no step, no output and no progress for .*?"
    r"(?:silent first: (.*))?$"
)
"""The agent's line when an attempt hangs."""


class StormSupervisor(Watcher):
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
        self._faults, self._silence, self._stall = faults, silence, stall
        self._last_step, self._cancel = last_step, cancel
        self._ranks = Ranks(processes)
        self._recorder = Recorder(metrics, self._ranks)
        self.error: Exception | None = None
        """The error that made the storm fail; None: there is none."""
        self._homes: dict[int, tuple[Pod, RunningContainer]] = {}
        self._listeners: list[Listener] = []

    @property
    def trace(self) -> Trace:
        return self._recorder.trace

    # What the rehearsal calls.

    def prepare(self, job: AnyJob, host: Host) -> tuple[AnyJob, Host]:
        folder = JobFolder(job_folder(job, host).root.resolve())
        self._files = ProgramFiles(host.volume.resolve(), folder, host.pods.resolve())
        self._inflictor = Inflictor(
            self._faults, self._ranks, self._recorder, self._files, self._homes
        )
        self._quick = (str(host.interpreter.resolve().parent), "/usr/", "/lib", "/proc/", "/sys/",
                       "/etc/", "/dev/")  # fmt: skip
        changed = {Variable.PRINT_STEPS.value: "1"}
        if self._stall is not None:
            changed[Variable.STALL.value] = str(self._stall)
            changed[Variable.ATTEMPTS.value] = str(ATTEMPTS)
        environment = job.template.containers[0].environment
        kept = [entry for entry in environment if entry.name not in changed]
        more = [EnvironmentEntry(name=name, value=value) for name, value in changed.items()]
        template = job.template.change_first(environment=(*kept, *more))
        self._recorder.begin()
        filtered = replace(host, call_filter=self._filter)
        return job.model_copy(update={"template": template}), filtered

    def pod_started(self, pod: Pod, index: int | None) -> None:
        self._recorder.note_life()
        self._recorder.say(f"pod {pod.facts.name} starts")

    def pod_ended(self, pod: Pod, index: int | None, end: PodEnd, verdict: str) -> None:
        codes = ", ".join(map(str, end.codes.values()))
        self._recorder.say(f"pod {pod.facts.name} ended with {codes}: {verdict}")
        self._recorder.note_life()

    async def follow(self) -> None:
        """Ends a run without events."""
        try:
            while True:
                await asyncio.sleep(POLL_INTERVAL)
                if self._recorder.silence > self._silence:
                    self.trace.silent = True
                    words = f"nothing has happened for {self._silence:.0f} s: the run is ended"
                    self._recorder.say(words)
                    self._cancel.touch()
                    return
        finally:
            self._finish()

    def _finish(self) -> None:
        self._recorder.finish()
        for listener in self._listeners:
            listener.close()
        self._inflictor.finish()
        self.trace.servers = self._ranks.servers
        self.trace.files = read_output(self._files.folder, self.trace.attempts)
        self.trace.elsewhere, self.trace.outside = self._files.elsewhere, self._files.outside

    # What happens.

    def _filter(self, pod: Pod) -> CallFilter:
        def listen(container: RunningContainer, listener: int) -> None:
            self._homes[container.init] = pod, container
            answer, note = partial(self._answer, container), self._recorder.read_printed
            self._listeners.append(Listener(listener, answer, note, self._give_up))

        return CallFilter(filter_program(), listen)

    def _give_up(self, error: Exception) -> None:
        """Ends the run, because the storm's code failed on something that the program did."""
        if self.error is None:
            self.error = error
            self._recorder.say(f"the storm failed: {error!r}")
            self._cancel.touch()

    def _is_quick(self, call: Call) -> bool:
        """Whether a call reads what is no program's: it is answered without a look at the rank."""
        return call.does == "open" and not call.writes and call.name.startswith(self._quick)

    async def _answer(self, container: RunningContainer, call: Call) -> CallReply:
        rank = None
        if not self._is_quick(call):
            rank = self._ranks.find(call.process) or await self._wait_for_rank(call.process)
        if call.does == "print":
            return await self._answer_print(container, call)
        if call.does == "exit":
            return await self._answer_exit(call)
        if rank is None:
            return CallReply()
        self._recorder.note_life()
        path = call.path if call.does != "sync" else None
        if path is not None and not path.is_relative_to(self._files.volume):
            self._files.note_outside(call, path, rank)
            return CallReply()
        if answer := await self._inflictor.answer_of_volume(call, rank, path):
            return answer
        if path is None or not self._files.is_output(path):
            return CallReply()
        return await self._answer_output(call, path, rank)

    async def _wait_for_rank(self, process: int) -> Rank | None:
        """Waits until the agent has said which rank a process of the program is."""
        if not self._ranks.is_unannounced(process):
            return None
        deadline = time.monotonic() + PATIENCE
        while (rank := self._ranks.find(process)) is None and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
            self._ranks.forget(process)
        if rank is None:
            self._ranks.leave_out(process)
        return rank

    async def _answer_output(self, call: Call, path: Path, rank: Rank) -> CallReply:
        """Answers a call on a file that the program keeps."""
        files = self._files
        if call.does == "open" and not call.writes:
            if files.is_of_earlier_attempt(path, rank.attempt):
                self._recorder.add("load", rank, files.below(path))
                return await self._answer_with(self._inflictor.take_due("load"), call)
        elif call.writes and not call.flags & os.O_APPEND:
            saved = self._note_saved(call)
            files.saves += 1
            files.note_write(path, call.thread, rank.attempt)
            self._recorder.add("save", rank, files.below(path))
            if saved is None and (saved := self._inflictor.take_due("save", files.saves)):
                # As if the file had been opened, but not written yet.
                create_file(path, call.flags)
            return await self._answer_with(saved, call)
        elif call.does == "rename":
            # This attempt wrote the file that is there afterwards.
            files.note_write(path, call.thread, rank.attempt)
        elif call.writes:
            files.note_append(path)
        return CallReply()

    async def _answer_with(self, fault: Fault | None, call: Call) -> CallReply:
        """Lets a fault come, if it is its turn, and answers the call."""
        return await self._inflictor.inflict(fault, call) if fault else CallReply()

    async def _answer_print(self, container: RunningContainer, call: Call) -> CallReply:
        rank = self._ranks.find(call.process)
        if rank is not None:  # A line of an agent is no sign of life.
            self._recorder.note_life()
        if self._ranks.is_captured(call.process, call.arguments[0]):
            call.drop_text()
            return CallReply()
        if rank is None:
            # Only the container's first process is the agent: a program may print anything.
            if call.process in children(container.init):
                self._read_agent(call.text, container)
            return CallReply()
        step = self._recorder.find_step(call)
        if step is not None and (fault := self._inflictor.take_due("step", step)):
            # The program has done this step, whatever happens next.
            self._recorder.read_printed(call)
            self._recorder.read_begun_line(call, rank)
            return await self._inflictor.inflict(fault, call)
        return await self._answer_with(self._note_saved(call), call)

    async def _answer_exit(self, call: Call) -> CallReply:
        rank = self._ranks.find(call.process)
        whole = rank is not None and rank.pid == call.process
        if whole and call.arguments[0] == 0 and self._recorder.has_reported(self._last_step):
            return await self._answer_with(self._inflictor.take_due("end"), call)
        return CallReply()

    def _note_saved(self, call: Call) -> Fault | None:
        """Notes that the file is written that this thread opened before. Returns the fault that is
        due.
        """
        path = self._files.take_written(call.thread)
        rank = self._ranks.find(call.process)
        if path is None or rank is None:
            return None
        self._recorder.add("saved", rank, self._files.below(path))
        return self._inflictor.take_due("saved", self._recorder.count("saved"))

    def _read_agent(self, text: bytes, container: RunningContainer) -> None:
        for line in map(one_line, text.decode(errors="replace").splitlines()):
            if line.startswith("[agent"):
                self._recorder.say(line)
            if match := _STALLED.match(line):
                self.trace.stalled.setdefault(int(match[1]), (self._recorder.now, match[2]))
        newest = self._ranks.attempt
        for rank in self._ranks.learn(text, container.init):
            if rank.attempt > newest:
                newest = rank.attempt
                self._recorder.add("start", rank)
                self._recorder.say(f"attempt {rank.attempt} starts")
                if fault := self._inflictor.take_due("start"):
                    self._inflictor.keep(self._inflictor.inflict(fault, None))

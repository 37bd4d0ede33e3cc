"""The worker group of a pod: runs a runtime's processes, attempt after attempt.

A worker runs only between `start` and `end`; the group reports each unexpected end to the
rendezvous server once. A standby process belongs to no attempt and outlives them.
"""

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from enum import Enum
from functools import partial
from typing import Any

from paddle_node import background, command_line
from paddle_node.agent import limits, ranks, world
from paddle_node.agent.output import say_as_agent
from paddle_node.agent.process_table import Entry
from paddle_node.agent.ranks import Python, Ranks
from paddle_node.agent.workers import Worker, Workers
from paddle_node.background import Tasks
from paddle_node.contract import FAIL_JOB, ExitCode, Variable
from paddle_node.environment import PodEnvironment
from paddle_node.failure import Failure
from paddle_node.rendezvous import messages as m
from paddle_node.rendezvous.current_attempt import SILENCE_SHARE
from paddle_node.rendezvous.policy import NOT_ITS_FAULT, Facts
from paddle_node.runtimes import Process, Runtime, python_program, remarks

MOST_NAMED = 5
"""Processes that one sentence names."""
SERVER_PROBE = 0.05
"""Seconds between two tries to connect to a pserver of this pod."""
ASK_SERVER = 5.0
"""Seconds between two health checks of this pod's pserver, and for each answer."""
LEAVE = 5.0
"""Seconds for pservers to end after the job is done."""
FULL = 10.0
"""The attempt ends after so many seconds without a free process id. The health probe would find
none either, and the kubelet would kill the pod.
"""
LOOK, LOOK_SHARE = 0.25, 0.05
"""Seconds between two looks at a command's processes at first, and that share of the attempt's age
later, up to `ASK_SERVER`.
"""
AFTER_RANKS = 1.0
"""Seconds for a script to end after its ranks were told to stop, and have ended."""
AFTER_LEAVE = 2.0
"""Seconds by which the message that all trainers leave may lag behind the end of a pserver that
noticed it first.
"""


SPAWNED = "spawn doesn't support multi-trainer"
"""Paddle's words if paddle.distributed.spawn is called in a job of several pods, on CPUs."""
KILLED, BUS_ERROR = 128 + signal.SIGKILL, 128 + signal.SIGBUS
SHORT_OF_SHARED = ("bus error", "Bus error", "BUS error", "insufficient shared memory")
"""Words of Paddle and torch when a data worker finds no room in /dev/shm."""


class PodState(Enum):
    """What this pod is doing."""

    WAITING = "waiting"
    RUNNING = "running"
    STOPPING = "stopping"


class WorkerGroup:
    """`tell` sends a message to the rendezvous server; without an argument, the pod's `Report`,
    which has changed.
    """

    def __init__(
        self, runtime: Runtime, pod: PodEnvironment, tasks: Tasks, tell: Callable[..., None]
    ) -> None:
        self._runtime = runtime
        self._pod = pod
        self._tasks = tasks
        self._tell = tell
        self._memory = limits.Memory(pod.environ)
        self._ranks = Ranks(pod, lambda rank: self._tasks.spawn(self._check_alone(ranks.MANY)))
        self._not_finite = ""
        """Which metrics are not finite, as was said last."""
        self._began = 0.0
        """When the attempt began, in seconds since 1970."""
        self._alone = False
        """Whether this pod was found to train alone."""
        self._workers = Workers(
            lambda worker: self._tasks.spawn(self._describe_end(worker)), self._ranks.note_exit
        )
        self.reap = self._workers.reap  # For workers whose signal was missed.
        self._processes: Sequence[Process] = ()
        self._running: list[Worker] = []
        self._standby: list[Worker] = []
        self._watching: list[asyncio.Task[None]] = []
        self.state = PodState.WAITING
        self.attempt = 0
        self.gone = True
        self.serving = self.silent = False
        self.ended: m.Ended = ""
        self.doubt = ""
        """What went wrong beside the training that is done."""
        self.place = ""
        """Where its trainers were when they ended after a long silence, in words."""
        self.leaving = False
        """Every trainer of the job is leaving: a pserver may end."""
        self._room = time.monotonic()
        """When this process could last start a thread."""

    @property
    def beat(self) -> m.Beat:
        """The pod's sign of life."""
        if self.state is PodState.WAITING:
            return m.Beat()
        trainers = [worker.quiet for worker in self._workers_of("trainer") if worker.code is None]
        quiet = min((worker.quiet for worker in self._running), default=None)
        return m.Beat(quiet, max(trainers, default=None))

    def stand_by(self, pod: PodEnvironment) -> None:
        """Starts the runtime's standby processes for the next attempt, unless some are standing by
        already.
        """
        self._pod = pod
        # What a program requires may bring other versions of what a standby has imported.
        if not self._standby and not pod.environment:
            for role, modules in self._runtime.standby.items():
                process = python_program.standby(pod, role, modules)
                self._standby.append(self._workers.start(process, self._name(process)))

    async def check(self, process: Process) -> str | None:
        """Runs a process that belongs to no attempt. Returns why it failed; empty: it succeeded;
        None: `end` killed it.
        """
        worker = self._workers.start(process, "node check", "node check")
        await worker.ended.wait()
        await background.call(worker.drain)
        if worker.wanted_end:
            return None
        ended = f"the check ended with {ranks.describe_code(worker.code)}"
        return (worker.error or ended) if worker.code else ""

    def start(
        self,
        pod: PodEnvironment,
        attempt: int,
        processes: Sequence[Process],
        addresses: Sequence[str],
        before: Callable[[], Coroutine[Any, Any, bool]] | None = None,
    ) -> None:
        """Begins an attempt of all pods with these addresses, by rank. Processes that wait for
        the pservers of all pods start when `serve` is called; none starts unless `before`, which
        tells why, returns True.
        """
        self._pod = pod
        self._ranks.begin(pod, addresses)
        witness = {Variable.WITNESS.value: str(self._ranks.folder)}
        processes = [
            replace(process, environ={**process.environ, **witness}) if process.judged else process
            for process in processes
        ]
        self.attempt, self._processes, self._running = attempt, processes, []
        self.state = PodState.RUNNING
        self.gone = self.serving = self.silent = self.leaving = False
        self.ended, self.doubt, self.place = "", "", ""
        self._alone, self._not_finite = False, ""
        self._began = time.time()
        self._memory.mark()
        if before is not None:
            self._watching = [self._tasks.spawn(self._launch_after(before))]
        else:
            self._launch_all()

    async def _launch_after(self, before: Callable[[], Coroutine[Any, Any, bool]]) -> None:
        if await before() and self.state is not PodState.WAITING:
            self._launch_all()

    def _launch_all(self) -> None:
        processes = self._processes
        for process in processes:
            if not process.waits_for_servers:
                self._launch(process)
        self._watching = [self._tasks.spawn(self._watch_servers())]
        if any(process.judged or process.world for process in processes):
            self._watching.append(self._tasks.spawn(self._watch_processes()))

    def look_for_room(self) -> None:
        """Reports the attempt as lost if its workers leave no process id in this pod. Call it every
        second.
        """
        if background.start(threading.Thread(target=int, daemon=True)):
            self._room = time.monotonic()
        elif self.state is PodState.RUNNING and time.monotonic() - self._room > FULL:
            count = self._workers.count()
            what = f"the program took all process ids of this pod, {count} for itself"
            self._say(what)
            self._tell(m.Lost(self.attempt, what))
            self._room = time.monotonic()

    def serve(self) -> None:
        if self.state is PodState.RUNNING:  # The server's message may cross a SIGTERM.
            for process in self._processes:
                if process.waits_for_servers:
                    self._launch(process)

    def stop(self) -> None:
        """Sends SIGTERM to whoever can save, then waits for their end."""
        if self.state is PodState.STOPPING:  # Its own SIGTERM may follow that of another pod.
            return
        self.state = PodState.STOPPING
        trainers = self._workers_of("trainer")
        if any(worker.process.judged for worker in trainers):
            self._watching.append(self._tasks.spawn(self._stop_ranks(trainers)))
        else:
            for worker in trainers:
                worker.signal(signal.SIGTERM)
        if not trainers:  # They were to start after the pservers: there is nothing to save.
            self.ended = "stopped"
        self._tell()

    async def end(self) -> None:
        """Ends every process of the attempt. Raises `Failure` if a process cannot be killed."""
        silent = [worker.quiet for worker in self._workers_of("trainer") if worker.code is None]
        if max(silent, default=0.0) > SILENCE_SHARE * self._pod.stall:
            self.place = await self._ranks.locate()
        self._rest()
        stubborn = await self._workers.end(self._standby)
        self._standby = [worker for worker in self._standby if worker.code is None]
        if stubborn:
            names = ", ".join(stubborn)
            raise Failure(
                ExitCode.CANNOT_END,
                f"{names} cannot be ended; this pod leaves, so that its replacement starts clean",
            )
        for worker in self._running:
            # A worker that ended on its own meanwhile shows better why the attempt ended.
            if worker.code and not worker.wanted_end and not worker.reported:
                await background.call(worker.drain)
                self._report_loss(worker)
        self.gone = True

    async def finish(self) -> None:
        """Waits for the pservers once the job is done: those that a trainer stopped end on their
        own; others get SIGTERM.
        """
        self._rest()
        servers = [worker for worker in self._workers_of("server") if worker.code is None]
        for worker in servers if not self.leaving else ():
            worker.signal(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(
                asyncio.gather(*(worker.ended.wait() for worker in servers)), LEAVE
            )

    async def close(self) -> None:
        """Ends all processes, standby included, and waits for the workers' last lines."""
        self._rest()
        await self._workers.end(())
        for worker in self._running:
            await background.call(worker.drain)
        self._ranks.close()

    def _rest(self) -> None:
        self.state = PodState.WAITING
        for task in self._watching:
            task.cancel()

    def _launch(self, process: Process) -> None:
        header = f"attempt {self.attempt}"
        name = self._name(process)
        ready = [worker for worker in self._standby if worker.process.role == process.role]
        worker = next((worker for worker in ready if worker.become(process, name, header)), None)
        if worker is not None:
            self._standby.remove(worker)
        else:
            worker = self._workers.start(process, name, header)
        self._running.append(worker)
        self._say(f"{header}: {worker.name} is process {worker.pid}")

    def _name(self, process: Process) -> str:
        kind = "pserver" if process.role == "server" else "trainer"
        name = f"{kind} {'?' if self._pod.index is None else self._pod.index}"
        alike = [other for other in self._processes if other.role == process.role]
        return f"{name}.{alike.index(process)}" if len(alike) > 1 and process in alike else name

    def _workers_of(self, role: str) -> list[Worker]:
        return [worker for worker in self._running if worker.process.role == role]

    async def _watch_servers(self) -> None:
        """Reports when this pod's pservers accept connections; the rendezvous server keeps the
        deadline for that. Then reports when a live pserver answers nothing: steps that wait for it
        hang silently. Ends with the attempt.
        """
        servers = [process for process in self._processes if process.role == "server"]
        for port in [port for process in servers for port in process.ports]:
            while True:
                try:
                    # Not wait_for: before Python 3.12 it may swallow the end of the attempt, and
                    # report its pservers in the next.
                    async with asyncio.timeout(5.0):
                        _, writer = await asyncio.open_connection(self._pod.pod_ip, port)
                    writer.close()
                    break
                except (OSError, TimeoutError):
                    await asyncio.sleep(SERVER_PROBE)
        self.serving = True
        self._tell()
        asked = [(process.ports[0], process.health) for process in servers if process.health]
        while asked:
            await asyncio.sleep(ASK_SERVER)
            answers = (_answers(self._pod.pod_ip, *address) for address in asked)
            silent = not all(await asyncio.gather(*answers))
            if silent is not self.silent:
                self.silent = silent
                said = "does not answer" if silent else "answers again"
                self._say(f"pserver {self._pod.trainer_id} {said}")
                self._tell()

    async def _look(self) -> list[Entry]:
        """Looks at the processes of the attempt but its pservers, which outlast those that train,
        and returns them.
        """
        others = [*self._standby, *self._workers_of("server")]
        return await self._ranks.look([worker.pid for worker in others])

    async def _watch_processes(self) -> None:
        """Follows the command's processes, and ends the job if they form another world than the
        job's. Ends with the attempt.
        """
        began = looked = time.monotonic()
        judged = any(process.world for process in self._processes)
        while True:
            entries = await self._look()
            if judged:
                other = await background.call(
                    partial(world.find_other, self._pod, self._processes, entries)
                )
                if other or (other := self._world_fault()):
                    self._tell(m.Fatal(ExitCode.BAD_SETTING, other))
                    return
            if time.monotonic() - looked >= ASK_SERVER:
                looked = time.monotonic()
                await self._look_at_metrics()
            age = time.monotonic() - began
            await asyncio.sleep(min(max(LOOK, LOOK_SHARE * age), ASK_SERVER))

    async def _look_at_metrics(self) -> str:
        """Returns which metrics of this pod are not finite; says so where that is new, and ends the
        job if it is to.
        """
        folder, attempt = self._pod.folder.node(self._pod.trainer_id), self.attempt
        said = ""
        with contextlib.suppress(OSError):
            said = await background.call(partial(remarks.not_finite, folder, attempt))
        if said and said != self._not_finite and attempt == self.attempt:
            self._not_finite = said
            self._say(f"warning: {said}")
            if self._pod.command.nan:
                self._tell(
                    m.Fatal(
                        ExitCode.BAD_SETTING, f"{said}, and limits.nan is {self._pod.command.nan}"
                    )
                )
        return said

    async def _remark(self) -> list[str]:
        """Returns what somebody should know of trainers that are done."""
        pod, trainers = self._pod, self._workers_of("trainer")
        for worker in trainers:
            await background.call(worker.drain)
        doubts = [said] if (said := await self._look_at_metrics()) else []
        with contextlib.suppress(OSError):
            outside = await background.call(
                partial(remarks.outside_output, pod.program, self._began)
            )
            doubts += [outside] if outside else []
            if pod.trainer_id == 0:
                metrics = trainers[0].log.unmatched
                doubts += await background.call(
                    lambda: list(remarks.unmatched(pod, self.attempt, metrics))
                )
        return doubts

    async def _check_alone(self, steps: int = 1) -> None:
        """Ends the job if what made so many steps in this pod has never been connected to another
        pod. Peers come to trainer 0, which may connect to nobody itself.
        """
        if not self._pod.trainer_id or not any(process.world for process in self._processes):
            return
        attempt = self.attempt
        if self._ranks.is_alone():  # From the first step on its peers are connected.
            await self._look()
        if self._ranks.is_alone(steps) and attempt == self.attempt:
            self._alone = True
            lines = [python.words for python in self._ranks.all]
            self._tell(m.Fatal(ExitCode.BAD_SETTING, world.describe_alone(self._pod, lines)))

    async def _stop_ranks(self, trainers: Sequence[Worker]) -> None:
        """Sends SIGTERM to each rank once, and to no program around it, which would hand it on;
        then to what is left. Without a rank, those get it that have started nothing.
        """
        told: set[int] = set()
        while self.state is PodState.STOPPING:
            parents = {entry.pid: entry.parent for entry in await self._look()}
            running = [rank.entry.pid for rank in self._ranks.list_running()]
            targets = {pid for pid in running if pid in parents}
            if not targets and not told:
                targets = parents.keys() - set(parents.values())
            for pid in list(targets):
                while (pid := parents.get(pid, 0)) in parents:
                    targets.discard(pid)
            if told and not targets & told:
                await asyncio.sleep(AFTER_RANKS)
                targets = targets | {worker.pid for worker in trainers if worker.code is None}
            for pid in targets - told:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGTERM)
            told |= targets
            await asyncio.sleep(LOOK)

    def _world_fault(self) -> str | None:
        """Returns what is wrong with the world size that a trainer prints."""
        for worker in self._workers_of("trainer"):
            if worker.process.world and worker.log.world not in (0, worker.process.world):
                who = f"{worker.name} says that its world_size is {worker.log.world}"
                return world.describe(self._pod, worker.log.world, who)
        return None

    async def _describe_end(self, worker: Worker) -> None:
        if worker.code or worker.log.tells_world:
            await background.call(worker.drain)  # Its last lines say why, or tell its world.
        elif worker.process.role == "server" and not self.leaving:
            # It may have noticed before this agent that every trainer leaves.
            await asyncio.sleep(AFTER_LEAVE)
        runs = worker in self._running and self.state is not PodState.WAITING
        counts = runs and not worker.wanted_end
        if worker in self._standby:
            self._standby.remove(worker)
        elif counts and worker.process.role == "trainer":
            self._trainer_ended(worker)
        elif counts and not self.leaving:
            self._report_loss(worker)

    def _trainer_ended(self, worker: Worker) -> None:
        codes = [trainer.code for trainer in self._workers_of("trainer")]
        count = len([process for process in self._processes if process.role == "trainer"])
        if worker.code != 0 and self.state is PodState.RUNNING:
            self._report_loss(worker)
        elif len(codes) == count and None not in codes:
            self._watching.append(self._tasks.spawn(self._conclude()))

    async def _conclude(self) -> None:
        """Judges the attempt, whose first processes have ended, once nothing of it trains."""
        trainers = self._workers_of("trainer")
        failed: list[Python] = []
        doubts: list[str] = []
        if any(worker.process.judged for worker in trainers):
            said = False
            while True:
                await self._look()
                verdict = self._ranks.judge()
                if not verdict.waits_for:
                    break
                if not said:
                    said = True
                    left = ", ".join(verdict.waits_for[:MOST_NAMED])
                    self._say(f"the command has ended; it left {left} behind, which may train")
                await asyncio.sleep(LOOK)
            failed, doubts = verdict.failed, verdict.doubts
            await self._check_alone()
            if self._alone:
                return
            if self._pod.trainer_id and trainers[0].process.world and not self._ranks.met:
                doubts.append(world.WORKED_ALONE)
        if other := self._world_fault():
            self._tell(m.Fatal(ExitCode.BAD_SETTING, other))
        if failed and self.state is PodState.RUNNING and not self._pod.command.success_file:
            self._report_rank(trainers[0], failed[0])
            return
        codes = [worker.code for worker in trainers]
        self.ended = "stopped" if any(codes) or failed else "trained"
        if any(worker.process.judged for worker in trainers):
            doubts += await self._remark()
        doubts = [f"{rank} ended with {ranks.describe_code(rank.code)}" for rank in failed] + doubts
        self.doubt = "; ".join(doubts[:MOST_NAMED])
        self._tell()

    def _report_rank(self, worker: Worker, rank: Python) -> None:
        """Reports a rank that failed below a first process that ended with 0."""
        what = f"{worker.name} ended with 0, but {rank} ended with {ranks.describe_code(rank.code)}"
        self._tell(
            m.Lost(
                self.attempt,
                what + self._describe_shortage(rank.code, rank.error),
                rank.code or 1,
                trainer=True,
                error="" if rank.code in NOT_ITS_FAULT[1:] else rank.error or worker.error,
                uncaught=rank.uncaught,
                stepped=self._has_stepped(worker),
                ago=time.monotonic() - rank.at,
            )
        )

    def _describe_shortage(self, code: int | None, error: str) -> str:
        """Says, behind a comma, what the pod ran out of; empty: nothing that anybody saw."""
        codes = {code, *self._ranks.list_codes()}
        if BUS_ERROR in codes or any(words in error for words in SHORT_OF_SHARED):
            return ", out of shared memory (raise resources.shared_memory)"
        shortage = self._memory.describe_shortage(code == KILLED)
        return f", {shortage}" if shortage else ""

    def _report_loss(self, worker: Worker) -> None:
        if worker.reported:
            return
        worker.reported = True
        code = worker.code or 0
        error, uncaught = worker.error, worker.uncaught
        if worker.process.judged and (code < 126 and code not in FAIL_JOB):
            alone = len(self._workers_of("trainer")) == 1
            if (python := self._ranks.find_failed(worker.pid, alone)) is not None:
                error, uncaught = python.error, python.uncaught
        if SPAWNED in error and self._pod.trainers > 1:
            spawn = command_line.describe_local("spawn")
            self._tell(m.Fatal(ExitCode.BAD_SETTING, f"{error}: {spawn}"))
            return
        ended = f"{worker.name} ended with {ranks.describe_code(worker.code)}"
        self._tell(
            m.Lost(
                self.attempt,
                ended + self._describe_shortage(code, error),
                code,
                trainer=worker.process.role == "trainer",
                error="" if code in NOT_ITS_FAULT else error,
                uncaught=uncaught,
                stepped=self._has_stepped(worker) if worker.process.judged else None,
                ago=time.monotonic() - worker.end,
                silent=worker.silent,
            )
        )

    def _has_stepped(self, worker: Worker) -> bool | None:
        """Whether anything in this pod made a step; None: nobody can know. Plain Python that began
        anew and said nothing before it fell made none, unless the raised limit says otherwise.
        """
        stepped, said = self._ranks.has_stepped(), worker.log.exceptions
        anew = worker.process.environ.get(Variable.RESUMED) == "{}"
        mute = anew and said.last and not said.beside and self._pod.attempts <= Facts.limit
        return False if stepped is None and mute else stepped

    def _say(self, text: str) -> None:
        say_as_agent(self._pod, text)


async def _answers(address: str, port: int, path: str) -> bool:
    """Whether any answer comes in time. True for a refused connection: the process has ended, which
    is noticed elsewhere.
    """
    try:
        async with asyncio.timeout(ASK_SERVER):
            reader, writer = await asyncio.open_connection(address, port)
            try:
                writer.write(
                    f"GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode()
                )
                return bool(await reader.read(1))
            finally:
                writer.close()
    except TimeoutError:
        return False
    except OSError:
        return True

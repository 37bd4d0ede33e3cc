"""The agent, the first process of a training pod: carries out what the rendezvous server decides,
and reports back.

A pod's pserver and trainer run only inside an attempt that all N pods have joined. Any loss ends
the attempt in this pod within ten seconds, and the pod waits for the next one. SIGTERM reaches the
trainers, which may save until the grace period ends.
"""

import asyncio
import contextlib
import signal
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NoReturn

from paddle_node import background
from paddle_node.agent import exporter, health, node_check, output
from paddle_node.agent.client import Client
from paddle_node.agent.local.output import LOOK, Abandoned, LocalOutput, describe
from paddle_node.agent.worker_group import PodState, WorkerGroup
from paddle_node.background import Tasks
from paddle_node.contract import ExitCode
from paddle_node.environment import Attempt, PodEnvironment, WorkerEnvironment, endpoint, variables
from paddle_node.failure import BadData, Failure
from paddle_node.rendezvous import heartbeat
from paddle_node.rendezvous import messages as m
from paddle_node.rendezvous.attempts import AttemptRecord
from paddle_node.rendezvous.bookkeeper import publish
from paddle_node.rendezvous.discovery import Discovery
from paddle_node.rendezvous.handshake import attempt_key
from paddle_node.rendezvous.server import Server
from paddle_node.retry import REMIND_INTERVAL
from paddle_node.runtimes import Runtime
from paddle_node.staging.preparation import POLL
from paddle_node.volume import run_secret

RETRY_PAUSES = (0.05, 0.5)
"""Seconds between two tries to reach the rendezvous server: first and longest. The longest is part
of the start-up time.
"""
ASK_VOLUME = 5.0
"""Seconds between checks for the run's outcome while the rendezvous server or another pod is
missing.
"""
MEMBERSHIP_INTERVAL = 0.5
"""Seconds between checks for changed pods (pod-list). A check sends no request."""


class Agent:
    """The agent of one pod. Call `run` once. `stage` prepares the pod's data and program; it
    blocks.
    """

    def __init__(
        self,
        pod: PodEnvironment,
        runtime: Runtime,
        discovery: Discovery,
        stage: Callable[[PodEnvironment], PodEnvironment],
    ) -> None:
        self._pod = pod
        self._runtime = runtime
        self._discovery = discovery
        self._stage = stage
        self._incarnation = uuid.uuid4().hex
        self._alone_since = time.monotonic()
        """Since when this pod has been without its run's rendezvous server."""
        self._secret = ""
        """The run's secret, with which its pods recognize each other."""
        self._terminated = False
        self._server: Server | None = None
        self._client: Client | None = None
        self._prepares_for: int | None = None
        self._prepared = pod
        """The pod's settings, with the data and the program that it has read."""
        self._ready = False
        self._unread: Failure | None = None
        self._full = False
        """Whether the server knows that the scratch is full."""
        self._local = LocalOutput(pod, self._say) if pod.local else None
        """The pod's scratch as the output of its command."""
        self._wake = asyncio.Event()
        """Set when there may be something new on it."""
        self._fit = True
        """Whether the pod's node has passed its check, so that the pod may take part in an
        attempt.
        """

    async def run(self) -> int:
        """Returns the exit code of a pod that was told to stop. Raises `Failure` for every other
        deliberate end.
        """
        self._tasks = Tasks()
        background.threads.reserve()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._terminate)
        self._group = WorkerGroup(self._runtime, self._pod, self._tasks, self._tell)
        self._tasks.spawn(self._write_status())
        if port := self._pod.metrics_port:
            served = exporter.Exporter(self._observe, self._say)
            self._tasks.spawn(served.serve(self._pod.pod_ip, port))
        self._tasks.spawn(self._look_for_outcome())
        if self._local is not None:
            self._tasks.spawn(self._watch_saves(self._local))
        # The standby starts first: its imports take longer than everything else before training,
        # and need no rank.
        self._group.stand_by(self._pod)
        self._look_at_node()
        try:
            await self._live()
        except asyncio.CancelledError:
            if self._tasks.fault is not None:
                raise self._tasks.fault from None
            return ExitCode.TERMINATED
        finally:
            self._tasks.let_finish()
            for part in (self._group, self._client, self._server):
                if part is not None:
                    await part.close()

    async def _live(self) -> NoReturn:
        while True:
            pod = self._pod = await self._discovery.identify()
            await self._end_with(pod.run_id)
            self._secret = await background.ask(
                partial(run_secret.read, pod.folder, pod.run_id), pod, self._say
            )
            if self._local is not None and not self._group.attempt:
                await background.call(partial(self._local.recover, pod))
            if pod.trainer_id == 0:
                self._server = Server(pod, self._discovery, self._tasks, self._say)
                await self._server.serve(self._runtime, self._incarnation, self._secret)
            if self._prepares_for != pod.trainer_id:
                self._prepares_for, self._ready, self._unread = pod.trainer_id, False, None
                self._tasks.spawn(self._prepare())
            while (client := await self._connect()) is not None:
                self._client = client
                await self._follow(client)
                self._client = None
                await client.close()
                await self._end_workers()
            self._say("pod membership changed; reassigning ranks")
            if self._server is not None:
                await self._server.close()
                self._server = None

    async def _look_for_outcome(self) -> None:
        """While no server has admitted this pod, checks whether the run has ended: the other pods
        may be gone for good.
        """
        while True:
            await asyncio.sleep(ASK_VOLUME)
            if self._client is None:
                try:
                    await self._end_with(self._discovery.run_id)
                except (OSError, background.NoAnswer):
                    if self._client is None:
                        raise

    async def _end_with(self, run_id: str) -> None:
        """Ends this pod with the outcome of run `run_id`, if that run has ended."""
        pod = self._pod
        record = await background.ask(lambda: AttemptRecord(pod.folder, run_id), pod, self._say)
        if (outcome := record.outcome) is not None:
            if pod.index == 0 and record.last.run == run_id:
                # The pod that recorded the outcome may have died before it published the results.
                progress = self._runtime.progress(pod, self._say)
                await background.ask(lambda: publish(record, progress, self._say), pod, self._say)
            raise Failure(outcome.code, outcome.sentence)

    async def _prepare(self, pause: float = 0.0) -> None:
        await asyncio.sleep(pause)
        pod = self._pod
        prepared = unread = None
        try:
            prepared = await background.call(lambda: self._stage(pod))
        except Failure as failure:
            unread = failure
        if pod.index == self._pod.index:
            self._prepared, self._unread, self._ready = (
                prepared or self._prepared,
                unread,
                prepared is not None,
            )
            if prepared is not None:
                self._say(f"has read {prepared.identity}")
            self._tell()

    def _look_at_node(self) -> None:
        self._fit = not (self._pod.command.gpus or self._pod.command.efa)
        if not self._fit:
            self._tasks.spawn(self._check_node())

    async def _check_node(self) -> None:
        """Raises `Failure` if the node is unfit, which ends only this pod: the other pods wait for
        its replacement.
        """
        why = await self._group.check(node_check.process(self._pod))
        if why:
            where = self._pod.kubernetes_node or f"the one of {self._pod.pod_name}"
            raise Failure(
                ExitCode.NODE_UNFIT,
                f"node {where} is not fit: {why}; `kubectl cordon` keeps the next pod from it",
            )
        if why is not None:
            self._fit = True
            self._tell()

    # The rendezvous server.

    async def _connect(self) -> Client | None:
        """Connects to the run's rendezvous server; None when ranks must be reassigned. Raises
        `Failure` at the deadline.
        """
        pod, name = self._pod, self._discovery.name_of
        began = self._alone_since
        reminded = time.monotonic()
        pause, longest = RETRY_PAUSES
        hello = m.Hello(
            rank=pod.trainer_id,
            world_size=pod.trainers,
            incarnation=self._incarnation,
            membership=self._discovery.membership,
            name=name(pod.trainer_id),
            node=pod.kubernetes_node,
            address=pod.pod_ip,
        )
        # Checked even if the server answers: it may have a newer membership, and refuse this pod's
        # older one.
        while not self._discovery.has_moved():
            try:
                address = await self._discovery.server_address()
                return await Client.open(
                    address, pod.control_port, self._secret, hello, lambda: self._beat
                )
            except OSError as error:
                why = str(error.strerror or error)
            now = time.monotonic()
            if now - began > pod.peer_deadline:
                raise Failure(
                    ExitCode.PEERS_MISSING,
                    f"1 of {pod.trainers} pods is missing: {name(0)}, which the others wait "
                    f"for, after {now - began:.0f} s (limits.peer_deadline_seconds is "
                    f"{pod.peer_deadline:g}): {why}",
                )
            if now - reminded > REMIND_INTERVAL:
                reminded = now
                self._say(f"waiting for {name(0)} since {now - began:.0f} s: {why}")
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, longest)
        return None

    async def _follow(self, client: Client) -> None:
        """Obeys the rendezvous server until the server is lost or ranks must be reassigned."""
        self._tell()
        if self._local is not None:
            self._tell(self._local.saves)
        while True:
            try:
                async with asyncio.timeout(
                    MEMBERSHIP_INTERVAL if self._group.state is PodState.WAITING else None
                ):
                    message = await client.messages.get()
            except TimeoutError:
                if self._discovery.has_moved():
                    return
                continue
            if message is None:
                self._alone_since = time.monotonic()
                self._say(
                    "the pod of trainer 0 was lost: ending this pod's processes, then waiting "
                    "for it"
                )
                return
            await self._obey(message)

    async def _obey(self, message: m.Message) -> None:
        match message:
            case m.Start(number, resumed, addresses, local):
                self._discovery.stop_requests()
                self._start(Attempt(number, resumed, local), m.unpack(addresses), message)
            case m.Copy() if self._local is not None:
                copy = partial(self._local.copy, message, self._local.interrupt())
                self._tasks.spawn(self._copy(self._local, copy))
            case m.PrepareAgain() if self._ready:
                self._ready = False
                self._tasks.spawn(self._prepare(pause=POLL))
            case m.AllReached(_, "serving"):
                self._group.serve()
            case m.AllReached():
                self._group.leaving = True
            case m.Stop(_, cause) if self._group.state is PodState.RUNNING:
                self._say(f"the trainers may save: {cause}")
                self._group.stop()
            case m.End(number, cause):
                if number == self._group.attempt and self._group.state is not PodState.WAITING:
                    self._say(f"attempt {number} ends: {cause}")
                await self._end_workers()
                self._tell()
            case m.Finish(code, sentence, crashed):
                self._tasks.let_finish()
                if code == ExitCode.DONE:
                    await self._group.finish()
                # If this pod's own trainer crashed, the pod ends with that trainer's code.
                raise Failure(
                    crashed[1] if crashed and crashed[0] == self._pod.trainer_id else code,
                    sentence,
                )

    def _tell(self, message: m.Message | None = None) -> None:
        """Sends `message`, or else this pod's current state, to the rendezvous server if it is
        connected.
        """
        self._wake.set()
        if self._client is None:
            return
        if message is None and self._unread is not None:
            message = m.Fatal(self._unread.code, self._unread.sentence)
        elif message is None:
            group, read = self._group, self._prepared.identity
            ready = self._ready and self._fit and group.gone
            message = m.Report(
                group.attempt,
                group.gone,
                ready,
                read.data,
                read.program,
                group.serving,
                group.silent,
                group.ended,
                self._terminated,
                group.doubt,
                group.place,
            )
        self._client.send(message)

    @property
    def _beat(self) -> m.Beat:
        beat = self._group.beat
        if self._local is None or not self._local.busy:
            return beat
        # The trainers wait for the copy, or the job's end does.
        waits = self._group.ended or beat.quiet is None
        return replace(beat, quiet=time.monotonic() - self._local.moved) if waits else beat

    async def _watch_saves(self, local: LocalOutput) -> None:
        """Tells the server which checkpoints the pod's scratch has."""
        fault = ""
        while True:
            group = self._group
            ended = bool(group.ended) and group.attempt == local.saves.attempt
            look = partial(local.look, group.gone or ended, clean=ended)
            self._wake.clear()
            try:
                if await background.call(look):
                    self._tell_saves(local)
            except OSError as error:
                self._tell_saves(local)
                before, fault = fault, f"the pod's scratch cannot be read: {error}"
                if fault != before:
                    self._say(fault)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK):
                    await self._wake.wait()

    def _tell_saves(self, local: LocalOutput) -> None:
        if self._client is not None:
            self._client.send(local.saves)
        if local.saves.full and self._group.state is PodState.RUNNING and not self._full:
            self._full = True
            self._say(local.saves.full)
            self._tell(m.Lost(self._group.attempt, local.saves.full))

    async def _copy(self, local: LocalOutput, copy: Callable[[], None]) -> None:
        await background.call(copy)
        self._tell_saves(local)

    async def _fill(self, local: LocalOutput, start: m.Start, turn: int) -> bool:
        """Prepares the scratch for an attempt. Returns False if that failed."""
        try:
            await background.call(partial(local.begin, self._prepared, start, turn))
        except Abandoned:
            return False
        except (OSError, BadData) as error:
            what = describe(error)
            self._tell(m.Lost(start.attempt, what, 1, error=what, stepped=False))
            return False
        self._tell_saves(local)
        return True

    def _start(self, attempt: Attempt, addresses: list[str], start: m.Start) -> None:
        pod, manifest = self._prepared, self._prepared.folder.manifest
        worker = WorkerEnvironment(
            server=endpoint(addresses[0], pod.control_port),
            session_key=attempt_key(self._secret, attempt.number),
            attempt=attempt.number,
            resumed=attempt.resumed,
            manifest="" if manifest is None else str(manifest.relative_to(pod.folder.root)),
            data_digest=pod.identity.data,
            program_digest=pod.identity.program,
            trainer_id=pod.trainer_id,
            trainers=pod.trainers,
            run_id=pod.run_id,
        )
        additions, processes = variables(worker), self._runtime.processes(pod, addresses, attempt)
        self._group.start(
            pod,
            attempt.number,
            [replace(process, environ={**process.environ, **additions}) for process in processes],
            addresses,
            None
            if self._local is None
            else partial(self._fill, self._local, start, self._local.interrupt()),
        )

    async def _end_workers(self) -> None:
        """Ends the workers. The pod then stands by for the next attempt, unless it was told to
        stop.
        """
        await self._group.end()
        if self._terminated:
            raise asyncio.CancelledError
        self._group.stand_by(self._pod)
        self._look_at_node()

    # Events from outside.

    def _terminate(self) -> None:
        if self._terminated:
            return
        self._terminated = True
        if self._group.state is PodState.WAITING:
            self._leave("told to stop while nothing ran")
            return
        grace = self._pod.grace
        self._say(f"told to stop: the trainers may save, for at most {grace:g} s")
        self._group.stop()
        asyncio.get_running_loop().call_later(
            grace, self._leave, f"the {grace:g} s after SIGTERM are over"
        )

    def _leave(self, why: str) -> None:
        self._say(why)
        self._tasks.interrupt()

    async def _write_status(self) -> None:
        """Every second, writes the status that the probe reads, reaps children whose signal was
        missed, and looks whether the pod has process ids left.
        """
        unwritable = False
        while True:
            self._group.reap()
            self._group.look_for_room()
            running = self._group.state is PodState.RUNNING
            seen = self._client.status if running and self._client else m.Status("", "", 0.0)
            try:
                health.write(
                    self._pod.home, seen.state or self._group.state.value, seen.where, seen.held
                )
            except OSError as error:
                if not unwritable:
                    unwritable = True
                    self._say(
                        f"{self._pod.home} takes no status for the health probe: "
                        f"{error.strerror or error}"
                    )
            await asyncio.sleep(heartbeat.INTERVAL)

    def _observe(self) -> exporter.PodFacts:
        """Returns what the exporter serves besides the step logs."""
        pod, group = self._pod, self._group
        seconds, slow = self._server.goodput if self._server is not None else ({}, {})
        return exporter.PodFacts(
            pod.job_name,
            pod.folder.node(pod.trainer_id),
            group.attempt,
            group.state is not PodState.WAITING,
            seconds,
            slow,
        )

    def _say(self, text: str) -> None:
        output.say_as_agent(self._pod, text)

"""The agent, the first process of a training pod: from the environment to the exit code.

Promises: a pod's pserver and trainer run only inside an attempt that all N pods are in; whatever is lost ends the
attempt here within ten seconds and this pod stays for the next one; SIGTERM reaches the trainers, which may save
until the grace period is over; the exit code is 0 only after the job's last pass was complete on the volume.

States: WAITING (for the rendezvous server, for data, for peers) -> RUNNING -> WAITING again after a loss; RUNNING ->
STOPPING after a SIGTERM to any pod. The rendezvous decides; this module carries out and reports.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from enum import Enum
from functools import partial
from typing import Any, TypeVar

from paddle_node import attempts, background, health, lease
from paddle_node.agent import messages as m
from paddle_node.agent import workers
from paddle_node.agent.client import Client
from paddle_node.agent.rendezvous import REMIND, Rendezvous
from paddle_node.agent.server import Server, Volume
from paddle_node.agent.workers import Worker, WorkerGroup
from paddle_node.attempts import Record
from paddle_node.contract import FAIL_JOB, ExitCode, Variable
from paddle_node.discovery import Discovery
from paddle_node.environment import Attempt, NodeEnvironment, Peer
from paddle_node.failure import Failure
from paddle_node.passes import Identity
from paddle_node.patience import patiently
from paddle_node.preparation import POLL, Reading
from paddle_node.runtimes import Process, Runtime

T = TypeVar("T")

RETRY = (0.05, 0.5)
"""Seconds between two tries to reach the coordinator: first and longest. The longest is part of the start-up time."""
ASK_VOLUME = 5.0
"""Seconds between two looks for the run's outcome while the coordinator, or any other pod, is away."""
LOOK = 0.5
"""Seconds between two looks whether the pods are others now (pod-list); a look asks nobody."""
SERVER_PROBE = 0.05
"""Seconds between two tries to connect to a pserver of one's own."""
ASK_SERVER = 5.0
"""Seconds between two questions whether this pod's pserver still answers, and for each answer."""
LEAVE_DEADLINE = 5.0
"""Seconds for pservers to end after the job is done, and for the volume to take the lease back."""
AFTER_LEAVE = 2.0
"""Seconds in which the word that all trainers leave may come later than the end of a pserver that heard it."""


class State(Enum):
    """What this pod does."""

    WAITING = "waiting"
    RUNNING = "running"
    STOPPING = "stopping"


class _Terminated(Exception):
    """SIGTERM came while nothing ran that could be saved."""


class Agent:
    """One pod's life. `run` is called once."""

    def __init__(
        self, node: NodeEnvironment, runtime: Runtime, discovery: Discovery, stage: Callable[[NodeEnvironment], Reading]
    ) -> None:
        self._node = node
        self._runtime = runtime
        self._discovery = discovery
        self._stage = stage
        self._boot = uuid.uuid4().hex
        self._alone_since = time.monotonic()
        """Since when the run's own rendezvous server has not accepted this pod."""
        self._secret = ""
        """The run's, by which its pods know each other."""
        self._fault: BaseException | None = None
        self._state = State.WAITING
        self._events: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self._terminated = asyncio.Event()
        self._disturbed = asyncio.Event()
        """SIGTERM came, or a fault: no wait goes on."""
        self._server: Server | None = None
        self._lease: lease.Lease | None = None
        self._client: Client | None = None
        self._staging = self._staged = False
        self._reading: Reading | None = None
        """The data and the program that this pod has prepared."""
        self._unread: Failure | None = None
        """Why it cannot prepare them."""
        self._beating: asyncio.Task[None] | None = None
        self._moved = False
        """The ids that this pod knows are no longer true."""
        self._attempt: Attempt | None = None
        self._coordinator = ""
        self._processes: list[Process] = []
        self._running: list[Worker] = []
        self._standby: list[Worker] = []
        self._left = False
        self._status = m.Status("", None)
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> int:
        """The pod's exit code. Raises `Failure` for what this pod alone found out."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_terminate)
        self._workers = WorkerGroup(self._on_end)
        self._spawn(self._report())
        # First of all: what it imports takes longer than everything else before training, and needs no trainer id.
        self._start_standby()
        try:
            return await self._live()
        except _Terminated:
            self._say("told to stop while nothing ran")
            return ExitCode.TERMINATED
        finally:
            await self._workers.end(())
            if self._client is not None:
                await self._client.close()
            await self._step_down()
            for worker in self._running:
                await background.call(worker.drain)

    async def _live(self) -> int:
        while True:
            before = self._node.index
            known = await self._identify()
            if known is not None:
                self._say("this run has ended")
                return self._told(known.code, known.sentence)
            node = self._node
            self._secret = await self._answer(partial(m.run_secret, node.folder, node.run_id))
            if node.trainer_id == 0:
                await self._coordinate()
            if before != node.index or not self._staging:
                self._staging, self._staged, self._unread = True, False, None
                self._spawn(self._stage_data())
            code = await self._serve_one_view()
            if code is not None:
                return code
            self._say("the pods of this job are others now: ids are given anew")
            await self._step_down()

    async def _identify(self) -> attempts.Outcome | None:
        """Learns who this pod is; or how its run ended: then the others may be gone, and would be waited for in vain."""
        identifying = asyncio.ensure_future(self._discovery.identify())
        try:
            while True:
                await self._unless_terminated(asyncio.wait({identifying}, timeout=ASK_VOLUME))
                if identifying.done():
                    self._node = identifying.result()
                    return await self._outcome(self._node.run_id)
                known = await self._outcome(self._discovery.run_id)
                if known is not None:
                    return known
        finally:
            identifying.cancel()

    async def _serve_one_view(self) -> int | None:
        """The pod's life as one trainer id: in index mode all of it. None when ids must be given anew."""
        while True:
            self._events = asyncio.Queue()  # What an earlier connection, or attempt, left in it counts no more.
            self._client = await self._connect()
            if self._client is None:
                return None
            code = await self._follow()
            if code is not None:
                return code
            await self._client.close()
            await self._end_processes()
            if self._terminated.is_set():
                return ExitCode.TERMINATED
            self._start_standby()
            if self._moved:
                return None

    async def _coordinate(self) -> None:
        """Takes the lease on the folder and serves the other agents."""
        node = self._node
        state = node.folder.run_state
        self._lease = await self._answer(
            lambda: lease.acquire(state, node.run_id, self._boot, node.lease, self._say), patience=node.lease
        )
        self._beating = self._spawn(self._keep_lease(self._lease))
        check = self._lease.check
        record = await self._answer(lambda: Record(node.folder, node.run_id, check))
        progress = self._runtime.progress(node, self._say)
        volume = await self._answer(lambda: Volume(node, record, progress, self._say))
        view, name_of = self._discovery.view, self._discovery.name_of
        rendezvous = Rendezvous(node, view, name_of, progress.trainers_join, volume.identity, time.monotonic())
        self._server = Server(node, rendezvous, volume, self._secret, self._say, self._on_fault)
        await self._server.serve()

    async def _step_down(self) -> None:
        """Serves nobody any more, and lets the folder's next keeper in."""
        if self._beating is not None:
            self._beating.cancel()
            self._beating = None
        if self._server is not None:
            await self._server.close()
            self._server = None
        if self._lease is not None:
            with contextlib.suppress(TimeoutError):  # It expires instead.
                await asyncio.wait_for(background.call(self._lease.release), LEAVE_DEADLINE)
            self._lease = None

    async def _outcome(self, run_id: str) -> attempts.Outcome | None:
        """How this run ended, where it has."""
        folder = self._node.folder
        return await self._answer(lambda: attempts.outcome(folder, run_id))

    async def _answer(self, question: Callable[[], T], patience: float = 0.0) -> T:
        """What the volume answers to a question that itself may wait for `patience` seconds, and may be asked again.

        Raises `Failure` where the volume hangs: an NFS mount without its server waits for ever, in silence.
        """
        began = time.monotonic()
        waited, pause, deadline = 0.0, patience + REMIND, patience + self._node.peer_deadline
        answer = asyncio.ensure_future(background.call(lambda: patiently(question, self._say)))
        try:
            while True:
                await self._unless_terminated(asyncio.wait({answer}, timeout=min(pause, deadline - waited)))
                if answer.done():
                    return answer.result()
                waited, pause = time.monotonic() - began, REMIND
                sentence = f"{self._node.folder.run_state} has not answered for {waited:.0f} s"
                if waited >= deadline:
                    raise Failure(ExitCode.CANNOT_END, f"{sentence}: nothing can be read there")
                self._say(sentence)
        finally:
            answer.cancel()

    async def _keep_lease(self, held: lease.Lease) -> None:
        while True:
            await asyncio.sleep(min(held.interval, max(0.0, held.left)))
            try:
                # A volume that hangs must not hold up the look at the clock; a pod that was frozen may hear who replaced it.
                async with asyncio.timeout(max(1.0, held.left)):
                    await background.call(held.beat)
            except TimeoutError:
                pass
            except lease.TakenOver as failure:
                self._lease = None
                if failure.same_run and self._discovery.moved():
                    return  # Ids were given anew, and another pod heard of it first.
                self._on_fault(failure)
                return
            except OSError as error:
                self._say(f"the lease cannot be looked at: {error.strerror or error}; the next heartbeat tries again")
            if held.left <= 0:
                self._lease = None  # Not released: it expires when everything of this run has stopped.
                self._on_fault(held.overdue())
                return

    async def _stage_data(self, pause: float = 0.0) -> None:
        await asyncio.sleep(pause)
        node = self._node
        reading = unread = None
        try:
            reading = await background.call(lambda: self._stage(node))
        except Failure as failure:
            unread = failure
        if node.index == self._node.index:
            self._reading, self._unread, self._staged = reading or self._reading, unread, reading is not None
            if reading is not None:
                self._say(f"has read {reading.identity}")
            self._send_prepared()

    # The coordinator.

    async def _connect(self) -> Client | None:
        """Reaches the rendezvous server, however often its pod is replaced; None when ids must be given anew.

        Only a welcome by the run's own server counts: whatever else answers there, the deadline comes. Raises `Failure` then.
        """
        node = self._node
        began = self._alone_since
        reminded = asked = time.monotonic()
        pause, longest = RETRY
        self._moved = False
        hello = m.Hello(
            rank=node.trainer_id,
            world_size=node.trainers,
            boot=self._boot,
            membership=self._discovery.view,
            name=self._discovery.name_of(node.trainer_id),
            node=node.kubernetes_node,
            address=node.pod_ip,
        )
        while True:
            # Also where the coordinator answers: it may have counted the pods anew, and sends this one away for its old view.
            if self._discovery.moved():
                return None
            try:
                address = await self._unless_terminated(self._discovery.coordinator())
                opening = Client.open(address, node.control_port, self._secret, hello, self._hear, self._quiet)
                return await self._unless_terminated(opening)
            except OSError as error:
                why = str(error.strerror or error)
            now = time.monotonic()
            if now - began > node.peer_deadline:
                raise Failure(
                    ExitCode.PEERS_MISSING,
                    f"1 of {node.trainers} pods is missing: {self._discovery.name_of(0)}, which the others wait for, "
                    f"after {now - began:.0f} s ({Variable.PEER_DEADLINE} is {node.peer_deadline:g}): {why}",
                )
            if now - reminded > REMIND:
                reminded = now
                self._say(f"waiting for {self._discovery.name_of(0)} since {now - began:.0f} s: {why}")
            if now - asked > ASK_VOLUME:
                asked = now
                known = await self._outcome(node.run_id)
                if known is not None:
                    raise Failure(known.code, known.sentence)
            await self._unless_terminated(asyncio.sleep(pause))
            pause = min(pause * 1.5, longest)

    def _hear(self, message: m.Message | None) -> None:
        if isinstance(message, m.Status):
            self._status = message
        else:
            self._events.put_nowait(("server", message))

    def _quiet(self) -> float | None:
        """Seconds since a worker of the attempt wrote output."""
        return min((worker.quiet for worker in self._running), default=None) if self._state is not State.WAITING else None

    async def _follow(self) -> int | None:
        """Carries out what the rendezvous server says. The exit code; None when it was lost."""
        self._send_prepared()
        if self._terminated.is_set():
            raise _Terminated
        while True:
            try:
                kind, value = await asyncio.wait_for(self._events.get(), LOOK)
            except TimeoutError:
                if self._state is State.WAITING and self._discovery.moved():
                    self._moved = True
                    return None
                continue
            if kind == "fault":
                raise value
            elif kind == "terminate":
                if self._state is State.WAITING:
                    raise _Terminated
                self._say(f"told to stop: the trainers may save, for at most {self._node.grace:g} s")
                self._send(m.Leaving())
                self._stop_trainers()
                asyncio.get_running_loop().call_later(self._node.grace, self._events.put_nowait, ("grace over", None))
            elif kind == "grace over":
                self._say(f"the {self._node.grace:g} s after SIGTERM are over")
                return ExitCode.TERMINATED
            elif kind == "ended":
                self._process_ended(value)
            elif kind == "unexpected end":
                if not self._left and self._state is not State.WAITING:
                    self._report_loss(value)
            elif kind == "server":
                if value is None:
                    self._alone_since = time.monotonic()
                    self._say("the pod of trainer 0 was lost: ending this pod's processes, then waiting for it")
                    return None
                code = await self._obey(value)
                if code is not None:
                    return code

    def _send(self, message: m.Message) -> None:
        """To the rendezvous server, as long as it is there."""
        if self._client is not None:
            self._client.send(message)

    def _send_prepared(self) -> None:
        if self._unread is not None:
            self._send(m.Fatal(self._unread.code, self._unread.sentence))
        elif self._staged:
            self._send_ready(0)

    def _send_ready(self, attempt: int) -> None:
        read = self._reading.identity if self._reading is not None else Identity()
        self._send(m.Ready(attempt, read.data, read.program))

    async def _obey(self, message: m.Message) -> int | None:
        match message:
            case m.Start(number, resume, addresses):
                found = enumerate(m.unpack(addresses))
                peers = [Peer(rank, self._discovery.name_of(rank), address) for rank, address in found]
                self._start(Attempt(number, resume), peers)
            case m.PrepareAgain():
                self._staged = False
                self._spawn(self._stage_data(pause=POLL))
            case m.AllReached(_, "serving"):
                # It may cross a SIGTERM on its way.
                for process in self._processes if self._state is State.RUNNING else ():
                    if process.waits_for_servers:
                        self._launch(process)
            case m.AllReached():
                self._left = True
            case m.Stop(_, cause) if self._state is State.RUNNING:
                self._say(f"the trainers may save: {cause}")
                self._stop_trainers()
            case m.End(number, cause):
                if self._attempt is not None and number == self._attempt.number and self._state is not State.WAITING:
                    self._say(f"attempt {number} ends: {cause}")
                await self._end_processes()
                if self._terminated.is_set():
                    return ExitCode.TERMINATED
                for worker in self._running:
                    # What ended by itself meanwhile says more of why the attempt did.
                    if worker.code and not worker.wanted_end:
                        self._report_loss(worker)
                self._start_standby()
                self._send_ready(number)
            case m.Finish(code, sentence, crashed):
                # Where this pod's own trainer crashed, the trainer's own code.
                own = crashed[1] if crashed and crashed[0] == self._node.trainer_id else code
                return await self._finish(own, sentence)
        return None

    # The processes of an attempt.

    def _start(self, attempt: Attempt, peers: Sequence[Peer]) -> None:
        self._discovery.rest()
        self._attempt = attempt
        self._coordinator = peers[0].endpoint(self._node.control_port)
        self._left = False
        self._state = State.RUNNING
        self._running = []
        assert self._reading is not None
        node = replace(self._node, folder=self._reading.folder, program=self._reading.program)
        own = [self._complete(process, self._reading) for process in self._runtime.processes(node, peers, attempt)]
        self._processes = own
        for process in own:
            if not process.waits_for_servers:
                self._launch(process)
        ports = [port for process in own if process.role == "server" for port in process.ports]
        asked = [(process.ports[0], process.health) for process in own if process.health]
        self._spawn(self._await_servers(attempt.number, ports, asked))

    def _complete(self, process: Process, reading: Reading) -> Process:
        """Adds what only the agent knows."""
        assert self._attempt is not None
        manifest = reading.folder.manifest
        return replace(
            process,
            environ={
                **process.environ,
                Variable.COORDINATOR.value: self._coordinator,
                Variable.SESSION_KEY.value: m.attempt_key(self._secret, self._attempt.number),
                Variable.ATTEMPT.value: str(self._attempt.number),
                Variable.RESUMED.value: json.dumps(dict(self._attempt.resume)),
                Variable.MANIFEST.value: "" if manifest is None else str(manifest.relative_to(reading.folder.root)),
                Variable.DATA_DIGEST.value: reading.identity.data,
                Variable.PROGRAM_DIGEST.value: reading.identity.program,
                Variable.TRAINER_ID.value: str(self._node.trainer_id),
                Variable.TRAINERS.value: str(self._node.trainers),
                Variable.RUN_ID.value: self._node.run_id,
            },
        )

    def _launch(self, process: Process) -> None:
        assert self._attempt is not None
        header = f"attempt {self._attempt.number}"
        ready = [worker for worker in self._standby if worker.process.role == process.role]
        worker = next((worker for worker in ready if worker.become(process, self._name(process), header)), None)
        if worker is not None:
            self._standby.remove(worker)
        else:
            worker = self._workers.start(process, self._name(process), header)
        self._running.append(worker)
        self._say(f"{header}: {worker.name} is process {worker.pid}")

    def _start_standby(self) -> None:
        if not self._standby:
            for process in self._runtime.standby(self._node):
                self._standby.append(self._workers.stand_by(process, self._name(process)))

    def _name(self, process: Process) -> str:
        index = self._node.index
        name = f"{'pserver' if process.role == 'server' else 'trainer'} {index if index is not None else '?'}"
        alike = [each for each in self._processes if each.role == process.role]
        return f"{name}.{alike.index(process)}" if len(alike) > 1 and process in alike else name

    async def _await_servers(self, attempt: int, ports: Sequence[int], asked: Sequence[tuple[int, str]]) -> None:
        """Reports when this pod's pservers accept connections; the rendezvous server holds the deadline."""
        for port in ports:
            while True:
                if not self._is_running(attempt):
                    return
                try:
                    _, writer = await asyncio.wait_for(asyncio.open_connection(self._node.pod_ip, port), 5.0)
                    writer.close()
                    break
                except (OSError, TimeoutError):
                    await asyncio.sleep(SERVER_PROBE)
        self._send(m.Reached(attempt, "serving"))
        for port, path in asked:
            self._spawn(self._ask_server(attempt, port, path))

    async def _ask_server(self, attempt: int, port: int, path: str) -> None:
        """Reports a pserver that lives and answers nothing: steps that wait for it hang without a word."""
        silent = False
        while self._is_running(attempt):
            await asyncio.sleep(ASK_SERVER)
            answered = await _answers(self._node.pod_ip, port, path)
            if silent is answered and self._is_running(attempt):
                silent = not answered
                self._say(f"pserver {self._node.trainer_id} {'answers nothing' if silent else 'answers again'}")
                self._send(m.Silent(attempt, silent))

    def _is_running(self, attempt: int) -> bool:
        return self._attempt is not None and self._attempt.number == attempt and self._state is not State.WAITING

    def _stop_trainers(self) -> None:
        assert self._attempt is not None
        self._state = State.STOPPING
        trainers = self._of_role("trainer")
        for worker in trainers:
            worker.signal(signal.SIGTERM)
        if not trainers:  # They were to start behind the pservers: there is nothing to save.
            self._send(m.Reached(self._attempt.number, "stopped"))

    def _of_role(self, role: str) -> list[Worker]:
        return [worker for worker in self._running if worker.process.role == role]

    def _process_ended(self, worker: Worker) -> None:
        if worker in self._standby:
            self._standby.remove(worker)
            return
        if worker.wanted_end or worker not in self._running or self._state is State.WAITING:
            return
        if worker.process.role == "server":
            if worker.code == 0 and not self._left:
                # It may have heard sooner than we did that every trainer leaves.
                asyncio.get_running_loop().call_later(AFTER_LEAVE, self._events.put_nowait, ("unexpected end", worker))
            elif not self._left:
                self._report_loss(worker)
            return
        assert self._attempt is not None
        trainers = [process for process in self._processes if process.role == "trainer"]
        ended = [trainer.code for trainer in self._of_role("trainer")]
        all_ended = len(ended) == len(trainers) and all(code is not None for code in ended)
        if worker.code != 0 and self._state is State.RUNNING:
            self._report_loss(worker)
        elif all_ended:
            self._send(m.Reached(self._attempt.number, "stopped" if any(ended) else "trained"))

    def _report_loss(self, worker: Worker) -> None:
        if self._attempt is None or worker.reported:
            return
        worker.reported = True
        code = worker.code or 0
        # A pserver's code says nothing of the training, unless it is one that no other attempt can change.
        told = code if worker.process.role == "trainer" or code in FAIL_JOB else 0
        # One that was killed, for want of memory or by hand, or found the volume full, says nothing of what it had loaded.
        failed = code not in (0, 128 + signal.SIGKILL, ExitCode.TERMINATED, ExitCode.VOLUME_FULL)
        what = f"{worker.name} ended with {_code(worker.code)}"
        self._send(m.Lost(self._attempt.number, what, told, failed, worker.error if failed else ""))

    async def _end_processes(self) -> None:
        """Nothing of the attempt is left when this returns. Raises `Failure` when a process cannot be ended."""
        self._state = State.WAITING
        stubborn = await self._workers.end(self._standby)
        self._standby = [worker for worker in self._standby if worker.code is None]
        if stubborn:
            names = ", ".join(stubborn)
            raise Failure(ExitCode.CANNOT_END, f"{names} cannot be ended; this pod leaves, so that its replacement starts clean")

    async def _finish(self, code: int, sentence: str) -> int:
        self._state = State.WAITING
        servers = [worker for worker in self._of_role("server") if worker.code is None]
        if code == ExitCode.DONE and servers:
            # Servers that were stopped by a trainer end by themselves; those that know no end are told.
            for worker in servers:
                if not self._left:
                    worker.signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.gather(*(worker.ended.wait() for worker in servers)), LEAVE_DEADLINE)
        return self._told(code, sentence)

    def _told(self, code: int, sentence: str) -> int:
        if code != ExitCode.DONE:
            raise Failure(code, sentence)
        self._say(sentence)
        return code

    # Events from outside.

    def _on_terminate(self) -> None:
        if not self._terminated.is_set():
            self._terminated.set()
            self._disturbed.set()
            self._events.put_nowait(("terminate", None))

    def _on_end(self, worker: Worker) -> None:
        self._spawn(self._ended(worker))

    async def _ended(self, worker: Worker) -> None:
        if worker.code:
            await background.call(worker.drain)  # Its last lines say why.
        self._events.put_nowait(("ended", worker))

    def _on_fault(self, fault: BaseException) -> None:
        """Something failed that nobody waits for: the pod ends, rather than to hang without it."""
        self._fault = fault
        self._events.put_nowait(("fault", fault))
        self._disturbed.set()

    async def _unless_terminated(self, work: Awaitable[T]) -> T:
        """The result of `work`; raises _Terminated as soon as SIGTERM comes, and a fault as soon as there is one."""
        task = asyncio.ensure_future(work)
        stop = asyncio.ensure_future(self._disturbed.wait())
        try:
            await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
            if self._fault is not None:
                raise self._fault
            if self._terminated.is_set():
                raise _Terminated
            return task.result()
        finally:
            stop.cancel()
            if not task.done():
                task.cancel()

    async def _report(self) -> None:
        """Each second: the status that the probe reads, and a look for children whose signal was missed."""
        unwritable = False
        while True:
            self._workers.reap()
            status = {
                "state": self._state.value if self._state is not State.RUNNING else self._status.state or "running",
                "attempt": self._attempt.number if self._attempt else None,
                "trainer_id": self._node.index,
                "trainer": self._status.trainer if self._state is State.RUNNING else None,
            }
            try:
                health.write(self._node.home, status)
            except OSError as error:
                if not unwritable:
                    unwritable = True
                    self._say(f"{self._node.home} takes no status for the health probe: {error.strerror or error}")
            await asyncio.sleep(m.BEAT)

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            self._on_fault(fault)

    def _say(self, text: str) -> None:
        index = self._node.index
        workers.say(f"agent {index if index is not None else '?'}", text)


async def _answers(address: str, port: int, path: str) -> bool:
    """Whether there is any answer in time; a refused connection is the end of a process, which is noticed elsewhere."""
    try:
        async with asyncio.timeout(ASK_SERVER):
            reader, writer = await asyncio.open_connection(address, port)
            try:
                writer.write(f"GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode())
                return bool(await reader.read(1))
            finally:
                writer.close()
    except TimeoutError:
        return False
    except OSError:
        return True


def _code(code: int | None) -> str:
    """An exit code as people read it."""
    with contextlib.suppress(ValueError):
        if code is not None and code > 128 and code != ExitCode.TERMINATED:
            return f"{code} ({signal.Signals(code - 128).name})"
        if code in FAIL_JOB or code == ExitCode.VOLUME_FULL:
            return f"{code} ({ExitCode(code).name})"
    return str(code)

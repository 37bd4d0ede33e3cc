"""PID 1 of a training pod: from the environment to the exit code.

Promises: a pod's pserver and trainer run only inside an attempt that all N pods are in; whatever is lost ends the
attempt here within ten seconds and this pod stays for the next one; SIGTERM reaches the trainers, which may save
until the grace period is over; the exit code is 0 only after the job's last pass was complete on the volume.

States: WAITING (for the coordinator, for data, for peers) -> RUNNING -> WAITING again after a loss; RUNNING ->
STOPPING after a SIGTERM to any pod. The hub (hub.py) decides; this module carries out and reports.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, TypeVar

from paddle_node import attempts, background, children, health, lease, protocol, resumption
from paddle_node.attempts import Record
from paddle_node.children import Child, Children
from paddle_node.contract import FAIL_JOB, ExitCode, Variable
from paddle_node.discovery import Discovery
from paddle_node.environment import Attempt, NodeEnvironment, Peer
from paddle_node.failure import Failure
from paddle_node.hub import REMIND, Hub
from paddle_node.link import Link
from paddle_node.passes import Identity
from paddle_node.patience import patiently
from paddle_node.preparation import POLL, Reading
from paddle_node.protocol import BEAT, Message
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


class Supervisor:
    """One pod's life. `run` is called once."""

    def __init__(
        self, node: NodeEnvironment, runtime: Runtime, discovery: Discovery, stage: Callable[[NodeEnvironment], Reading]
    ) -> None:
        self._node = node
        self._runtime = runtime
        self._discovery = discovery
        self._stage = stage
        self._boot = uuid.uuid4().hex
        self._born = time.time()
        self._alone_since = time.monotonic()
        """Since when no coordinator has accepted this pod."""
        self._refusal = ""
        """Why the coordinator wants this pod to try again later."""
        self._fault: BaseException | None = None
        self._state = State.WAITING
        self._events: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self._terminated = asyncio.Event()
        self._disturbed = asyncio.Event()
        """SIGTERM came, or a fault: no wait goes on."""
        self._hub: Hub | None = None
        self._lease: lease.Lease | None = None
        self._link: Link | None = None
        self._staging = self._staged = False
        self._reading: Reading | None = None
        """The data and the program that this pod has prepared."""
        self._beating: asyncio.Task[None] | None = None
        self._moved = False
        """The ids that this pod knows are no longer true."""
        self._attempt: Attempt | None = None
        self._coordinator = ""
        self._processes: list[Process] = []
        self._running: list[Child] = []
        self._standby: list[Child] = []
        self._left = False
        self._beat: Message = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> int:
        """The pod's exit code. Raises `Failure` for what this pod alone found out."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_terminate)
        self._children = Children(self._on_end)
        self._spawn(self._report())
        # First of all: what it imports takes longer than everything else before training, and needs no trainer id.
        self._start_standby()
        try:
            return await self._live()
        except _Terminated:
            self._say("told to stop while nothing ran")
            return ExitCode.TERMINATED
        finally:
            await self._children.end([*self._running, *self._standby])
            if self._link is not None:
                await self._link.close()
            await self._step_down()
            for child in self._running:
                await background.call(child.drain)

    async def _live(self) -> int:
        while True:
            before = self._node.index
            known = await self._identify()
            if known is not None:
                self._say("this run has ended")
                return self._told(known.code, known.sentence)
            node = self._node
            if node.trainer_id == 0:
                await self._coordinate()
            if before != node.index or not self._staging:
                self._staging = True
                self._staged = False
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
            self._link = await self._connect()
            if self._link is None:
                return None
            code = await self._follow(self._link)
            if code is not None:
                return code
            await self._link.close()
            await self._end_processes()
            if self._terminated.is_set():
                return ExitCode.TERMINATED
            self._start_standby()
            if self._moved:
                return None

    async def _coordinate(self) -> None:
        """Takes the lease on the folder and serves the other supervisors."""
        node = self._node
        state = node.folder.run_state
        self._lease = await self._answer(
            lambda: lease.acquire(state, node.run_id, self._boot, node.lease, self._say), patience=node.lease
        )
        self._beating = self._spawn(self._keep_lease(self._lease))
        check = self._lease.check
        record = await self._answer(lambda: Record(node.folder, node.run_id, check))
        hub = Hub(
            node,
            record,
            self._discovery.view,
            self._discovery.name_of,
            resumption.of(node, self._say),
            self._say,
            self._on_fault,
        )
        await self._answer(hub.close_unfinished)
        await hub.serve()
        self._hub = hub
        exhausted = hub.exhausted()
        if exhausted is not None:
            hub.fail(Failure(exhausted.code, exhausted.sentence))

    async def _step_down(self) -> None:
        """Serves nobody any more, and lets the folder's next keeper in."""
        if self._beating is not None:
            self._beating.cancel()
            self._beating = None
        if self._hub is not None:
            await self._hub.close()
            self._hub = None
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
        try:
            reading = await background.call(lambda: self._stage(node))
            self._events.put_nowait(("staged", (node.index, reading)))
        except Failure as failure:
            self._events.put_nowait(("failure", failure))

    # The coordinator.

    async def _connect(self) -> Link | None:
        """Reaches the coordinator, however often its pod is replaced; None when ids must be given anew.

        Raises `Failure` at the deadline.
        """
        node = self._node
        began = self._alone_since
        reminded = asked = time.monotonic()
        pause, longest = RETRY
        self._moved = False
        hello = {
            "hello": "supervisor",
            "run": node.run_id,
            "index": node.trainer_id,
            "boot": self._boot,
            "born": self._born,
            "view": self._discovery.view,
            "name": self._discovery.name_of(node.trainer_id),
            "address": node.pod_ip,
            "trainers": node.trainers,
        }
        while True:
            # Also where the coordinator answers: it may have counted the pods anew, and sends this one away for its old view.
            if self._discovery.moved():
                return None
            try:
                address = await self._unless_terminated(self._discovery.coordinator())
                hear: Callable[[Message | None], None] = self._hear
                return await self._unless_terminated(Link.open(address, node.control_port, hello, hear))
            except OSError as error:
                why = self._refusal or str(error.strerror or error)
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

    def _hear(self, message: Message | None) -> None:
        if message is not None and "beat" in message:
            self._beat = message
            self._refusal = ""
        else:
            self._events.put_nowait(("hub", message))

    async def _follow(self, link: Link) -> int | None:
        """Carries out what the coordinator says. The exit code; None when the coordinator was lost."""
        self._drop_stale_events()
        if self._staged:
            self._send_ready(link, 0)
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
            if kind == "staged":
                index, reading = value
                if index == self._node.index:
                    self._staged, self._reading = True, reading
                    self._say(f"has read {reading.identity}")
                    self._send_ready(link, 0)
            elif kind == "fault":
                raise value
            elif kind == "failure":
                link.send({"fatal": 1, "code": value.code, "sentence": value.sentence})
            elif kind == "terminate":
                if self._state is State.WAITING:
                    raise _Terminated
                self._say(f"told to stop: the trainers may save, for at most {self._node.grace:g} s")
                link.send({"leaving": 1})
                self._stop_trainers(link)
                asyncio.get_running_loop().call_later(self._node.grace, self._events.put_nowait, ("grace over", None))
            elif kind == "grace over":
                self._say(f"the {self._node.grace:g} s after SIGTERM are over")
                return ExitCode.TERMINATED
            elif kind == "ended":
                self._process_ended(link, value)
            elif kind == "unexpected end":
                if not self._left and self._state is not State.WAITING:
                    self._report_loss(link, value)
            elif kind == "serving":
                if self._attempt is not None and value == self._attempt.number:
                    link.send({"serving": 1, "attempt": value})
            elif kind == "silent":
                number, silent = value
                self._say(f"pserver {self._node.trainer_id} {'answers nothing' if silent else 'answers again'}")
                link.send({"silent": int(silent), "attempt": number})
            elif kind == "hub":
                if value is None:
                    if not self._refusal:
                        self._alone_since = time.monotonic()
                        self._say("the pod of trainer 0 was lost: ending this pod's processes, then waiting for it")
                    return None
                if "later" in value:
                    # An old answer of the name server, or an older or younger list of pods: it settles with time.
                    self._refusal = str(value["later"])
                    if time.monotonic() - self._alone_since > self._node.peer_deadline:
                        raise Failure(ExitCode.PEERS_MISSING, f"{self._discovery.name_of(0)} is missing: {self._refusal}")
                    await asyncio.sleep(RETRY[1])
                    continue
                self._refusal = ""
                code = await self._obey(link, value)
                if code is not None:
                    return code

    def _send_ready(self, link: Link, attempt: int) -> None:
        read = self._reading.identity if self._reading is not None else Identity()
        link.send({"ready": attempt, "data": read.data, "program": read.program})

    def _drop_stale_events(self) -> None:
        """What an earlier link or attempt left in the queue means nothing to a new link; the rest does."""
        kept: list[tuple[str, Any]] = []
        while not self._events.empty():
            kind, value = self._events.get_nowait()
            if kind in ("staged", "failure", "fault"):
                kept.append((kind, value))
        for event in kept:
            self._events.put_nowait(event)

    async def _obey(self, link: Link, message: Message) -> int | None:
        kind = next(iter(message), "")
        if kind == "refused":
            raise Failure(int(message["refused"]), str(message["sentence"]))
        if kind == "start":
            addresses = protocol.unpack(message["addresses"])
            peers = [Peer(index, self._discovery.name_of(index), address) for index, address in enumerate(addresses)]
            self._start(link, Attempt(int(message["start"]), message["resume"], message["folder"], message["interrupted"]), peers)
        elif kind == "again":
            self._staged = False
            self._spawn(self._stage_data(pause=POLL))
        elif kind == "train":
            # It may cross a SIGTERM on its way.
            for process in self._processes if self._state is State.RUNNING else ():
                if process.waits_for_servers:
                    self._launch(process)
        elif kind == "left":
            self._left = True
        elif kind == "stop":
            if self._state is State.RUNNING:
                self._say(f"the trainers may save: {message['cause']}")
                self._stop_trainers(link)
        elif kind == "end":
            if self._attempt is not None and message["end"] == self._attempt.number and self._state is not State.WAITING:
                self._say(f"attempt {message['end']} ends: {message['cause']}")
            await self._end_processes()
            if self._terminated.is_set():
                return ExitCode.TERMINATED
            self._start_standby()
            self._send_ready(link, message["end"])
        elif kind == "finish":
            code, crashed = int(message["finish"]), message.get("crashed")
            # Where this pod's own trainer crashed, the trainer's own code.
            own = int(crashed[1]) if crashed and crashed[0] == self._node.trainer_id else code
            return await self._finish(own, str(message["sentence"]))
        return None

    # The processes of an attempt.

    def _start(self, link: Link, attempt: Attempt, peers: Sequence[Peer]) -> None:
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
        """Adds what only the supervisor knows."""
        assert self._attempt is not None
        resume = self._attempt.resume_pass
        manifest = reading.folder.manifest
        return replace(
            process,
            environ={
                **process.environ,
                Variable.COORDINATOR.value: self._coordinator,
                Variable.ATTEMPT.value: str(self._attempt.number),
                Variable.RESUME_PASS.value: "" if resume is None else str(resume),
                Variable.RESUME_FOLDER.value: self._attempt.resume_folder,
                Variable.RESUME_INTERRUPTED.value: self._attempt.interrupted,
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
        ready = [child for child in self._standby if child.process.role == process.role]
        child = next((child for child in ready if child.become(process, self._name(process), header)), None)
        if child is not None:
            self._standby.remove(child)
        else:
            child = self._children.start(process, self._name(process), header)
        self._running.append(child)
        self._say(f"{header}: {child.name} is process {child.pid}")

    def _start_standby(self) -> None:
        if not self._standby:
            standby: Callable[[NodeEnvironment], tuple[Process, ...]] = getattr(self._runtime, "standby", lambda _: ())
            for process in standby(self._node):
                self._standby.append(self._children.stand_by(process, self._name(process)))

    def _name(self, process: Process) -> str:
        index = self._node.index
        return f"{'pserver' if process.role == 'server' else 'trainer'} {index if index is not None else '?'}"

    async def _await_servers(self, attempt: int, ports: Sequence[int], asked: Sequence[tuple[int, str]]) -> None:
        """Reports when this pod's pservers accept connections; the hub holds the deadline."""
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
        self._events.put_nowait(("serving", attempt))
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
                self._events.put_nowait(("silent", (attempt, silent)))

    def _is_running(self, attempt: int) -> bool:
        return self._attempt is not None and self._attempt.number == attempt and self._state is not State.WAITING

    def _stop_trainers(self, link: Link) -> None:
        assert self._attempt is not None
        self._state = State.STOPPING
        trainers = self._of_role("trainer")
        for child in trainers:
            child.signal(signal.SIGTERM)
        if not trainers:  # They were to start behind the pservers: there is nothing to save.
            link.send({"stopped": 1, "attempt": self._attempt.number})

    def _of_role(self, role: str) -> list[Child]:
        return [child for child in self._running if child.process.role == role]

    def _process_ended(self, link: Link, child: Child) -> None:
        if child in self._standby:
            self._standby.remove(child)
            return
        if child.wanted_end or child not in self._running or self._state is State.WAITING:
            return
        if child.process.role == "server":
            if child.code == 0 and not self._left:
                # It may have heard sooner than we did that every trainer leaves.
                asyncio.get_running_loop().call_later(AFTER_LEAVE, self._events.put_nowait, ("unexpected end", child))
            elif not self._left:
                self._report_loss(link, child)
            return
        assert self._attempt is not None
        trainers = [process for process in self._processes if process.role == "trainer"]
        ended = [trainer.code for trainer in self._of_role("trainer")]
        all_ended = len(ended) == len(trainers) and all(code is not None for code in ended)
        if child.code != 0 and self._state is State.RUNNING:
            self._report_loss(link, child)
        elif all_ended and not any(ended):
            link.send({"trained": 1, "attempt": self._attempt.number})
        elif all_ended:
            link.send({"stopped": 1, "attempt": self._attempt.number})

    def _report_loss(self, link: Link, child: Child) -> None:
        assert self._attempt is not None
        role = "pserver" if child.process.role == "server" else "trainer"
        what = f"{role} {self._node.trainer_id} ended with {_code(child.code)}"
        # A pserver's code says nothing of the training, unless it is one that no other attempt can change.
        code = child.code if role == "trainer" or child.code in FAIL_JOB else 0
        # One that was killed, for want of memory or by hand, or found the volume full, says nothing of what it had loaded.
        failed = child.code not in (0, 128 + signal.SIGKILL, ExitCode.TERMINATED, ExitCode.VOLUME_FULL)
        link.send({"lost": what, "code": code, "failed": int(failed), "attempt": self._attempt.number})

    async def _end_processes(self) -> None:
        """Nothing of the attempt is left when this returns. Raises `Failure` when a process cannot be ended."""
        self._state = State.WAITING
        stubborn = await self._children.end(self._running)
        self._standby = [child for child in self._standby if child.code is None]
        if stubborn:
            names = ", ".join(f"{child.name} (process {child.pid})" for child in stubborn)
            raise Failure(ExitCode.CANNOT_END, f"{names} cannot be ended; this pod leaves, so that its replacement starts clean")

    async def _finish(self, code: int, sentence: str) -> int:
        self._state = State.WAITING
        servers = [child for child in self._of_role("server") if child.code is None]
        if code == ExitCode.DONE and servers:
            # Servers that were stopped by a trainer end by themselves; those that know no end are told.
            for child in servers:
                if not self._left:
                    child.signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.gather(*(child.ended.wait() for child in servers)), LEAVE_DEADLINE)
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

    def _on_end(self, child: Child) -> None:
        self._events.put_nowait(("ended", child))

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
            self._children.reap()
            status = {
                "state": self._state.value if self._state is not State.RUNNING else self._beat.get("beat", "running"),
                "attempt": self._attempt.number if self._attempt else None,
                "trainer_id": self._node.index,
                "trainer": self._beat.get("trainer") if self._state is State.RUNNING else None,
            }
            try:
                health.write(self._node.home, status)
            except OSError as error:
                if not unwritable:
                    unwritable = True
                    self._say(f"{self._node.home} takes no status for the health probe: {error.strerror or error}")
            await asyncio.sleep(BEAT)

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
        children.say(f"supervisor {index if index is not None else '?'}", text)


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

"""The rendezvous server, in the agent of trainer 0: sockets, clock, lease and volume around the
`Rendezvous`.

The server serves no one without the lease on the job's folder: if it loses the lease, or cannot
renew it in time, its pod ends. It closes a connection that does not prove in time that it knows the
run's secret, or sends anything malformed, without effect.
"""

import asyncio
import contextlib
import resource
import secrets
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from paddle_node import background
from paddle_node.background import Tasks
from paddle_node.contract import FAIL_JOB, ExitCode
from paddle_node.environment import NodeEnvironment
from paddle_node.failure import Failure
from paddle_node.rendezvous import messages as m
from paddle_node.rendezvous.attempts import Record
from paddle_node.rendezvous.discovery import Discovery
from paddle_node.rendezvous.loss import Loss
from paddle_node.rendezvous.members import Members
from paddle_node.rendezvous.state import Question, Rendezvous, State
from paddle_node.retry import disk_full, passing, retry
from paddle_node.runtimes import Progress, Resumption, Runtime
from paddle_node.volume import lease
from paddle_node.volume.attempts import POD, Outcome
from paddle_node.volume.passes import Identity

UNPROVEN = 256
"""Connections that may be in their handshake at once, besides the run's own; beyond that, the
oldest of those that said nothing makes room.
"""
OWN_FILES = 100
"""Open files that this process needs besides connections."""
FULL = 0.1
"""Seconds to wait for room if there is no stranger that could make some."""
RELEASE = 5.0
"""Seconds for the volume to record that the lease is released."""
GOODBYE = 5.0
"""Seconds for the other pods to hear how the job ended before the pod of trainer 0 leaves."""
PATIENCE = 10
"""Minutes for which a volume may refuse the next attempt before the job fails."""
COPYING = 6 * 3600.0
"""Seconds in which a command's attempt may begin: it may have to copy what a lost pod has open. A
volume that hangs shows in the lease.
"""
LOOKS = 4
"""The least checks of the program's progress in the time for which an attempt may go without.
"""
LOOK, SHARE = 10.0, 20
"""Seconds between two checks, which grow with the time that a check takes: `SHARE` times that."""

Answer = Callable[[Rendezvous, float], None]
"""Tells the rendezvous what the volume answered."""


def lasting(outcome: Outcome) -> bool:
    """Whether `outcome` is the run's end also for pods that the Job starts later."""
    return outcome.code == ExitCode.DONE or outcome.code in FAIL_JOB


class Volume:
    """Answers the rendezvous's questions from the record of attempts and the runtime's `Progress`.
    Every method blocks.
    """

    def __init__(
        self, node: NodeEnvironment, record: Record, progress: Progress, say: Callable[[str], None]
    ) -> None:
        self._node = node
        self._record = record
        self._progress = progress
        self.changed = progress.changed
        self._say = say
        self._resumption = Resumption()
        self.trainers_join = progress.trainers_join
        if record.unfinished():
            # This server's predecessor died without recording the attempt's end.
            self._resumption = Resumption(
                record.last.resume, passed_over=tuple(record.last.passed_over)
            )
            self._end(Loss("the pod of trainer 0 was lost", POD))
        self.identity = record.identity
        self.exhausted = record.exhausted(node.attempts) if self.identity else None

    def begin(self, identity: Identity) -> Answer:
        """Begins the next attempt: answers its number and what it resumes from."""
        try:
            history = retry(lambda: self._record.history, self._say, PATIENCE)
            self._resumption = retry(
                lambda: self._progress.begin(identity, history), self._say, PATIENCE
            )
            if (hopeless := self._record.hopeless(self._resumption)) is not None:
                return lambda rendezvous, now: rendezvous.finish(hopeless, now)
            number = retry(
                lambda: self._record.begin(
                    self._resumption, identity, self.trainers_join, history.number
                ),
                self._say,
                PATIENCE,
            )
            return lambda rendezvous, now: rendezvous.begun(number, self._resumption, now)
        except Failure as failure:
            outcome = Outcome(failure.code, failure.sentence)
        except OSError as error:
            code = (
                ExitCode.VOLUME_FULL
                if disk_full(error)
                else ExitCode.ATTEMPTS_EXHAUSTED
                if passing(error)
                else 1
            )
            # What refused it may be any folder of the job.
            where = error.filename or self._node.folder.run_state
            outcome = Outcome(code, f"no attempt can begin: {where}: {error.strerror or error}")
        return lambda rendezvous, now: rendezvous.finish(outcome, now)

    def record_end(self, loss: Loss) -> Answer:
        """Records how the attempt ended. Even if that fails, the next attempt gets a new number."""
        self._end(loss)
        exhausted = self._record.exhausted(self._node.attempts)
        return lambda rendezvous, now: rendezvous.end_recorded(
            exhausted, self._record.goodput.seconds, now
        )

    def conclude(self, attempt: int, stopped: bool) -> Answer:
        """Answers whether anything is missing for the job to be done."""
        identity = Identity(self._record.last.data, self._record.last.program)
        try:
            missing = retry(
                lambda: self._progress.finished(identity, self._resumption, stopped), self._say
            )
        except Failure as failure:
            return _finishes(failure)
        made = retry(lambda: self._progress.made(attempt, self._resumption), self._say)
        return lambda rendezvous, now: rendezvous.concluded(attempt, missing, made, now)

    def record_outcome(self, outcome: Outcome, loss: Loss | None) -> Answer:
        """Records the run's outcome, unless another try may change it: pods that the Job starts
        later then get their chance.
        """
        if loss is not None:
            self._end(loss)
        if (goodput := self._record.goodput).seconds:
            self._say(goodput.line())
        if lasting(outcome):
            try:
                self._record.finish(outcome)
            except OSError as error:
                where = f"{error.filename}: " if error.filename else ""
                self._say(f"the outcome cannot be recorded: {where}{error.strerror or error}")
            else:
                publish(self._record, self._progress, self._say)
        return lambda rendezvous, now: rendezvous.outcome_recorded(outcome)

    def _end(self, loss: Loss) -> None:
        try:
            if self._record.unfinished():
                made = retry(
                    lambda: self._progress.made(self._record.last.number, self._resumption),
                    self._say,
                )
                self._record.end(
                    loss,
                    made,
                    self.trainers_join,
                    retry(self._progress.saved, self._say) if made else 0.0,
                    metrics=bool(self._node.own.metrics),
                )
        except OSError as error:
            self._say(f"the attempt's end cannot be recorded: {error.strerror or error}")


def publish(record: Record, progress: Progress, say: Callable[[str], None]) -> None:
    """Puts the results of a run that has ended where people look, unless a process of it may be
    left. Blocking. Does nothing the second time.
    """
    if record.identity is None or not record.last.gone:
        return
    try:
        progress.publish()
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        say(
            f"some of the results stay in the attempt's folder in output/attempts: "
            f"{where}{error.strerror or error}"
        )


def _finishes(failure: Failure) -> Answer:
    outcome = Outcome(failure.code, failure.sentence)
    return lambda rendezvous, now: rendezvous.finish(outcome, now)


class Server:
    """Carries out what the rendezvous decides, from `serve` to `close`, as some of an event loop's
    `tasks`.
    """

    def __init__(
        self, node: NodeEnvironment, discovery: Discovery, tasks: Tasks, say: Callable[[str], None]
    ) -> None:
        self.say = say
        self._node = node
        self._discovery = discovery
        self._tasks = tasks
        self._lease: lease.Lease | None = None
        self._silent: dict[asyncio.StreamWriter, None] = {}
        """Connections that said nothing yet, the oldest first."""
        self._greeted: dict[asyncio.StreamWriter, None] = {}
        """Connections that said who they are, and did not prove it yet."""
        self._open: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}
        self._crowded = 0
        self._questions: asyncio.Queue[tuple[Callable[[], Answer], float]] = asyncio.Queue()
        self._listener: socket.socket | None = None
        self._own: list[asyncio.Task[None]] = []

    async def serve(self, runtime: Runtime, incarnation: str, secret: str) -> None:
        """Listens on the pod's own address. Raises `Failure` if another run holds the folder or the
        port is taken.
        """
        node, say, state = self._node, self.say, self._node.folder.run_state
        held = self._lease = await background.ask(
            lambda: lease.acquire(state, node.run_id, incarnation, node.lease, say),
            node,
            say,
            node.lease,
        )
        self._own.append(self._tasks.spawn(self._keep(held)))
        record = await background.ask(
            lambda: Record(node.folder, node.run_id, held.check), node, say
        )
        progress = runtime.progress(node, say)
        self._secret, self._volume = (
            secret,
            await background.ask(lambda: Volume(node, record, progress, say), node, say),
        )
        members = Members(
            node.trainers, node.pod_ip, self._discovery.membership, self._discovery.name_of
        )
        join, identity = progress.trainers_join, self._volume.identity
        self._rendezvous = Rendezvous(
            node, members, join, identity, record.goodput.seconds, self, time.monotonic()
        )
        try:
            family = socket.AF_INET6 if ":" in node.pod_ip else socket.AF_INET
            self._listener = socket.create_server(
                (node.pod_ip, node.control_port), family=family, backlog=4096
            )
            self._listener.setblocking(False)
        except OSError as error:
            raise Failure(
                ExitCode.BAD_SETTING,
                f"port {node.control_port} of {node.pod_ip} cannot be served ({error.strerror}): "
                "choose another CONTROL_PORT, or POD_IP is not this pod's address",
            ) from None
        self._own += [
            self._tasks.spawn(work)
            for work in (
                self._listen(self._listener),
                self._tick(),
                self._ask_volume(),
                self._look(),
            )
        ]
        if self._volume.exhausted is not None:
            self._rendezvous.finish(self._volume.exhausted, time.monotonic())

    async def close(self) -> None:
        """Records what is still unrecorded, gives the other pods a moment to hear of the job's end,
        and releases the lease.
        """
        if self._listener is not None:
            self._rendezvous.record_end()
            finished = self._rendezvous.state is State.FINISHED
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GOODBYE):
                    await self._questions.join()
                    while finished and self._rendezvous.members:
                        await asyncio.sleep(0.02)
            for member in self._rendezvous.members.values():
                self.close_connection(member.connection)
        for task in self._own:
            task.cancel()
        if self._listener is not None:
            self._listener.close()
        while self._turn_away():
            pass
        if self._lease is not None:
            with contextlib.suppress(TimeoutError):  # It expires instead.
                await asyncio.wait_for(background.call(self._lease.release), RELEASE)

    @property
    def numbers(self) -> tuple[dict[str, float], dict[int, float]]:
        """The run's goodput and its slow trainers, as `Rendezvous.numbers` returns them; empty
        before `serve`.
        """
        if self._listener is None:
            return {}, {}
        return self._rendezvous.numbers(time.monotonic())

    # What the rendezvous asks of its server.

    def send(self, message: m.Message, *connections: Any) -> None:
        """Sends a message to agents or trainers."""
        line = m.encode(message)
        for connection in connections:
            with contextlib.suppress(OSError, RuntimeError):
                connection.write(line)

    def close_connection(self, connection: Any) -> None:
        """Closes a connection after what was already sent."""
        with contextlib.suppress(OSError, RuntimeError):
            connection.close()

    def ask(self, what: Question, *about: Any) -> None:
        """Queues a call of the `Volume`'s method `what`, which takes a while."""
        copies = what == "begin" and not self._volume.trainers_join
        question = partial(getattr(self._volume, what), *about)
        self._questions.put_nowait((question, COPYING if copies else 0.0))

    # Connections.

    async def _listen(self, listener: socket.socket) -> None:
        """Accepts connections while there is room for them. asyncio's own server accepts first, and
        at the limit of open files prints a traceback for each one that waits.
        """
        loop = asyncio.get_running_loop()
        while True:
            await self._make_room()
            try:
                connection, _ = await loop.sock_accept(listener)
                reader = asyncio.StreamReader(limit=m.FIRST)
                transport, protocol = await loop.connect_accepted_socket(
                    partial(asyncio.StreamReaderProtocol, reader), connection
                )
            except OSError:  # The connection is gone again, or another limit was reached.
                self._turn_away()
                await asyncio.sleep(FULL)
                continue
            writer = asyncio.StreamWriter(transport, protocol, reader, loop)
            self._silent[writer] = None
            self._open[writer] = asyncio.create_task(self._accept(reader, writer))

    async def _make_room(self) -> None:
        """Closes strangers, first those that say nothing, until one more connection is allowed."""
        strangers = UNPROVEN + 2 * self._node.trainers
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        while (
            len(self._silent) + len(self._greeted) >= strangers
            or len(self._open) >= files - OWN_FILES
        ):
            if not self._turn_away():
                if self._crowded != len(self._open):
                    self._crowded = len(self._open)
                    self.say(
                        f"{self._crowded} connections are all that a limit of {files} open files "
                        "has room for: raise it (ulimit -Hn) for so many trainers"
                    )
                await asyncio.sleep(FULL)
        await asyncio.sleep(0)  # Between two strangers, others are heard.

    def _turn_away(self) -> bool:
        for strangers in (self._silent, self._greeted):
            if (writer := next(iter(strangers), None)) is not None:
                del strangers[writer], self._open[writer]
                writer.transport.abort()
                return True
        return False

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        rendezvous, now = self._rendezvous, time.monotonic
        try:
            match await self._proven(reader, writer):
                case m.Hello() as hello:
                    rendezvous.hello(hello, writer, now())
                    try:
                        while (message := await m.receive(reader, *m.FROM_AGENT)) is not None:
                            rendezvous.agent_message(hello.rank, writer, message, now())
                    finally:
                        rendezvous.closed(hello.rank, writer, now())
                case m.Join() as join:
                    rendezvous.join(join, writer, now())
                    while (message := await m.receive(reader, *m.FROM_TRAINER)) is not None:
                        rendezvous.trainer_message(join.rank, writer, message, now())
        except asyncio.CancelledError:
            pass  # This pod ends: Python 3.11 would print a traceback.
        finally:
            self._open.pop(writer, None)
            writer.close()

    async def _proven(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> m.Hello | m.Join | None:
        """Returns who connects; None if the other side does not prove in time that it knows the
        secret.
        """
        nonce = secrets.token_hex(16)
        try:
            async with asyncio.timeout(m.HANDSHAKE):
                writer.write(m.encode(m.Challenge(nonce)))
                line = await m.read_line(reader, m.FIRST)
                hello: m.Hello | m.Join = m.parse(line, m.Hello, m.Join)
                if writer in self._silent:
                    del self._silent[writer]
                    self._greeted[writer] = None
                proof = m.parse(await m.read_line(reader, m.FIRST), m.Proof)
        except (OSError, EOFError, ValueError, TimeoutError):
            return None
        finally:
            self._silent.pop(writer, None)
            self._greeted.pop(writer, None)
        key = (
            m.attempt_key(self._secret, hello.attempt)
            if isinstance(hello, m.Join)
            else self._secret
        )
        if not m.proven(key, nonce, proof.nonce, proof.mac, line):
            return None
        writer.write(m.encode(m.Proof("", m.proof(key, nonce, proof.nonce))))
        return hello

    # Time, the lease and the volume.

    async def _ask_volume(self) -> None:
        try:
            while True:
                question, allowed = await self._questions.get()
                answer = await background.ask(question, self._node, self.say, allowed)
                answer(self._rendezvous, time.monotonic())
                self._questions.task_done()
        except background.NoAnswer as failure:
            # Any other outcome, unrecorded, would not bind a pod that comes later: no pod may leave
            # with it.
            self._rendezvous.finish(
                outcome := Outcome(failure.code, failure.sentence), time.monotonic()
            )
            self._rendezvous.outcome_recorded(outcome)

    async def _look(self) -> None:
        """Looks for progress that no trainer reports."""
        took = 0.0
        while True:
            await asyncio.sleep(min(self._node.stall / LOOKS, max(LOOK, SHARE * took)))
            began = time.monotonic()
            try:
                if self._rendezvous.state is State.TRAINING and await background.call(
                    self._volume.changed
                ):
                    self._rendezvous.moved = time.monotonic()
            except OSError:
                pass  # What needs the volume says so.
            except Failure as failure:
                _finishes(failure)(self._rendezvous, time.monotonic())
            took = time.monotonic() - began

    async def _tick(self) -> None:
        last = time.monotonic()
        while True:
            await asyncio.sleep(m.BEAT)
            now = time.monotonic()
            self._rendezvous.tick(now, now - last > 3 * m.BEAT)
            last = now

    async def _keep(self, held: lease.Lease) -> None:
        while True:
            await asyncio.sleep(min(held.interval, max(0.0, held.left)))
            try:
                # A volume that hangs must not delay the look at the clock; a pod that was frozen
                # may learn who replaced it.
                async with asyncio.timeout(max(1.0, held.left)):
                    await background.call(held.beat)
            except TimeoutError:
                pass
            except lease.TakenOver as failure:
                self._lease = None
                if failure.same_run and self._discovery.moved():
                    return  # Ranks were reassigned, and another pod heard of it first.
                raise
            except OSError as error:
                self.say(
                    f"the lease cannot be looked at: {error.strerror or error}; the next "
                    "heartbeat tries again"
                )
            if held.left <= 0:
                self._lease = (
                    None  # Not released: when it expires, everything of this run has stopped.
                )
                raise held.overdue()

"""The rendezvous server, in the agent of trainer 0: clock, lease and volume around the
`Rendezvous`, which decides everything.

It serves no one without the lease on the job's folder: if it loses the lease, or cannot renew it in
time, its pod ends.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from functools import partial

from paddle_node import background
from paddle_node.background import Tasks
from paddle_node.environment import PodEnvironment
from paddle_node.failure import Failure
from paddle_node.rendezvous import effects as e
from paddle_node.rendezvous import events as on
from paddle_node.rendezvous import heartbeat
from paddle_node.rendezvous import messages as m
from paddle_node.rendezvous.attempts import AttemptRecord
from paddle_node.rendezvous.bookkeeper import Bookkeeper
from paddle_node.rendezvous.connections import Connections
from paddle_node.rendezvous.discovery import Discovery
from paddle_node.rendezvous.members import Members
from paddle_node.rendezvous.state import JobState, Rendezvous
from paddle_node.runtimes import Progress, Runtime
from paddle_node.volume import lease
from paddle_node.volume.attempts import Outcome
from paddle_node.volume.progress import read_folder

RELEASE_SECONDS = 5.0
"""Seconds for the volume to record that the lease is released."""
GOODBYE_SECONDS = 5.0
"""Seconds for the other pods to hear how the job ended before the pod of trainer 0 leaves."""
BEGIN_DEADLINE = 6 * 3600.0
"""Seconds in which a command's attempt may begin: it may have to copy what a lost pod has open. A
volume that hangs shows in the lease.
"""
LEAST_CHECKS = 4
"""The least checks of the program's progress in the time for which an attempt may go without.
"""
PROGRESS_INTERVAL = 10.0
"""Seconds between two log lines that say how far rank 0 is."""
CHECK_INTERVAL, CHECK_SHARE = 10.0, 20
"""Seconds between two checks, which grow with the time that a check takes: `CHECK_SHARE` times
that.
"""


class Server:
    """Carries out what the rendezvous decides, from `serve` to `close`, as some of an event loop's
    `tasks`.
    """

    def __init__(
        self, pod: PodEnvironment, discovery: Discovery, tasks: Tasks, say: Callable[[str], None]
    ) -> None:
        self._pod = pod
        self._discovery = discovery
        self._tasks = tasks
        self._say = say
        self._lease: lease.Lease | None = None
        self._questions: asyncio.Queue[e.Question] = asyncio.Queue()
        self._rendezvous: Rendezvous | None = None
        self._connections: Connections | None = None
        self._running: list[asyncio.Task[None]] = []

    async def serve(self, runtime: Runtime, incarnation: str, secret: str) -> None:
        """Listens on the pod's own address. Raises `Failure` if another run holds the folder or the
        port is taken.
        """
        pod, say, state = self._pod, self._say, self._pod.folder.run_state
        wait = await background.ask(lambda: lease.measure_wait(state, pod.lease), pod, say)
        held = self._lease = await background.ask(
            lambda: lease.acquire(state, pod.run_id, incarnation, pod.lease, say), pod, say, wait
        )
        self._running.append(self._tasks.spawn(self._keep(held)))
        record = await background.ask(
            lambda: AttemptRecord(pod.folder, pod.run_id, held.check), pod, say
        )
        progress = runtime.progress(pod, say)
        books = await background.ask(lambda: Bookkeeper(pod, record, progress, say), pod, say)
        members = Members(
            pod.trainers, pod.pod_ip, self._discovery.membership, self._discovery.name_of
        )
        rendezvous = self._rendezvous = Rendezvous(
            pod,
            members,
            books.identity,
            record.goodput.seconds,
            time.monotonic(),
            books.last,
        )
        self._connections = Connections(pod, secret, self._serve_client, say)
        work = (
            self._connections.listen(),
            self._tick(),
            self._ask_volume(books, 0.0 if pod.way.passes else BEGIN_DEADLINE),
            self._look(rendezvous, progress),
            self._tell_progress(rendezvous),
        )
        self._running += [self._tasks.spawn(task) for task in work]
        if books.exhausted is not None:
            self._handle(on.JobOver(books.exhausted))

    async def close(self) -> None:
        """Records what is still unrecorded, gives the other pods a moment to hear of the job's end,
        and releases the lease.
        """
        if self._connections is not None and self._rendezvous is not None:
            self._handle(on.Closing())
            members = self._rendezvous.members
            finished = self._rendezvous.state is JobState.FINISHED
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GOODBYE_SECONDS):
                    await self._questions.join()
                    while finished and members:
                        await asyncio.sleep(0.02)
            for member in members.values():
                self._carry_out(e.Close(member.connection))
        for task in self._running:
            task.cancel()
        if self._connections is not None:
            self._connections.close()
        if self._lease is not None:
            with contextlib.suppress(TimeoutError):  # It expires instead.
                await asyncio.wait_for(background.call(self._lease.release), RELEASE_SECONDS)

    @property
    def goodput(self) -> tuple[dict[str, float], dict[int, float]]:
        """The run's goodput and its slow trainers, as `Rendezvous.measure_goodput` returns them;
        empty before `serve`.
        """
        if self._connections is None or self._rendezvous is None:
            return {}, {}
        return self._rendezvous.measure_goodput(time.monotonic())

    def _handle(self, event: on.Event) -> None:
        assert self._rendezvous is not None
        for effect in self._rendezvous.handle(event, time.monotonic()):
            self._carry_out(effect)

    def _carry_out(self, effect: e.Effect) -> None:
        match effect:
            case e.Send(message, connections):
                line = m.encode(message)
                for connection in connections:
                    with contextlib.suppress(OSError, RuntimeError):
                        connection.write(line)
            case e.Close(connection):
                with contextlib.suppress(OSError, RuntimeError):
                    connection.close()
            case e.Say(text):
                self._say(text)
            case question:
                self._questions.put_nowait(question)

    async def _serve_client(
        self, client: m.Hello | m.Join, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        match client:
            case m.Hello(rank=rank):
                self._handle(on.AgentCame(client, writer))
                try:
                    while (message := await m.receive(reader, *m.FROM_AGENT)) is not None:
                        self._handle(on.AgentSent(rank, writer, message))
                finally:
                    self._handle(on.AgentLeft(rank, writer))
            case m.Join(rank=rank):
                self._handle(on.TrainerCame(client, writer))
                while (message := await m.receive(reader, *m.FROM_TRAINER)) is not None:
                    self._handle(on.TrainerSent(rank, writer, message))

    # Time, the lease and the volume.

    async def _ask_volume(self, books: Bookkeeper, begin_deadline: float) -> None:
        try:
            while True:
                question = await self._questions.get()
                self._handle(
                    await background.ask(
                        partial(books.answer, question),
                        self._pod,
                        self._say,
                        begin_deadline if isinstance(question, e.Begin) else 0.0,
                    )
                )
                self._questions.task_done()
        except background.NoAnswer as failure:
            # Any other outcome, unrecorded, would not bind a pod that comes later: no pod may leave
            # with it.
            outcome = Outcome(failure.code, failure.sentence)
            self._handle(on.JobOver(outcome))
            self._handle(on.OutcomeRecorded(outcome))

    async def _look(self, rendezvous: Rendezvous, progress: Progress) -> None:
        """Looks for progress that no trainer reports."""
        took = 0.0
        while True:
            await asyncio.sleep(
                min(self._pod.stall / LEAST_CHECKS, max(CHECK_INTERVAL, CHECK_SHARE * took))
            )
            began = time.monotonic()
            try:
                if rendezvous.state is JobState.TRAINING and await background.call(
                    progress.has_progressed
                ):
                    self._handle(on.Progressed())
            except OSError:
                pass  # Calls that need the volume report its faults.
            except Failure as failure:
                self._handle(on.JobOver(Outcome(failure.code, failure.sentence)))
            took = time.monotonic() - began

    async def _tell_progress(self, rendezvous: Rendezvous) -> None:
        """Says every few seconds how far rank 0 is, where that is new."""
        reported = ""
        while True:
            await asyncio.sleep(PROGRESS_INTERVAL)
            if rendezvous.state not in (JobState.TRAINING, JobState.STOPPING):
                continue
            with contextlib.suppress(OSError):
                far = await background.call(partial(read_folder, self._pod.folder))
                if far is not None and far.reported != reported:
                    reported = far.reported
                    self._say(far.line())

    async def _tick(self) -> None:
        last = time.monotonic()
        while True:
            await asyncio.sleep(heartbeat.INTERVAL)
            now = time.monotonic()
            self._handle(on.Ticked(late=now - last > 3 * heartbeat.INTERVAL))
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
                if failure.same_run and self._discovery.has_moved():
                    return  # Ranks were reassigned, and another pod heard of it first.
                raise
            except OSError as error:
                self._say(
                    f"the lease cannot be looked at: {error.strerror or error}; the next "
                    "heartbeat tries again"
                )
            if held.left <= 0:
                self._lease = (
                    None  # Not released: when it expires, everything of this run has stopped.
                )
                raise held.expiry_failure()

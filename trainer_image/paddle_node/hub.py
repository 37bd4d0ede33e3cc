"""The supervisor of trainer 0 serves the others: it counts them in, starts attempts, ends them, and ends the job.

Promises: an attempt starts only when all N supervisors of this run are here, have read the same data and the same program and
have no process left of an earlier attempt; the loss of any of them, or of any process that one reports, ends the attempt for all;
every wait has a deadline, and its message names who was missing; the outcome is on the volume before a peer
hears of it.

States: GATHERING -> STARTING (pservers come up) -> TRAINING -> FINISHED; from STARTING and TRAINING, a loss leads
to ENDING (everybody ends what runs) and back to GATHERING; a SIGTERM to any pod leads to STOPPING (trainers may
save) and then to ENDING.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

from paddle_node import background, protocol
from paddle_node.attempts import Outcome, Record
from paddle_node.contract import FAIL_JOB, ExitCode
from paddle_node.environment import NodeEnvironment
from paddle_node.failure import Failure
from paddle_node.passes import Identity
from paddle_node.protocol import Message
from paddle_node.resumption import Passes, Resumption

T = TypeVar("T")

REMIND = 30.0
"""Seconds between two lines that say who is missing, or why no trainer moves."""
SILENT_SERVER = 240.0
"""Seconds after which a pserver that answers nothing is lost (`PADDLE_NODE_STALL` where that is less). While one of 2.6.2 saved
and loaded a table of 1.5 million rows for two minutes, each question was answered within half a second."""
SHOWN = 20
"""Peers that a message names at most."""
FAREWELL = 5.0
"""Seconds for the others to hear how the job ended before the pod of trainer 0 leaves."""


class State(Enum):
    """Where the job is."""

    GATHERING = "waiting for peers"
    STARTING = "waiting for pservers"
    TRAINING = "training"
    STOPPING = "saving before it stops"
    ENDING = "ending the attempt"
    FINISHED = "finished"


@dataclass(eq=False)
class _Member:
    """One supervisor's connection."""

    index: int
    boot: str
    name: str
    address: str
    writer: asyncio.StreamWriter
    heard: float
    runs: bool = False
    """It was in an attempt, and has not yet said that no process of it is left."""
    read: Identity | None = None
    """The data and the program that it has read."""


@dataclass(eq=False)
class _Session:
    """One trainer's connection."""

    index: int
    writer: asyncio.StreamWriter
    waits_in: str | None = None
    moved: float = field(default_factory=time.monotonic)
    """When it last reported a step or arrived somewhere."""
    at: tuple[int, int] | None = None
    """Pass and step."""


class Hub:
    """Lives in one event loop; what `passes` and `record` do blocks."""

    def __init__(
        self,
        node: NodeEnvironment,
        record: Record,
        view: str,
        name_of: Callable[[int], str],
        passes: Passes,
        say: Callable[[str], None],
        on_fault: Callable[[BaseException], None],
    ) -> None:
        self.state = State.GATHERING
        self._node = node
        self._record = record
        self._view = view
        self._name_of = name_of
        self._passes = passes
        self._say = say
        self._on_fault = on_fault
        self._newest_boot: dict[int, tuple[float, str]] = {}
        """When each trainer id's youngest supervisor was born, and its boot id."""
        self._members: dict[int, _Member] = {}
        self._ready: set[int] = set()
        """Who has its data, and no process of an earlier attempt."""
        self._differ: tuple[str, float] | None = None
        """Who read what, where it was not the same, and since when."""
        self._joined: set[int] = set()
        """Whose trainer said in this attempt that it is there."""
        self._stepped = False
        """A trainer made a step in this attempt."""
        self._serving: set[int] = set()
        self._silent: dict[int, float] = {}
        """Pservers that answer nothing, and since when."""
        self._trained: set[int] = set()
        self._stopped: set[int] = set()
        self._sessions: dict[int, _Session] = {}
        self._gathers: dict[str, dict[int, Any]] = {}
        self._attempt = 0
        self._since = time.monotonic()
        self._reminded = self._since
        self._volume = asyncio.Lock()
        """One question to the volume at a time, in the order of asking."""
        self._asked_volume = 0.0
        self._beginning = False
        self._concluding = False
        self._stop_cause: str | None = None
        self._farewell: Message | None = None
        """How the job ended, as everybody was told."""
        self._crashed: tuple[int, int] | None = None
        """The trainer whose end ended the attempt, and its exit code."""
        self._server: asyncio.Server | None = None
        self._ticker: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Listens on the pod's own address. Raises `Failure` when the port is taken."""
        try:
            self._server = await asyncio.start_server(
                self._accept, self._node.pod_ip, self._node.control_port, limit=protocol.LONGEST, backlog=4096
            )
        except OSError as error:
            raise Failure(
                ExitCode.BAD_SETTING,
                f"port {self._node.control_port} of {self._node.pod_ip} cannot be served ({error.strerror}): "
                "choose another CONTROL_PORT, or POD_IP is not this pod's address",
            ) from None
        self._ticker = asyncio.create_task(self._tick())
        self._ticker.add_done_callback(self._done)

    async def close(self) -> None:
        """Stops to serve; after the job's end, the others get a moment to hear of it first."""
        deadline = time.monotonic() + FAREWELL
        while self.state is State.FINISHED and len(self._members) > 0 and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        if self._ticker is not None:
            self._ticker.cancel()
        if self._server is not None:
            self._server.close()
        with contextlib.suppress(TimeoutError):  # What is being written is written to the end.
            await asyncio.wait_for(self._volume.acquire(), FAREWELL)
        for member in list(self._members.values()):
            member.writer.close()
        self._members.clear()

    def fail(self, failure: Failure) -> None:
        """Ends the job for everybody."""
        self._later(self._finish(Outcome(failure.code, failure.sentence)))

    # Connections.

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello = await protocol.receive(reader)
        try:
            if hello is None:
                return
            if hello.get("hello") == "supervisor":
                await self._serve_member(hello, reader, writer)
            elif hello.get("hello") == "trainer":
                await self._serve_session(hello, reader, writer)
        finally:
            writer.close()

    async def _serve_member(self, hello: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        later = self._later_reason(hello)
        if later is not None:
            _send(writer, {"later": later})
            return
        refusal = self._refusal(hello)
        if refusal is not None:
            self._say(f"a supervisor at {hello.get('address')} was refused: {refusal[1]}")
            _send(writer, {"refused": refusal[0], "sentence": refusal[1]})
            return
        index = int(hello["index"])
        member = _Member(index, str(hello["boot"]), str(hello["name"]), str(hello["address"]), writer, time.monotonic())
        self._newest_boot[index] = (float(hello["born"]), member.boot)
        earlier = self._members.get(index)
        if earlier is not None:
            how = "reconnected" if earlier.boot == member.boot else "restarted"
            self._drop(earlier, f"the pod of trainer {index} ({earlier.name}) {how}")
        self._members[index] = member
        if self._farewell is not None:
            _send(writer, self._farewell)
        try:
            while (message := await protocol.receive(reader)) is not None:
                member.heard = time.monotonic()
                if self._members.get(index) is not member:
                    return
                self._hear(member, message)
        finally:
            if self._members.get(index) is member:
                self._drop(member, f"the pod of trainer {index} ({member.name}) was lost")

    def _later_reason(self, hello: Message) -> str | None:
        """Why a supervisor should try again, where time alone can settle it: old DNS answers, old lists of pods."""
        if hello.get("run") != self._node.run_id:
            return f"{self._name_of(0)} at {self._node.pod_ip} belongs to run {self._node.run_id}, not to run {hello.get('run')}"
        if hello.get("view") != self._view:
            return "this pod sees other pods than the pod of trainer 0"
        return None

    def _refusal(self, hello: Message) -> tuple[int, str] | None:
        if hello.get("trainers") != self._node.trainers:
            return (
                ExitCode.BAD_SETTING,
                f"CONF_PADDLE_GRADIENT_NUM is {hello.get('trainers')} here and {self._node.trainers} in the pod of trainer 0: "
                "all pods need the same",
            )
        index = hello.get("index")
        if not isinstance(index, int) or not 0 <= index < self._node.trainers:
            return ExitCode.BAD_SETTING, f"the trainer id is {index}: 0 to {self._node.trainers - 1} are this job's"
        born, boot = self._newest_boot.get(index, (0.0, ""))
        if hello.get("boot") != boot and float(hello["born"]) < born:
            return ExitCode.REPLACED, f"a newer pod of trainer {index} has taken this one's place"
        return None

    def _drop(self, member: _Member, cause: str) -> None:
        """A member is gone; what it ran is gone with it, or ends by its own hand within `SILENCE` seconds."""
        if self._members.get(member.index) is member:
            del self._members[member.index]
            self._ready.discard(member.index)
            self._serving.discard(member.index)
            self._silent.pop(member.index, None)
            self._trained.discard(member.index)
        member.writer.close()
        if self.state is State.FINISHED:
            return
        if self.state is State.STOPPING:
            # Trainers cannot save together any more.
            self._lose(f"{self._stop_cause}; then {cause}", 0, counts=False)
        elif self.state in (State.STARTING, State.TRAINING):
            self._lose(cause, 0)
        elif self.state is State.GATHERING:
            self._say(f"{cause}; waiting for it")
        self._advance()

    def _hear(self, member: _Member, message: Message) -> None:
        kind = next(iter(message), "")
        if kind == "beat":
            return
        if kind == "fatal":
            self._later(self._finish(Outcome(int(message["code"]), f"trainer {member.index}: {message['sentence']}")))
            return
        if kind == "ready":
            if message["ready"] in (0, self._attempt):
                member.runs = False
                member.read = Identity(str(message.get("data", "")), str(message.get("program", "")))
                self._ready.add(member.index)
                self._advance()
            return
        if kind == "leaving":
            self._leave(member)
            return
        if message.get("attempt") != self._attempt or self.state not in (State.STARTING, State.TRAINING, State.STOPPING):
            return
        if kind == "serving":
            self._serving.add(member.index)
        elif kind == "silent":
            if message["silent"]:
                self._silent[member.index] = time.monotonic()
            else:
                self._silent.pop(member.index, None)
        elif kind == "trained":
            self._trained.add(member.index)
            self._stopped.add(member.index)
            for name in list(self._gathers):
                self._check_abandoned(name)
        elif kind == "stopped":
            self._stopped.add(member.index)
        elif kind == "lost":
            self._lost_process(member, str(message["lost"]), int(message["code"]), bool(message.get("failed")))
        self._advance()

    # The job's way.

    def _advance(self) -> None:
        """Takes every step that what is known allows."""
        count = self._node.trainers
        if self.state is State.ENDING and not self._concluding and not any(member.runs for member in self._members.values()):
            self._enter(State.GATHERING)
        if self.state is State.GATHERING and len(self._ready) == count:
            self._later(self._begin())
        elif self.state is State.STARTING and len(self._serving) == count:
            self._enter(State.TRAINING)
            self._broadcast({"train": self._attempt})
            for session in self._sessions.values():
                if session.waits_in == "servers":
                    self._answer(session, {"answer": "servers"})
        running = self.state in (State.STARTING, State.TRAINING, State.STOPPING)
        if running and len(self._trained) == count:
            self._later(self._conclude())
        elif self.state is State.STOPPING and len(self._stopped) == count:
            self._lose(self._stop_cause or "the job was told to stop", 0, counts=False)

    def _enter(self, state: State) -> None:
        self.state = state
        self._since = self._reminded = time.monotonic()

    async def _begin(self) -> None:
        if self._beginning or self.state is not State.GATHERING:
            return
        identity = self._same_reading()
        if identity is None:
            return
        self._beginning = True
        try:
            number, resume = await self._on_volume(lambda: self._prepare(identity))
        except Failure as failure:
            await self._finish(Outcome(failure.code, failure.sentence))
            return
        except OSError as error:
            code = ExitCode.VOLUME_FULL if error.errno in (errno.ENOSPC, errno.EDQUOT) else 1
            await self._finish(Outcome(code, f"{self._node.folder.run_state} takes no attempt: {error.strerror or error}"))
            return
        finally:
            self._beginning = False
        if self.state is not State.GATHERING or len(self._ready) < self._node.trainers:
            # Somebody was lost while the volume answered: the number is spent, the attempt never ran.
            await self._close_attempt("a pod was lost before the attempt began", 0, counts=False)
            self._advance()
            return
        self._attempt = number
        self._sessions.clear()
        self._gathers.clear()
        self._stop_cause = self._crashed = None
        self._stepped = False
        self._differ = None
        for marks in (self._ready, self._serving, self._joined, self._trained, self._stopped):
            marks.clear()
        self._silent.clear()
        for member in self._members.values():
            member.runs = True
        self._enter(State.STARTING)
        resumes = "from the beginning" if resume.number is None else f"behind pass {resume.number}"
        self._say(f"attempt {number}: all {self._node.trainers} pods are here, training starts {resumes}")
        addresses = protocol.pack([self._members[i].address for i in range(self._node.trainers)])
        names = {"resume": resume.number, "folder": resume.folder, "interrupted": resume.interrupted}
        self._broadcast({"start": number, **names, "addresses": addresses})

    def _same_reading(self) -> Identity | None:
        """The data and the program of the run; None where not all have read them, who are asked to prepare again."""
        members = sorted(self._members.values(), key=lambda member: member.index)
        known = self._record.identity
        read = {member.read for member in members if member.read is not None}
        if read == {known} or (known is None and len(read) == 1):
            return read.pop()
        readers = {one: _numbers(member.index for member in members if member.read == one) for one in sorted(read, key=str)}
        parts = [f"trainers {who} read {one}" for one, who in readers.items()]
        sentence = "; ".join([*parts, *([f"the run began with {known}"] if known else [])])
        if self._differ is None or self._differ[0] != sentence:
            self._say(f"{sentence}: no attempt begins, they prepare again")
        self._differ = (sentence, self._differ[1] if self._differ else time.monotonic())
        for member in members:
            if member.read != known:
                self._ready.discard(member.index)
                _send(member.writer, {"again": 1})
        return None

    def _prepare(self, identity: Identity) -> tuple[int, Resumption]:
        resume = self._passes.begin(identity, self._record.unloadable(), first=self._record.identity is None)
        return self._record.begin(resume, identity), resume

    def _lost_process(self, member: _Member, what: str, code: int, failed: bool) -> None:
        cause = f"{what} of {member.name}"
        if self.state is State.STOPPING:
            self._stopped.add(member.index)
            return
        if code in FAIL_JOB:
            self._later(self._finish(Outcome(code, f"{cause}, which another attempt cannot change"), cause, code))
            return
        if self.state in (State.STARTING, State.TRAINING) and code:
            self._crashed = (member.index, code)
        self._lose(cause, code, failed=failed)

    def _lose(self, cause: str, code: int, counts: bool = True, failed: bool = False) -> None:
        """Ends the attempt everywhere. `failed`: a process of it ended by itself."""
        if self.state not in (State.STARTING, State.TRAINING, State.STOPPING):
            return
        self._enter(State.ENDING)
        self._concluding = True
        self._broadcast({"end": self._attempt, "cause": cause})
        for session in self._sessions.values():
            _send(session.writer, {"ended": cause})
        self._later(self._after_loss(cause, code, counts, failed))

    async def _after_loss(self, cause: str, code: int, counts: bool, failed: bool) -> None:
        await self._close_attempt(cause, code, counts, failed)
        exhausted = self.exhausted()
        if exhausted is not None:
            await self._finish(exhausted)
        self._concluding = False
        self._advance()

    def exhausted(self) -> Outcome | None:
        """The failure that too many fruitless attempts are; None while another one is allowed."""
        fruitless = self._record.fruitless()
        if len(fruitless) < self._node.attempts:
            return None
        causes = "; ".join(f"attempt {attempt.number}: {attempt.cause}" for attempt in fruitless)
        return Outcome(ExitCode.ATTEMPTS_EXHAUSTED, f"{len(fruitless)} attempts ended without a new complete pass: {causes}")

    async def _close_attempt(self, cause: str, code: int, counts: bool, failed: bool = False) -> None:
        stepped = self._stepped

        def close() -> None:
            if self._record.unfinished():
                made = self._passes.made(self._record.last.number)
                self._record.end(cause=cause, code=code, newest_pass=made, counts=counts, failed=failed, stepped=stepped)

        try:
            await self._on_volume(close)
        except OSError as error:
            self._say(f"the attempt's end cannot be recorded: {error.strerror or error}")

    def close_unfinished(self) -> None:
        """For a new pod of trainer 0: the attempt that its predecessor left open ended with it. Blocking."""
        if self._record.unfinished():
            made = self._passes.made(self._record.last.number)
            self._record.end(cause="the pod of trainer 0 was lost", newest_pass=made)

    async def _conclude(self) -> None:
        """Every trainer ended with 0: that is the job's success only when the last pass is complete on the volume.

        Of this very data and program; and where it was there before, only when every trainer was.
        """
        attempt, last = self._attempt, self._node.passes - 1
        began = self._record.last
        newest = await self._on_volume(lambda: self._passes.newest(Identity(began.data, began.program), began.passed_over))
        if self._attempt != attempt or self.state not in (State.STARTING, State.TRAINING, State.STOPPING):
            return
        absent = set(range(self._node.trainers)) - self._joined if self._passes.trainers_join else set()
        if absent and self.state is not State.STOPPING:
            self._lose(f"trainers {_numbers(absent)} ended with 0 and had never joined the others: they have trained nothing", 0)
        elif newest is not None and newest >= last:
            await self._finish(Outcome(ExitCode.DONE, f"pass {last} is complete: the job is done"), "done", 0)
        elif self.state is State.STOPPING:
            self._lose(self._stop_cause or "the job was told to stop", 0, counts=False)
        else:
            found = "no pass is complete" if newest is None else f"pass {newest} is the newest complete one"
            self._lose(f"every trainer ended with 0, but pass {last} should be complete and {found}", 0)

    async def _finish(self, outcome: Outcome, cause: str | None = None, code: int = 0) -> None:
        if self.state is State.FINISHED:
            return
        self._enter(State.FINISHED)
        try:
            await asyncio.wait_for(self._write_down(outcome, cause, code), self._node.peer_deadline)
        except TimeoutError:
            # Unrecorded, it would not hold for a pod that comes later: nobody may leave with it.
            sentence = f"{self._node.folder.run_state} takes no outcome ({outcome.sentence})"
            outcome = Outcome(ExitCode.CANNOT_END, sentence)
        message: Message = {"finish": outcome.code, "sentence": outcome.sentence}
        if outcome.code == ExitCode.ATTEMPTS_EXHAUSTED:
            message["crashed"] = self._crashed
        self._farewell = message
        self._broadcast(message)

    async def _write_down(self, outcome: Outcome, cause: str | None, code: int) -> None:
        if cause is not None:
            await self._close_attempt(cause, code, True)
        if outcome.code != ExitCode.DONE and outcome.code not in FAIL_JOB:
            return  # What another try may change is no outcome: the pods that the Job starts anew get their chance.
        try:
            await self._on_volume(lambda: self._record.finish(outcome))
        except OSError as error:
            self._say(f"the outcome cannot be recorded: {error.strerror or error}")

    def _leave(self, member: _Member) -> None:
        """SIGTERM reached a pod: every trainer is asked to save, because one cannot save alone."""
        cause = f"the pod of trainer {member.index} ({member.name}) was told to stop"
        if self.state in (State.STARTING, State.TRAINING):
            self._say(f"attempt {self._attempt} stops: {cause}")
            self._enter(State.STOPPING)
            self._stop_cause = cause
            self._broadcast({"stop": self._attempt, "cause": cause})

    # The trainers' sessions.

    async def _serve_session(self, hello: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        index = hello.get("index")
        present = self.state in (State.STARTING, State.TRAINING, State.STOPPING) and hello.get("attempt") == self._attempt
        if hello.get("run") != self._node.run_id or not present or not isinstance(index, int):
            _send(writer, {"ended": f"attempt {hello.get('attempt')} of run {hello.get('run')} is over"})
            return
        session = self._sessions[index] = _Session(index, writer)
        self._joined.add(index)
        _send(writer, {"answer": "welcome"})
        while (message := await protocol.receive(reader)) is not None:
            if self._sessions.get(index) is not session:
                return
            if message.get("tell") == "meeting":
                # It waits for the others without this hub: no step, and nothing to answer.
                session.waits_in = f"meeting {message['name']}"
                continue
            session.moved = time.monotonic()
            if message.get("tell") == "met":
                session.waits_in = None
            elif message.get("tell") == "progress":
                session.at = (int(message["pass"]), int(message["step"]))
                self._stepped = self._stepped or session.at[1] > 0
            elif message.get("ask") == "servers":
                session.waits_in = "servers"
                if self.state is not State.STARTING:
                    self._answer(session, {"answer": "servers"})
            elif message.get("ask") == "gather":
                self._gather(session, f"barrier {message['name']}", message["value"])
            elif message.get("ask") == "leave":
                self._gather(session, "leave", None)

    def _gather(self, session: _Session, name: str, value: Any) -> None:
        arrived = self._gathers.setdefault(name, {})
        arrived[session.index] = value
        session.waits_in = name
        if len(arrived) == self._node.trainers:
            del self._gathers[name]
            if name == "leave":
                self._broadcast({"left": self._attempt})
            values = [arrived[index] for index in range(self._node.trainers)]
            for index in arrived:
                if index in self._sessions:
                    self._answer(self._sessions[index], {"answer": "gather", "values": values})
            return
        self._check_abandoned(name)
        if len(self._gathers) > 1:
            self._check_deadlock()

    def _check_abandoned(self, name: str) -> None:
        """Nobody may wait for a trainer that has ended."""
        gone = sorted(self._trained - self._gathers[name].keys())
        if gone and self.state is not State.STOPPING:
            self._lose(f"trainer {gone[0]} ended while others wait for it in {name}", 0)

    def _check_deadlock(self) -> None:
        waiting = {index for arrived in self._gathers.values() for index in arrived}
        if len(waiting) == self._node.trainers:
            where = "; ".join(f"trainers {_numbers(arrived)} in {name}" for name, arrived in self._gathers.items())
            self._lose(f"the trainers wait for each other: {where}", 0)

    def _answer(self, session: _Session, answer: Message) -> None:
        session.waits_in = None
        session.moved = time.monotonic()
        _send(session.writer, answer)

    # Time.

    async def _tick(self) -> None:
        last = time.monotonic()
        while True:
            await asyncio.sleep(protocol.BEAT)
            now = time.monotonic()
            late = now - last > 3 * protocol.BEAT
            last = now
            missing = {name: self._missing_in(name) for name in {session.waits_in for session in self._sessions.values()} if name}
            for member in list(self._members.values()):
                # After a pause of our own, what the others said is still unread: judge them at the next tick.
                if now - member.heard > protocol.SILENCE and not late:
                    self._drop(
                        member, f"the pod of trainer {member.index} ({member.name}) said nothing for {protocol.SILENCE:.0f} s"
                    )
                else:
                    _send(member.writer, {"beat": self.state.value, "trainer": self._trainer_status(member.index, now, missing)})
            for session in self._sessions.values():
                if session.waits_in is not None:
                    _send(session.writer, {"wait": session.waits_in})
            self._check_deadlines(now)

    def _trainer_status(self, index: int, now: float, missing: dict[str, list[int]]) -> Message | None:
        """What the health probe of that pod wants to know: where its trainer is, and for whom it waits."""
        session = self._sessions.get(index)
        if session is None or self.state not in (State.STARTING, State.TRAINING):
            return None
        return {
            "pass": session.at[0] if session.at else None,
            "step": session.at[1] if session.at else None,
            "seconds": round(now - session.moved, 1),
            "waits_in": session.waits_in,
            "waits_for": missing.get(session.waits_in or "", []),
            "silent_servers": [[index, round(now - since, 1)] for index, since in sorted(self._silent.items())[:SHOWN]],
        }

    def _missing_in(self, name: str) -> list[int]:
        """The first of those who are waited for there."""
        if name == "servers":
            arrived = self._serving
        else:
            arrived = {index for index, session in self._sessions.items() if session.waits_in == name}
        return [index for index in range(self._node.trainers) if index not in arrived][:SHOWN]

    def _check_deadlines(self, now: float) -> None:
        self._check_servers(now)
        waited = now - self._since
        if self._volume.locked() and self.state is not State.FINISHED:
            self._check_volume(now)
        elif self.state is State.GATHERING:
            missing = self._missing()
            if self._differ and now - self._differ[1] > self._node.peer_deadline:
                sentence = f"{self._differ[0]}, for {now - self._differ[1]:.0f} s: all pods of a run must read the same"
                self._later(self._finish(Outcome(ExitCode.BAD_DATA, sentence)))
            elif missing and waited > self._node.peer_deadline:
                sentence = f"{missing} after {waited:.0f} s (PADDLE_NODE_PEER_DEADLINE is {self._node.peer_deadline:g})"
                self._later(self._finish(Outcome(ExitCode.PEERS_MISSING, sentence)))
            elif missing and now - self._reminded > REMIND:
                self._reminded = now
                self._say(f"{missing} after {waited:.0f} s")
        elif self.state is State.STARTING:
            # Pservers may wait for what the trainers still count: a trainer that reports progress puts the deadline off.
            waited = now - max([self._since, *(session.moved for session in self._sessions.values())])
            if waited > self._node.peer_deadline:
                silent = self._members.keys() - self._serving
                self._lose(
                    f"the pservers of trainers {_numbers(silent)} did not listen, and no trainer moved for {waited:.0f} s", 0
                )
        elif self.state is State.TRAINING and self._sessions:
            still = now - max(session.moved for session in self._sessions.values())
            if still > REMIND and now - self._reminded > REMIND:
                self._reminded = now
                self._say(f"no trainer has moved for {still:.0f} s: {self._who_waits()}")
        elif self.state is State.STOPPING and waited > self._node.grace:
            slow = self._members.keys() - self._stopped
            self._lose(f"{self._stop_cause}; trainers {_numbers(slow)} did not leave within {waited:.0f} s", 0, counts=False)
        elif self.state is State.ENDING and waited > protocol.SILENCE + 2 * FAREWELL:
            for member in [member for member in self._members.values() if member.runs]:
                self._drop(member, f"the pod of trainer {member.index} ({member.name}) does not end its processes")

    def _check_servers(self, now: float) -> None:
        """Ends the attempt in which a pserver hangs: every trainer would wait for it."""
        index, since = min(self._silent.items(), key=lambda each: each[1], default=(0, now))
        allowed = min(SILENT_SERVER, self._node.stall)
        if now - since > allowed and self.state in (State.STARTING, State.TRAINING):
            name = self._members[index].name
            self._lose(f"pserver {index} of {name} answered nothing for {now - since:.0f} s ({allowed:g} are allowed)", 0)

    def _who_waits(self) -> str:
        """And for whom, as one half sentence."""
        names = sorted({session.waits_in for session in self._sessions.values() if session.waits_in is not None})
        parts = [
            f"in {name} trainers {_numbers(missing)} are waited for" for name in names if (missing := self._missing_in(name))
        ]
        if self._silent:
            parts.append(f"the pservers of trainers {_numbers(sorted(self._silent)[:SHOWN])} answer nothing")
        return "; ".join(parts) or "nobody waits for another one"

    def _check_volume(self, now: float) -> None:
        """A volume that hangs (NFS waits for ever) is said, and left in the end: nothing can be recorded on it."""
        waited = now - self._asked_volume
        if waited > self._node.peer_deadline:
            sentence = f"{self._node.folder.run_state} has not answered for {waited:.0f} s: nothing can be recorded there"
            self._later(self._finish(Outcome(ExitCode.CANNOT_END, sentence)))
        elif waited > REMIND and now - self._reminded > REMIND:
            self._reminded = now
            self._say(f"{self._node.folder.run_state} has not answered for {waited:.0f} s")

    def _missing(self) -> str:
        """Who is not here, or not ready, as one half sentence; empty when nobody is missing."""
        absent = [index for index in range(self._node.trainers) if index not in self._members]
        unready = sorted(self._members.keys() - self._ready)
        parts = []
        if absent:
            names = ", ".join(self._name_of(index) for index in absent[:SHOWN])
            more = f" and {len(absent) - SHOWN} more" if len(absent) > SHOWN else ""
            parts.append(f"{len(absent)} of {self._node.trainers} pods are missing: {names}{more}")
        if unready:
            parts.append(f"not ready yet: trainers {_numbers(unready[:SHOWN])}")
        return "; ".join(parts)

    async def _on_volume(self, question: Callable[[], T]) -> T:
        """What the volume answers, one question after the other."""
        async with self._volume:
            self._asked_volume = time.monotonic()
            return await background.call(question)

    # Small things.

    def _broadcast(self, message: Message) -> None:
        line = protocol.encode(message)
        for member in self._members.values():
            member.writer.write(line)

    def _later(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            self._on_fault(fault)


def _send(writer: asyncio.StreamWriter, message: Message) -> None:
    with contextlib.suppress(OSError, RuntimeError):
        writer.write(protocol.encode(message))


def _numbers(indexes: Any) -> str:
    return ", ".join(str(index) for index in sorted(indexes))

"""The rendezvous of a run: it counts the agents in, starts attempts, ends them, and ends the job.

Promises: pure: what happened and the server's clock come in, actions go out; no socket, no volume, no clock of its own. An
attempt starts only when all N agents of this run are here, have read the same data and program and have no process left of an
earlier attempt; the loss of any of them, or of any process that one reports, ends the attempt for all; every wait has a
deadline, and its message names who was missing; the outcome is on the volume before an agent hears of it. Of two agents of
one rank, the one that came later is the newer one.

    GATHERING -> STARTING (pservers come up) -> TRAINING -> FINISHED
    STARTING, TRAINING: a loss -> ENDING (everybody ends what runs) -> GATHERING
    STARTING, TRAINING: SIGTERM to any pod -> STOPPING (trainers may save) -> ENDING
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Literal

from paddle_node.agent import messages as m
from paddle_node.agent.trainers import SHOWN, Trainer, Trainers, numbers
from paddle_node.attempts import CLUSTER, POD, PROGRAM, STOPPED, Loss, Outcome
from paddle_node.contract import FAIL_JOB, ExitCode, Variable
from paddle_node.environment import NodeEnvironment
from paddle_node.passes import Identity
from paddle_node.runtimes import Resumption

REMIND = 30.0
"""Seconds between two lines that say who is missing, or why no trainer moves."""
SILENT_SERVER = 240.0
"""Seconds after which a pserver that answers nothing is lost (`PADDLE_NODE_STALL` where that is less). While one of 2.6.2 saved
and loaded a table of 1.5 million rows for two minutes, each question was answered within half a second."""
ENDING = 16.0
"""Seconds for an agent to end its processes, and for one that is cut off to notice it."""
FAULTS = 10
"""Faults of the cluster without progress in between, until the job fails."""


class State(Enum):
    """Where the job is."""

    GATHERING = "waiting for peers"
    STARTING = "waiting for pservers"
    TRAINING = "training"
    STOPPING = "saving before it stops"
    ENDING = "ending the attempt"
    FINISHED = "finished"


RUNNING = (State.STARTING, State.TRAINING, State.STOPPING)


# What the server is to do.


@dataclass(frozen=True)
class Say:
    """A line of the pod's log."""

    text: str


@dataclass(frozen=True)
class Send:
    """To an agent or a trainer."""

    connection: object
    message: m.Message


@dataclass(frozen=True)
class Close:
    """The connection, behind what was sent."""

    connection: object


@dataclass(frozen=True)
class Ask:
    """Has the volume do something that it takes a while to answer: the `Volume`'s method of that name, with `about`."""

    what: Literal["begin", "record_end", "conclude", "record_outcome"]
    about: tuple[Any, ...]


Action = Say | Send | Close | Ask


@dataclass(eq=False)
class Member:
    """One agent that is here."""

    hello: m.Hello
    connection: object
    heard: float
    read: Identity | None = None
    """The data and the program that it has read."""

    def __str__(self) -> str:
        return f"{self.hello.name}{f' on {self.hello.node}' if self.hello.node else ''}"

    @property
    def pod(self) -> str:
        return f"the pod of trainer {self.hello.rank} ({self})"


@dataclass
class Rendezvous:
    """Every method returns what is to be done now, in this order."""

    node: NodeEnvironment
    """Its settings: how many pods there are, and how long each wait may be."""
    membership: str
    name_of: Callable[[int], str]
    trainers_join: bool
    """Every trainer says by a session that it is there."""
    identity: Identity | None
    """The data and the program of the run; None before its first attempt."""
    now: float
    state: State = State.GATHERING
    members: dict[int, Member] = field(default_factory=dict)
    attempt: int = 0
    trainers: Trainers = field(default_factory=lambda: Trainers(0))
    _ready: set[int] = field(default_factory=set)
    """Ranks that have their data, and no process of an earlier attempt."""
    _runs: set[int] = field(default_factory=set)
    """Ranks that were in the attempt, and have not yet said that no process of it is left."""
    _serving: set[int] = field(default_factory=set)
    _trained: set[int] = field(default_factory=set)
    _stopped: set[int] = field(default_factory=set)
    _silent: dict[int, float] = field(default_factory=dict)
    """Ranks whose pserver answers nothing, and since when."""
    _replaced: set[tuple[int, str]] = field(default_factory=set)
    """(rank, boot) of agents in whose place another one came."""
    _since: float = 0.0
    _reminded: float = 0.0
    _moved: float = 0.0
    """When anything of the attempt last moved: a step, output, progress."""
    _asked: bool = False
    """The volume has not answered the question that this state asks."""
    _stop_cause: str = ""
    _loss: Loss | None = None
    """Why the attempt ends."""
    _crashed: list[int] | None = None
    _faults: int = 0
    _differ: tuple[str, float] | None = None
    """Who read what, where it was not the same, and since when."""
    _farewell: m.Finish | None = None
    _todo: list[Action] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._since = self._reminded = self.now
        self.trainers = Trainers(self.node.trainers)

    @property
    def told(self) -> bool:
        """Everybody heard how the job ended."""
        return self._farewell is not None

    # Connections. All of them have proved that they belong to this run.

    def hello(self, hello: m.Hello, connection: object, now: float) -> list[Action]:
        """An agent has come: in, sent away, or asked to come again."""
        if hello.membership != self.membership:
            return [Send(connection, m.Refused(0, "this pod sees other pods than the pod of trainer 0")), Close(connection)]
        if (refusal := self._refusal(hello)) is not None:
            said = Say(f"an agent at {hello.address} was refused: {refusal.sentence}")
            return [said, Send(connection, refusal), Close(connection)]
        earlier = self.members.get(hello.rank)
        if earlier is not None:
            again = earlier.hello.boot == hello.boot
            if not again:
                self._replaced.add((hello.rank, earlier.hello.boot))
            self._drop(earlier, f"{earlier.pod} {'reconnected' if again else 'restarted'}", now)
        self.members[hello.rank] = Member(hello, connection, now)
        self._todo.append(Send(connection, m.Welcome()))
        if self._farewell is not None:
            self._todo.append(Send(connection, self._farewell))
        return self._advance(now)

    def _refusal(self, hello: m.Hello) -> m.Refused | None:
        count = self.node.trainers
        if hello.world_size != count:
            sentence = (
                f"{Variable.TRAINERS} is {hello.world_size} here and {count} in the pod of trainer 0: all pods need the same"
            )
        elif not 0 <= hello.rank < count:
            sentence = f"the trainer id is {hello.rank}: 0 to {count - 1} are this job's"
        elif (hello.rank, hello.boot) in self._replaced:
            return m.Refused(ExitCode.REPLACED, f"a newer pod of trainer {hello.rank} has taken this one's place")
        else:
            return None
        return m.Refused(ExitCode.BAD_SETTING, sentence)

    def join(self, join: m.Join, connection: object, now: float) -> list[Action]:
        """A trainer has come."""
        if join.attempt != self.attempt or self.state not in RUNNING or not 0 <= join.rank < self.node.trainers:
            return [Send(connection, m.Over(f"attempt {join.attempt} is over")), Close(connection)]
        self.trainers.sessions[join.rank] = Trainer(connection, now)
        return [Send(connection, m.Welcome())]

    def closed(self, rank: int, connection: object, now: float) -> list[Action]:
        """An agent's connection is gone."""
        member = self.members.get(rank)
        if member is not None and member.connection is connection:
            self._drop(member, f"{member.pod} was lost", now)
        return self._advance(now)

    def _drop(self, member: Member, cause: str, now: float) -> None:
        """An agent is gone; what it ran is gone with it, or it ends it itself within `SILENCE` seconds."""
        rank = member.hello.rank
        ran = rank in self._runs
        del self.members[rank]
        for marks in (self._ready, self._runs, self._serving, self._trained, self._stopped):
            marks.discard(rank)
        self._silent.pop(rank, None)
        self._todo.append(Close(member.connection))
        if self.state is State.STOPPING:
            # Trainers cannot save together any more.
            self._lose(Loss(f"{self._stop_cause}; then {cause}", STOPPED), now)
        elif self.state in RUNNING:
            self._lose(Loss(cause, POD), now)
        elif self.state is State.ENDING and ran and self._loss is not None and self._loss.kind == PROGRAM:
            # The others' programs fail at once when a pod is gone; that it is gone shows seconds later.
            self._loss = replace(self._loss, cause=f"{self._loss.cause}; {cause}", kind=POD, failed=False)
        elif self.state is State.GATHERING:
            self._todo.append(Say(f"{cause}; waiting for it"))

    # What agents and trainers say.

    def agent_said(self, rank: int, connection: object, message: m.Message, now: float) -> list[Action]:
        """One of `FROM_AGENT`."""
        member = self.members.get(rank)
        if member is None or member.connection is not connection:
            return []
        member.heard = now
        current = getattr(message, "attempt", None) == self.attempt
        running = current and self.state in RUNNING
        match message:
            case m.Beat(quiet):
                if quiet is not None and self.state in RUNNING:
                    self._moved = max(self._moved, now - quiet)
                return self._flush()
            case m.Fatal(code, sentence):
                self._finish(Outcome(code, f"trainer {rank}: {sentence}"))
            case m.Ready(attempt, data, program) if self.state not in RUNNING and (current or rank not in self._runs):
                if attempt in (0, self.attempt):
                    member.read = Identity(data, program)
                    self._runs.discard(rank)
                    self._ready.add(rank)
            case m.Leaving() if self.state in (State.STARTING, State.TRAINING):
                self._stop_cause = f"{member.pod} was told to stop"
                self._todo.append(Say(f"attempt {self.attempt} stops: {self._stop_cause}"))
                self._enter(State.STOPPING, now)
                self._broadcast(m.Stop(self.attempt, self._stop_cause))
            case m.Reached(_, what) if running:
                reached = {"serving": (self._serving,), "trained": (self._trained, self._stopped), "stopped": (self._stopped,)}
                for marks in reached[what]:
                    marks.add(rank)
            case m.Silent(_, True) if running:
                self._silent[rank] = now
            case m.Silent() if running:
                self._silent.pop(rank, None)
            case m.Lost() if current:
                self._process_lost(member, message, now)
        return self._advance(now)

    def _process_lost(self, member: Member, lost: m.Lost, now: float) -> None:
        cause = f"{lost.what}{f': {lost.error}' if lost.error else ''}, in {member}"
        loss = Loss(cause, PROGRAM, lost.code, lost.failed, lost.error)
        if self.state is State.STOPPING:
            self._stopped.add(member.hello.rank)
        elif self.state is State.ENDING and self._loss is not None and self._loss.failed and not lost.failed:
            # Where one was killed, that the others failed says nothing of the program.
            self._loss = replace(self._loss, cause=f"{self._loss.cause}; {cause}", failed=False)
        elif self.state in RUNNING and lost.code in FAIL_JOB:
            self._finish(Outcome(lost.code, f"{cause}, which another attempt cannot change"), loss)
        elif self.state in RUNNING:
            self._crashed = [member.hello.rank, lost.code] if lost.code else None
            self._lose(loss, now)

    def trainer_said(self, rank: int, connection: object, message: m.Message, now: float) -> list[Action]:
        """One of `FROM_TRAINER`."""
        session = self.trainers.sessions.get(rank)
        if session is None or session.connection is not connection or self.state not in RUNNING:
            return []
        left = self.trainers.left
        self._answer(self.trainers.hear(rank, message, self.state is not State.STARTING, now))
        if self.trainers.left and not left:
            self._broadcast(m.AllReached(self.attempt, "left"))
        return self._advance(now)

    # What the volume answers.

    def begun(self, number: int, resumption: Resumption, now: float) -> list[Action]:
        """An attempt has a number, and something to resume from."""
        if self.state is not State.FINISHED:
            self._asked = False
            self._start(number, resumption, now)
        return self._advance(now)

    def not_begun(self, sentence: str, now: float) -> list[Action]:
        """The volume refused, for longer than faults that pass take. Asked again at the next tick: nobody has lost anything."""
        self._faults += 1
        self._todo.append(Say(f"{sentence} (fault {self._faults} of {FAULTS} of the volume)"))
        if self._faults >= FAULTS:
            self._finish(Outcome(ExitCode.ATTEMPTS_EXHAUSTED, f"{sentence}, {FAULTS} times"))
        return self._flush()

    def end_recorded(self, exhausted: Outcome | None, now: float) -> list[Action]:
        """`exhausted`: no other attempt is allowed."""
        self._loss = None
        if exhausted is not None:
            self._finish(exhausted)
        elif self.state is State.ENDING:
            self._asked = False
            self._enter(State.GATHERING, now)
        return self._advance(now)

    def concluded(self, attempt: int, missing: str | None, made: str, now: float) -> list[Action]:
        """`missing`: what is missing for the job to be done; None: nothing. `made`: what the attempt completed."""
        if attempt == self.attempt and self.state in RUNNING:
            self._asked = False
            self._conclude(missing, made, now)
        return self._advance(now)

    def outcome_recorded(self, outcome: Outcome) -> list[Action]:
        """All may hear how the job ended."""
        if not self.told:
            crashed = self._crashed if outcome.code == ExitCode.ATTEMPTS_EXHAUSTED else None
            self._farewell = m.Finish(outcome.code, outcome.sentence, crashed)
            self._broadcast(self._farewell)
        return self._flush()

    def _start(self, number: int, resumption: Resumption, now: float) -> None:
        members = [self.members[rank] for rank in sorted(self.members)]
        self.attempt = number
        self.trainers = Trainers(self.node.trainers)
        if len(self._ready) < self.node.trainers:
            # Somebody was lost while the volume answered: the number is spent, the attempt never ran.
            self._enter(State.ENDING, now)
            self._loss = Loss("a pod was lost before the attempt began", POD)
            return
        self.identity = members[0].read
        self._crashed, self._differ, self._stop_cause, self._faults = None, None, "", 0
        self._moved = now
        for marks in (self._ready, self._serving, self._trained, self._stopped):
            marks.clear()
        self._silent.clear()
        self._runs |= self.members.keys()
        self._enter(State.STARTING, now)
        self._todo.append(Say(f"attempt {number}: all {len(members)} pods are here, training starts {resumption.said}"))
        addresses = m.pack([member.hello.address for member in members])
        self._broadcast(m.Start(number, dict(resumption.resume), addresses))

    def _conclude(self, missing: str | None, made: str, now: float) -> None:
        absent = set(range(self.node.trainers)) - self.trainers.sessions.keys() if self.trainers_join else set()
        if self.state is State.STOPPING and missing is not None:
            self._lose(Loss(self._stop_cause, STOPPED), now)
        elif absent and self.state is not State.STOPPING:
            sentence = f"trainers {numbers(absent)} ended with 0 and had never joined the others: they have trained nothing"
            self._lose(Loss(sentence, PROGRAM), now)
        elif missing is None:
            done = f"{made} is complete" if made else "nothing was left to do"
            done = done if self.trainers_join else "every process ended with 0"
            self._finish(Outcome(ExitCode.DONE, f"{done}: the job is done"), Loss("done", STOPPED))
        else:
            self._lose(Loss(f"every trainer ended with 0, but {missing}", PROGRAM), now)

    # The job's way.

    def _advance(self, now: float) -> list[Action]:
        """Takes every step that what is known allows."""
        count = self.node.trainers
        if self.state in (State.STARTING, State.TRAINING) and (vain := self.trainers.in_vain(self._trained)):
            self._lose(Loss(vain, PROGRAM), now)
        if self.state is State.STARTING and len(self._serving) == count:
            self._enter(State.TRAINING, now)
            self._broadcast(m.AllReached(self.attempt, "serving"))
            self._answer(self.trainers.serve(now))
        if self.state in RUNNING and len(self._trained) == count and not self._asked:
            self._ask("conclude", self.attempt, self.state is State.STOPPING)
        elif self.state is State.STOPPING and len(self._stopped) == count and not self._asked:
            self._lose(Loss(self._stop_cause, STOPPED), now)
        if self.state is State.ENDING and not self._asked and not self._runs:
            self._record_end()
        gathered = self.state is State.GATHERING and not self._asked and len(self._ready) == count
        if gathered and (identity := self._same_reading(now)) is not None:
            self._ask("begin", identity)
        return self._flush()

    def _same_reading(self, now: float) -> Identity | None:
        """The data and the program of the run; None where not all have read them, who are asked to prepare again."""
        members = [self.members[rank] for rank in sorted(self.members)]
        read = {member.read for member in members if member.read is not None}
        if read == {self.identity} or (self.identity is None and len(read) == 1):
            return read.pop()
        readers = {one: numbers([each.hello.rank for each in members if each.read == one]) for one in sorted(read, key=str)}
        parts = [f"trainers {who} read {one}" for one, who in readers.items()]
        sentence = "; ".join([*parts, *([f"the run began with {self.identity}"] if self.identity else [])])
        if self._differ is None or self._differ[0] != sentence:
            self._todo.append(Say(f"{sentence}: no attempt begins, they prepare again"))
        self._differ = (sentence, self._differ[1] if self._differ else now)
        for member in members:
            if member.read != self.identity:
                self._ready.discard(member.hello.rank)
                self._todo.append(Send(member.connection, m.PrepareAgain()))
        return None

    def _lose(self, loss: Loss, now: float) -> None:
        """Ends the attempt everywhere. How it ended is recorded when it has: who was lost, too, may show late."""
        if self.state not in RUNNING:
            return
        self._enter(State.ENDING, now)
        self._loss, self._asked = loss, False
        self._broadcast(m.End(self.attempt, loss.cause))
        for session in self.trainers.sessions.values():
            self._todo.append(Send(session.connection, m.Over(loss.cause)))

    def _record_end(self) -> None:
        assert self._loss is not None
        self._ask("record_end", replace(self._loss, stepped=self.trainers.stepped))

    def closing(self) -> list[Action]:
        """The server leaves, and another one may follow: it must know how the attempt ended."""
        if self.state is State.ENDING and not self._asked:
            self._record_end()
        return self._flush()

    def finish(self, outcome: Outcome) -> list[Action]:
        """Ends the job for everybody."""
        self._finish(outcome)
        return self._flush()

    def _finish(self, outcome: Outcome, loss: Loss | None = None) -> None:
        if self.state is not State.FINISHED:
            loss = self._loss if self._loss is not None and not self._asked else loss
            self.state = State.FINISHED
            self._ask("record_outcome", outcome, loss and replace(loss, stepped=self.trainers.stepped))

    # Time.

    def tick(self, now: float, late: bool, volume_since: float | None, progress: bool) -> list[Action]:
        """Once a `BEAT`. `late`: after a pause of our own, what the others said is still unread: nobody is judged.

        `volume_since`: since when the volume owes an answer; `progress`: the runtime saw some since the last tick.
        """
        if progress:
            self._moved = now
        waiting = self.trainers.waiting(self._serving)
        silent = [[rank, round(now - since, 1)] for rank, since in sorted(self._silent.items())[:SHOWN]]
        for rank, member in list(self.members.items()):
            if now - member.heard > m.SILENCE and not late:
                self._drop(member, f"{member.pod} said nothing for {m.SILENCE:.0f} s", now)
            else:
                self._todo.append(Send(member.connection, m.Status(self.state.value, self._status(rank, waiting, silent, now))))
        for session in self.trainers.sessions.values():
            if session.waits_in is not None and self.state in RUNNING:
                self._todo.append(Send(session.connection, m.Wait()))
        if self.state is State.GATHERING and volume_since is None:
            self._asked = False  # A begin that the volume refused is asked again.
        self._check_deadlines(now, volume_since, waiting)
        return self._advance(now)

    def _status(self, rank: int, waiting: dict[str, list[int]], silent: list[Any], now: float) -> dict[str, Any] | None:
        """Where that pod's trainer is, and for whom it waits."""
        session = self.trainers.sessions.get(rank)
        if session is None or self.state not in (State.STARTING, State.TRAINING):
            return None
        return {
            "pass": session.at[0] if session.at else None,
            "step": session.at[1] if session.at else None,
            "seconds": round(now - session.moved, 1),
            "waits_in": session.waits_in,
            "waits_for": waiting.get(session.waits_in or "", []),
            "silent_servers": silent,
        }

    def _check_deadlines(self, now: float, volume_since: float | None, waiting: dict[str, list[int]]) -> None:
        node, waited = self.node, now - self._since
        if volume_since is not None and self.state is not State.FINISHED:
            sentence = f"{node.folder.run_state} has not answered for {now - volume_since:.0f} s"
            if now - volume_since > node.peer_deadline:
                self._finish(Outcome(ExitCode.CANNOT_END, f"{sentence}: nothing can be recorded there"))
            elif now - volume_since > REMIND:
                self._remind(sentence, now)
        elif self.state is State.GATHERING and self._differ and now - self._differ[1] > node.peer_deadline:
            sentence = f"{self._differ[0]}, for {now - self._differ[1]:.0f} s: all pods of a run must read the same"
            self._finish(Outcome(ExitCode.BAD_DATA, sentence))
        elif self.state is State.GATHERING and (missing := self._missing()):
            # Who is here and waits for its data has a deadline of its own, as long, and says more.
            if waited > node.peer_deadline + (REMIND if len(self.members) == node.trainers else 0):
                sentence = f"{missing} after {waited:.0f} s ({Variable.PEER_DEADLINE} is {node.peer_deadline:g})"
                self._finish(Outcome(ExitCode.PEERS_MISSING, sentence))
            else:
                self._remind(f"{missing} after {waited:.0f} s", now)
        elif self.state in (State.STARTING, State.TRAINING):
            self._check_attempt(now, waiting)
        elif self.state is State.STOPPING and waited > node.grace:
            slow = numbers(self.members.keys() - self._stopped)
            sentence = f"{self._stop_cause}; trainers {slow} did not leave within {waited:.0f} s"
            self._lose(Loss(sentence, STOPPED), now)
        elif self.state is State.ENDING and waited > ENDING:
            for member in [self.members[rank] for rank in sorted(self._runs)]:
                self._drop(member, f"{member.pod} does not end its processes", now)

    def _check_attempt(self, now: float, waiting: dict[str, list[int]]) -> None:
        node, sessions = self.node, self.trainers.sessions.values()
        stepped = max([self._since, *(each.moved for each in sessions)])
        rank, since = min(self._silent.items(), key=lambda each: each[1], default=(0, now))
        allowed = min(SILENT_SERVER, node.stall)
        if now - since > allowed:
            sentence = f"answered nothing for {now - since:.0f} s ({allowed:g} are allowed)"
            self._lose(Loss(f"pserver {rank} of {self.members[rank]} {sentence}", CLUSTER), now)
        elif self.state is State.STARTING and now - stepped > node.peer_deadline:
            # Pservers may wait for what the trainers still count: a trainer that reports progress puts the deadline off.
            slow = numbers(self.members.keys() - self._serving)
            sentence = f"the pservers of trainers {slow} did not listen, and no trainer moved for {now - stepped:.0f} s"
            self._lose(Loss(sentence, PROGRAM), now)
        elif (quiet := now - max(stepped, self._moved)) > node.stall and not self._silent:
            ended = f"; trainers {numbers(self._trained)} ended with 0 before" if self._trained else ""
            sentence = f"no step, no output and no progress for {quiet:.0f} s ({Variable.STALL} is {node.stall:g}){ended}"
            self._lose(Loss(sentence, PROGRAM), now)
        elif self.state is State.TRAINING and sessions and now - stepped > REMIND:
            parts = [f"in {place} trainers {numbers(who)} are waited for" for place, who in waiting.items() if who]
            if self._silent:
                parts.append(f"the pservers of trainers {numbers(sorted(self._silent)[:SHOWN])} answer nothing")
            why = "; ".join(parts) or "nobody waits for another one"
            self._remind(f"no trainer has moved for {now - stepped:.0f} s: {why}", now)

    def _missing(self) -> str:
        """Who is not here, or not ready, as one half sentence; empty when nobody is missing."""
        absent = [rank for rank in range(self.node.trainers) if rank not in self.members]
        unready = sorted(self.members.keys() - self._ready)
        parts = []
        if absent:
            names = ", ".join(self.name_of(rank) for rank in absent[:SHOWN])
            more = f" and {len(absent) - SHOWN} more" if len(absent) > SHOWN else ""
            parts.append(f"{len(absent)} of {self.node.trainers} pods are missing: {names}{more}")
        if unready:
            parts.append(f"not ready yet: trainers {numbers(unready[:SHOWN])}")
        return "; ".join(parts)

    # Small things.

    def _enter(self, state: State, now: float) -> None:
        self.state = state
        self._since = self._reminded = now

    def _remind(self, sentence: str, now: float) -> None:
        if now - self._reminded > REMIND:
            self._reminded = now
            self._todo.append(Say(sentence))

    def _ask(self, what: Literal["begin", "record_end", "conclude", "record_outcome"], *about: Any) -> None:
        self._asked = True
        self._todo.append(Ask(what, about))

    def _answer(self, answers: list[tuple[object, m.Message]]) -> None:
        self._todo += [Send(connection, message) for connection, message in answers]

    def _broadcast(self, message: m.Message) -> None:
        self._todo += [Send(member.connection, message) for member in self.members.values()]

    def _flush(self) -> list[Action]:
        todo, self._todo = self._todo, []
        return todo

"""The rendezvous of a run: admits the agents, starts and ends attempts, and ends the job.

It knows no socket, clock or volume: events come in, and its server carries out what follows. An
attempt starts only when all N agents are here, have read the same data and program, and have no
process left of an earlier attempt. The loss of an agent, or of a process that an agent reports,
ends the attempt for all. An outcome that lasts is on the volume before an agent hears of it.

    GATHERING -> STARTING (pservers come up) -> TRAINING -> FINISHED
    STARTING, TRAINING: a loss -> ENDING (all agents end their processes) -> GATHERING
    STARTING, TRAINING: SIGTERM to any pod -> STOPPING (trainers may save) -> ENDING; before the
    first step, ENDING at once
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from paddle_node.contract import FAIL_JOB, ExitCode
from paddle_node.environment import NodeEnvironment
from paddle_node.rendezvous import deadlines
from paddle_node.rendezvous import messages as m
from paddle_node.rendezvous.goodput import Stopwatch
from paddle_node.rendezvous.loss import Loss
from paddle_node.rendezvous.members import Member, Members
from paddle_node.rendezvous.trainers import LOOK, SHOWN, Trainer, Trainers, numbers
from paddle_node.retry import REMIND
from paddle_node.runtimes import Resumption
from paddle_node.volume.attempts import CLUSTER, POD, PROGRAM, STOPPED, Outcome
from paddle_node.volume.goodput import Goodput
from paddle_node.volume.passes import Identity

if TYPE_CHECKING:
    from paddle_node.rendezvous.server import Server

Question = Literal["begin", "record_end", "conclude", "record_outcome"]
ENDING = 16.0
"""Seconds for an agent to end its processes, and for an agent that is cut off to notice that."""
PAUSE = 3 * m.BEAT
"""Seconds without a sign of life after which a pod may be frozen, and its peers' programs may fail
for that.
"""
WAITED = 0.8
"""Share of a program's own silence for which another must have been silent to be named."""
TELL = 30.0
"""Seconds between two log lines that say where the time goes."""


class State(Enum):
    """The state of the job."""

    GATHERING = "waiting for peers"
    STARTING = "waiting for pservers"
    TRAINING = "training"
    STOPPING = "saving before it stops"
    ENDING = "ending the attempt"
    FINISHED = "finished"


RUNNING = (State.STARTING, State.TRAINING, State.STOPPING)


class End(NamedTuple):
    """A process that ended unexpectedly."""

    at: float
    rank: int
    cause: str
    lost: m.Lost


class Rendezvous:
    """`trainers_join`: every trainer opens a session to show that it runs. `identity`: None before
    the run's first attempt.

    `seconds`: where the time of the job's earlier attempts went, over all its runs.
    """

    def __init__(
        self,
        node: NodeEnvironment,
        members: Members,
        trainers_join: bool,
        identity: Identity | None,
        seconds: Mapping[str, float],
        server: Server,
        now: float,
    ) -> None:
        self.node = node
        self.members = members
        self.trainers = Trainers(node.trainers, server.send)
        self.state = State.GATHERING
        self.attempt = 0
        self.since = now
        self._stopwatch = Stopwatch(trainers_join, Counter(seconds), now)
        self._looked = self._told = now
        self._slow: dict[int, float] = {}
        """The slow trainers, and how many times the median each takes."""
        self.moved = 0.0
        """When the attempt last showed output or progress, apart from the steps that its trainers
        report.
        """
        self.differ: tuple[str, float] | None = None
        """Which trainers read what, if they differ, and since when."""
        self.stop_cause = ""
        self._strays = False
        """A pod of the attempt was lost before it said that no process of it is left."""
        self._trainers_join = trainers_join
        self._identity = identity
        self._server = server
        self._reminded = now
        self._asked = False
        """The volume has not yet answered the question that this state asks."""
        self._loss: Loss | None = None
        self._ends: list[End] = []
        """The processes that ended the attempt, or ended on their own before they were killed."""
        self._pause = (now, 0.0, "")
        """Since when and until when a pod last said nothing and then came back, and which."""
        self._ticked = now
        self._crashed: list[int] | None = None
        self._final: m.Finish | None = None
        """What every agent hears once the outcome is recorded."""

    # Connections. All of them have proved that they belong to this run.

    def hello(self, hello: m.Hello, connection: object, now: float) -> None:
        """Admits an agent, refuses it, or asks it to come again."""
        if (refusal := self.members.refusal(hello)) is not None:
            if refusal.code:
                self._server.say(f"an agent at {hello.address} was refused: {refusal.sentence}")
            self._server.send(refusal, connection)
            self._server.close_connection(connection)
            return
        if (cause := self.members.succeed(hello)) is not None:
            self._drop(self.members[hello.rank], cause, now)
        self.members[hello.rank] = Member(hello, connection, now)
        self._server.send(m.Welcome(), connection)
        if self._final is not None:
            self._server.send(self._final, connection)
        self._advance(now)

    def join(self, join: m.Join, connection: object, now: float) -> None:
        if (
            join.attempt != self.attempt
            or self.state not in RUNNING
            or not 0 <= join.rank < self.node.trainers
        ):
            self._server.send(m.End(join.attempt, f"attempt {join.attempt} is over"), connection)
            self._server.close_connection(connection)
        else:
            self.trainers.sessions[join.rank] = Trainer(connection, now)
            self._server.send(m.Welcome(), connection)

    def closed(self, rank: int, connection: object, now: float) -> None:
        member = self.members.get(rank)
        if member is not None and member.connection is connection:
            self._drop(member, f"{member.pod} was lost", now)
        self._advance(now)

    def _drop(self, member: Member, cause: str, now: float) -> None:
        """Removes a lost agent. Its processes are gone with it, or it ends them itself within
        `SILENCE` seconds.
        """
        ran = member.hello.rank in self.members.runs
        self._strays = self._strays or ran
        self.members.forget(member.hello.rank)
        self._server.close_connection(member.connection)
        if self.state is State.STOPPING:
            # The trainers can no longer save together.
            self._lose(Loss(f"{self.stop_cause}; then {cause}", STOPPED), now)
        elif self.state in RUNNING:
            self._lose(Loss(cause, POD), now)
        elif (
            self.state is State.ENDING
            and ran
            and self._loss is not None
            and self._loss.kind in (PROGRAM, CLUSTER)
        ):
            # When a pod is lost, the other pods' programs fail at once; the loss itself shows
            # seconds later.
            loss = self._settled(self._loss)
            self._loss = replace(loss, cause=f"{loss.cause}; {cause}", kind=POD, failed=False)
        elif self.state is State.GATHERING:
            self._server.say(f"{cause}; waiting for it")

    # What agents and trainers say.

    def agent_message(self, rank: int, connection: object, message: m.Message, now: float) -> None:
        member = self.members.get(rank)
        if member is None or member.connection is not connection:
            return
        if now - member.last_heard > PAUSE:
            # After a pause of this process, all others seem to have been silent.
            paused = self.members.get(0, member) if now - self._ticked > PAUSE else member
            self._pause = (member.last_heard, now, paused.pod)
        member.last_heard = now
        match message:
            case m.Beat(quiet, silent):
                if silent is not None:
                    member.silent_since = now - silent
                if quiet is not None and self.state in RUNNING:
                    self.moved = max(self.moved, now - quiet)
                return  # The most frequent message: nothing follows from it.
            case m.Fatal(code, sentence):
                self.finish(Outcome(code, f"trainer {rank}: {sentence}"), now)
            case m.Report():
                if message.leaving and self.state in (State.STARTING, State.TRAINING):
                    self._stop(f"{member.pod} was told to stop", now)
                self.members.hear(
                    rank, message, message.attempt == self.attempt, self.state in RUNNING, now
                )
            case m.Lost(attempt) if attempt == self.attempt:
                self._process_lost(member, message, now)
        self._advance(now)

    def _stop(self, cause: str, now: float) -> None:
        """Lets the trainers save what they have trained, together; if that is nothing yet, ends the
        attempt at once. Some may not listen to SIGTERM yet, and others would wait for those.
        """
        self.stop_cause = cause
        self._server.say(f"attempt {self.attempt} stops: {cause}")
        if self._trainers_join and not self.trainers.stepped:
            self._lose(Loss(cause, STOPPED), now)
        else:
            self._enter(State.STOPPING, now)
            self._broadcast(m.Stop(self.attempt, cause))

    def _process_lost(self, member: Member, lost: m.Lost, now: float) -> None:
        at, rank = now - lost.ago, member.hello.rank
        if self.state is State.STOPPING:
            self.members.stopped.add(rank)
        elif self.state in RUNNING:
            self._ends.append(End(at, rank, self._cause(at, member, lost), lost))
            self._lose(self._settled(Loss("", PROGRAM)), now)
        elif self._ends:  # Else it was no process that ended the attempt.
            self._ends.append(End(at, rank, self._cause(at, member, lost), lost))

    def _cause(self, at: float, member: Member, lost: m.Lost) -> str:
        """Puts the end of a process into words: also who was silent before, if it had waited."""
        error = f": {lost.error}" if lost.error and lost.exited else ""
        cause = f"{lost.what}{error}, in {member}"
        if lost.error and not lost.exited:
            cause += f"; its last exception: {lost.error}"
        # What was killed from outside would have spoken again.
        if lost.silent and lost.failed:
            # Trainers that report where they are say more than their output.
            first = self.members.silent_first(at, lost.silent * WAITED, but=member.hello.rank)
            who = list(self.trainers.waited_for(self.members.serving)) or [first]
            cause += f", after {lost.silent:.0f} s without output"
            cause = "; ".join(filter(None, (cause, *who)))
        return cause

    def _settled(self, loss: Loss) -> Loss:
        """Returns the loss with what is known by now of the processes that ended first, if it was
        processes that ended the attempt.
        """
        if loss.kind != PROGRAM or not self._ends:
            return loss
        first, *others = sorted(self._ends, key=lambda end: end.at)
        lost, causes = first.lost, [first.cause]
        # If one process was killed, the failure of the others says nothing about the program.
        killed = [end.cause for end in others if not end.lost.failed]
        if lost.failed:
            causes += killed[:1]
        began, ended, who = self._pause
        if began <= first.at <= ended + m.SILENCE:
            causes.append(f"{who} had said nothing for {ended - began:.0f} s")
        # A pserver's code says nothing, and it makes no steps.
        stepped = self.trainers.stepped
        self._crashed = [first.rank, lost.code] if lost.code else None
        return replace(
            loss,
            cause="; ".join(causes),
            code=lost.code,
            failed=lost.failed and not killed,
            exited=lost.exited,
            error=lost.error,
            uncaught=lost.uncaught,
            stepped=first.rank in stepped if lost.code else bool(stepped),
        )

    def _end(self, now: float) -> None:
        """Ends the attempt, of which no agent has a process left: no pod can be found lost any
        more.
        """
        assert self._loss is not None
        loss = self._loss = self._settled(self._loss)
        if loss.kind == PROGRAM and loss.code in FAIL_JOB and not self._asked:
            began, ended, _ = self._pause
            if not began <= min(end.at for end in self._ends) <= ended + m.SILENCE:
                sentence = f"{loss.cause}, which another attempt cannot change"
                self.finish(Outcome(loss.code, sentence), now)
                return
        self.record_end()

    def trainer_message(
        self, rank: int, connection: object, message: m.Message, now: float
    ) -> None:
        session = self.trainers.sessions.get(rank)
        if session is None or session.connection is not connection or self.state not in RUNNING:
            return
        left = self.trainers.left
        self.trainers.hear(rank, message, self.state is not State.STARTING, now)
        if self.trainers.left and not left:
            self._broadcast(m.AllReached(self.attempt, "left"))
        self._advance(now)

    # What the volume answers.

    def begun(self, number: int, resumption: Resumption, now: float) -> None:
        """Starts the attempt: the volume has answered its number and what it resumes from."""
        if self.state is State.FINISHED:
            return
        self._asked = False
        self.attempt = number
        self.trainers = Trainers(self.node.trainers, self._server.send)
        if not self.members.all(self.members.ready):
            # An agent was lost while the volume answered: the number is spent, the attempt never
            # ran.
            self._enter(State.ENDING, now)
            self._loss = Loss("a pod was lost before the attempt began", POD)
        else:
            members = [self.members[rank] for rank in range(self.node.trainers)]
            self.members.begin()
            self._identity = members[0].read
            self._crashed, self.differ, self.stop_cause = None, None, ""
            self._strays = False
            self._ends = []
            self.moved = self._looked = self._told = now
            self._slow = {}
            self._stopwatch.begun = now
            self._enter(State.STARTING, now)
            self._server.say(
                f"attempt {number}: all {len(members)} pods are here, training starts "
                f"{resumption.description}"
            )
            addresses = m.pack([member.hello.address for member in members])
            self._broadcast(m.Start(number, dict(resumption.resume), addresses))
        self._advance(now)

    def end_recorded(
        self, exhausted: Outcome | None, seconds: Mapping[str, float], now: float
    ) -> None:
        """`exhausted`: why no other attempt is allowed. `seconds`: of all attempts; the volume
        knows better what was kept.
        """
        self._loss, self._stopwatch.seconds = None, Counter(seconds)
        if exhausted is not None:
            self.finish(exhausted, now)
        elif self.state is State.ENDING:
            self._asked = False
            self._enter(State.GATHERING, now)
        self._advance(now)

    def concluded(self, attempt: int, missing: str | None, made: str, now: float) -> None:
        """`missing`: what is missing for the job to be done; None: nothing. `made`: what the
        attempt completed.
        """
        if attempt != self.attempt or self.state not in RUNNING:
            return
        self._asked = False
        absent = (
            set(range(self.node.trainers)) - self.trainers.sessions.keys()
            if self._trainers_join
            else set()
        )
        if self.state is State.STOPPING and missing is not None:
            self._lose(Loss(self.stop_cause, STOPPED), now)
        elif absent and self.state is not State.STOPPING:
            sentence = (
                f"trainers {numbers(absent)} ended with 0 and had never joined the others: they "
                "have trained nothing"
            )
            self._lose(Loss(sentence, PROGRAM), now)
        elif missing is None:
            done = f"{made} is complete" if made else "nothing was left to do"
            done = done if self._trainers_join else "every process ended with 0"
            self.finish(
                Outcome(ExitCode.DONE, f"{done}: the job is done"),
                now,
                Loss("done", STOPPED, gone=not self._strays),
            )
        else:
            self._lose(Loss(f"every trainer ended with 0, but {missing}", PROGRAM), now)
        self._advance(now)

    def outcome_recorded(self, outcome: Outcome) -> None:
        """Tells all agents how the job ended."""
        if self._final is None:
            crashed = self._crashed if outcome.code == ExitCode.ATTEMPTS_EXHAUSTED else None
            self._final = m.Finish(outcome.code, outcome.sentence, crashed)
            self._broadcast(self._final)

    # The course of the job.

    def _advance(self, now: float) -> None:
        members = self.members
        stopping = self.state is State.STOPPING
        ended = members.stopped if stopping else members.trained
        if self.state in RUNNING and (deadlock := self.trainers.deadlock(ended)):
            # Trainers that stop can only save together.
            cause = f"{self.stop_cause}; then {deadlock}" if stopping else deadlock
            self._lose(Loss(cause, STOPPED if stopping else PROGRAM), now)
        if self.state is State.STARTING and members.all(members.serving):
            self._enter(State.TRAINING, now)
            self._broadcast(m.AllReached(self.attempt, "serving"))
            self.trainers.serve(now)
        if self.state in RUNNING and members.all(members.trained) and not self._asked:
            self._ask("conclude", self.attempt, self.state is State.STOPPING)
        elif self.state is State.STOPPING and members.all(members.stopped) and not self._asked:
            self._lose(Loss(self.stop_cause, STOPPED), now)
        if self.state is State.ENDING and not members.runs:
            self._end(now)
        gathered = self.state is State.GATHERING and not self._asked and members.all(members.ready)
        if gathered and (identity := self._same_reading(now)) is not None:
            self._ask("begin", identity)

    def _same_reading(self, now: float) -> Identity | None:
        """Returns the run's data and program. If not all agents have read them, asks the others to
        prepare again; None.
        """
        read = self.members.readings()
        if read.keys() == {self._identity} or (self._identity is None and len(read) == 1):
            return next(iter(read))
        parts = [
            f"trainers {numbers(read[reading])} read {reading}" for reading in sorted(read, key=str)
        ]
        sentence = "; ".join(
            [*parts, *([f"the run began with {self._identity}"] if self._identity else [])]
        )
        if self.differ is None or self.differ[0] != sentence:
            self._server.say(f"{sentence}: no attempt begins, they prepare again")
        self.differ = (sentence, self.differ[1] if self.differ else now)
        for rank, member in self.members.items():
            if member.read != self._identity:
                self.members.ready.discard(rank)
                self._server.send(m.PrepareAgain(), member.connection)
        return None

    def _lose(self, loss: Loss, now: float) -> None:
        """Ends the attempt everywhere. Its end is recorded only once all have ended it: a further
        loss may show late.
        """
        if self.state not in RUNNING:
            return
        self._enter(State.ENDING, now)
        seconds = self._stopwatch.stop(self.trainers, now, done=False)
        if not self._ends:
            loss = replace(loss, stepped=bool(self.trainers.stepped))
        self._loss, self._asked = replace(loss, seconds=seconds), False
        end, trainers = (
            m.End(self.attempt, loss.cause),
            (session.connection for session in self.trainers.sessions.values()),
        )
        self._broadcast(end)
        self._server.send(end, *trainers)

    def record_end(self) -> None:
        """Records the end of the attempt that is ending, unless that is under way. A leaving server
        owes this to the next one.
        """
        if self.state is State.ENDING and not self._asked:
            assert self._loss is not None
            ended = replace(self._settled(self._loss), gone=not self._strays)
            self._ask("record_end", ended)

    def finish(self, outcome: Outcome, now: float, loss: Loss | None = None) -> None:
        """Ends the job, and with it the attempt, by `loss`."""
        if self.state is not State.FINISHED:
            if loss is not None and self.state in RUNNING:
                loss = replace(
                    loss,
                    seconds=self._stopwatch.stop(self.trainers, now, outcome.code == ExitCode.DONE),
                )
            loss = self._loss if self._loss is not None and not self._asked else loss
            self.state = State.FINISHED
            self._ask("record_outcome", outcome, loss)

    # Time.

    def tick(self, now: float, late: bool) -> None:
        """Called once per `BEAT`. `late`: this process itself paused, so silence does not count as
        a loss.
        """
        members, trainers, self._ticked = self.members, self.trainers, now
        training = self.state in (State.STARTING, State.TRAINING)
        waiting = trainers.waiting(members.serving)
        silent = dict(sorted(members.silent.items(), key=lambda entry: entry[1])[:1])
        for rank, member in list(members.items()):
            if now - member.last_heard > m.SILENCE and not late:
                self._drop(member, f"{member.pod} said nothing for {m.SILENCE:.0f} s", now)
            else:
                own_silence = {rank: members.silent[rank]} if rank in members.silent else {}
                where, held = (
                    trainers.status(rank, waiting, silent | own_silence, now)
                    if training
                    else ("", 0.0)
                )
                self._server.send(m.Status(self.state.value, where, held), member.connection)
        if self.state in RUNNING:
            waits = (
                session.connection
                for session in trainers.sessions.values()
                if session.waits_in is not None
            )
            self._server.send(m.Beat(), *waits)
        match self._overdue(now):
            case Outcome() as outcome:
                self.finish(outcome, now)
            case Loss() as loss:
                self._lose(loss, now)
            case str(sentence) if now - self._reminded > REMIND:
                self._reminded = now
                self._server.say(sentence)
        if self.state is State.TRAINING and now - self._looked >= LOOK:
            self._look(now)
        self._advance(now)

    def _look(self, now: float) -> None:
        """Reports which trainers are slow, and where the time goes."""
        self._looked, before, self._slow = now, self._slow, self.trainers.look(now)
        names = {
            rank: f"trainer {rank} on {self.members[rank].hello.node or self.members[rank].pod}"
            for rank in self._slow
        }
        for rank in self._slow.keys() - before.keys():
            self._server.say(
                f"{names[rank]} is slow: a step takes it {self._slow[rank]:.1f} times as long as "
                "the median"
            )
        if self._slow.keys() != before.keys() or now - self._told >= TELL:
            self._told = now
            slow = [
                f"{names[rank]} ({times:.1f} times the median)"
                for rank, times in self._slow.items()
            ]
            seconds = self._stopwatch.seconds + Counter(
                self._stopwatch.read(self.trainers, now, done=True)
            )
            self._server.say(Goodput(seconds, tuple(slow[:SHOWN])).line())

    def numbers(self, now: float) -> tuple[dict[str, float], dict[int, float]]:
        """Returns the run's seconds by what they went into, and how many times the median a step
        takes, by the rank of each slow trainer.
        """
        seconds = Counter(self._stopwatch.seconds)
        if self.state in RUNNING:
            seconds.update(self._stopwatch.read(self.trainers, now, done=True))
        return dict(seconds), dict(self._slow)

    def _overdue(self, now: float) -> deadlines.Verdict:
        match self.state:
            case State.GATHERING:
                return deadlines.of_peers(self, now)
            case State.STARTING | State.TRAINING:
                return deadlines.of_attempt(self, now, self.state is State.STARTING)
            case State.STOPPING:
                return deadlines.of_stop(self, now)
            case State.ENDING if now - self.since > ENDING:
                for rank in sorted(self.members.runs):
                    self._drop(
                        self.members[rank],
                        f"{self.members[rank].pod} does not end its processes",
                        now,
                    )
        return None

    # Helpers.

    def _enter(self, state: State, now: float) -> None:
        self.state = state
        self.since = self._reminded = now

    def _ask(self, what: Question, *about: Any) -> None:
        self._asked = True
        self._server.ask(what, *about)

    def _broadcast(self, message: m.Message) -> None:
        self._server.send(message, *(member.connection for member in self.members.values()))

"""The rendezvous of a run: admits the agents, starts and ends attempts, and ends the job.

It knows no socket, clock or volume: `handle` takes an event and returns what follows, and its
server carries that out. An attempt starts only when all N agents are here, have read the same data
and program, and have no process left of an earlier attempt. The loss of an agent, or of a process
that an agent reports, ends the attempt for all. An outcome that lasts is on the volume before an
agent hears of it.

    GATHERING -> STARTING (pservers come up) -> TRAINING -> FINISHED
    STARTING, TRAINING: a loss -> ENDING (all agents end their processes) -> GATHERING
    STARTING, TRAINING: SIGTERM to any pod -> STOPPING (trainers may save) -> ENDING; before the
    first step, ENDING at once
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from enum import Enum

from paddle_node.contract import ExitCode
from paddle_node.environment import PodEnvironment
from paddle_node.rendezvous import deadlines, heartbeat, policy
from paddle_node.rendezvous import effects as e
from paddle_node.rendezvous import events as on
from paddle_node.rendezvous import messages as m
from paddle_node.rendezvous.attempt_end import AttemptEnd
from paddle_node.rendezvous.current_attempt import LONGEST_PLACE, CurrentAttempt, Pause
from paddle_node.rendezvous.goodput import Stopwatch
from paddle_node.rendezvous.members import Member, Members
from paddle_node.rendezvous.saves import Saves
from paddle_node.rendezvous.trainers import MOST_NAMED, PACE_INTERVAL, Trainer, Trainers, list_ranks
from paddle_node.retry import REMIND_INTERVAL
from paddle_node.runtimes import Resumption, Scratch
from paddle_node.runtimes.file_progress import checkpoint_check
from paddle_node.volume.attempts import CLUSTER, DONE, POD, PROGRAM, STOPPED, Outcome
from paddle_node.volume.goodput import Goodput
from paddle_node.volume.passes import Identity

END_DEADLINE = 16.0
"""Seconds for an agent to end its processes, and for an agent that is cut off to notice that."""
PAUSE = 3 * heartbeat.INTERVAL
"""Seconds without a sign of life after which a pod may be frozen, and its peers' programs may fail
for that.
"""
GOODPUT_INTERVAL = 30.0
"""Seconds between two log lines that say where the time goes."""


class JobState(Enum):
    """The state of the job."""

    GATHERING = "waiting for peers"
    STARTING = "waiting for pservers"
    TRAINING = "training"
    STOPPING = "saving before it stops"
    ENDING = "ending the attempt"
    FINISHED = "finished"


RUNNING = (JobState.STARTING, JobState.TRAINING, JobState.STOPPING)


class Rendezvous:
    """`identity`: None before the run's first attempt.

    `seconds`: where the time of the job's earlier attempts went, over all its runs. `last`: the
    number of this run's last attempt; 0: there is none.
    """

    def __init__(
        self,
        pod: PodEnvironment,
        members: Members,
        identity: Identity | None,
        seconds: Mapping[str, float],
        now: float,
        last: int = 0,
    ) -> None:
        self.members = members
        self.state = JobState.GATHERING
        self._pod = pod
        self._identity = identity
        self._effects: list[e.Effect] = []
        """The effects of the event that is being handled."""
        self._attempt = CurrentAttempt(0, Trainers(pod.trainers, pod.way.passes), now)
        self._stopwatch = Stopwatch(Counter(seconds), now)
        self._since = now
        """When this state began."""
        self._saves = Saves(pod, checkpoint_check(pod), last) if pod.local else None
        """What is on the pods' scratch; None: their commands write to the volume."""
        self._outcome: Outcome | None = None
        """How the run ends once what is on the scratch is copied."""
        self._reminded = now
        """When it was last said whom all wait for."""
        self._looked = now
        """When it was last looked who is slow."""
        self._reported = now
        """When goodput was last reported."""
        self._ticked = now
        """When the last beat passed."""
        self._slow: dict[int, float] = {}
        """The slow trainers, and how many times the median each takes."""
        self._difference: tuple[str, float] | None = None
        """Which trainers read what, if they differ, and since when."""
        self._asked = False
        """The volume has not yet answered the question that this state asks."""
        self._ending: AttemptEnd | None = None
        """Why the attempt is ending."""
        self._pause: Pause | None = None
        """The last time that a pod said nothing and then came back; None: never."""
        self._final: m.Finish | None = None
        """The message to every agent once the outcome is recorded."""

    def handle(self, event: on.Event, now: float) -> list[e.Effect]:
        """Takes in an event, and returns what follows, in the order in which to carry it out."""
        match event:
            case on.AgentCame(hello, connection):
                self._admit_agent(hello, connection, now)
            case on.AgentSent(rank, connection, message):
                self._hear_agent(rank, connection, message, now)
            case on.AgentLeft(rank, connection):
                self._lose_agent(rank, connection, now)
            case on.TrainerCame(join, connection):
                self._admit_trainer(join, connection, now)
            case on.TrainerSent(rank, connection, message):
                self._hear_trainer(rank, connection, message, now)
            case on.AttemptBegun(number, resumption):
                self._start(number, resumption, now)
            case on.EndRecorded(facts, seconds):
                self._after_end(facts, seconds, now)
            case on.Published(key, fault) if self._saves is not None:
                self._saves.note_published(key, fault)
                self._attempt.moved = now
                self._advance(now)
            case on.Concluded(attempt, missing, progress):
                self._conclude(attempt, missing, progress, now)
            case on.OutcomeRecorded(outcome):
                self._announce(outcome)
            case on.JobOver(outcome):
                self._finish(outcome, now)
            case on.Progressed():
                self._attempt.moved = now
            case on.Ticked(late):
                self._tick(now, late)
            case on.Closing():
                self._record_end()
        effects, self._effects = self._effects, []
        return effects

    # Connections. All of them have proved that they belong to this run.

    def _admit_agent(self, hello: m.Hello, connection: object, now: float) -> None:
        """Admits an agent, refuses it, or asks it to come again."""
        if (refusal := self.members.refusal(hello)) is not None:
            if refusal.code:
                self._say(f"an agent at {hello.address} was refused: {refusal.sentence}")
            self._send(refusal, connection)
            self._effects.append(e.Close(connection))
            return
        if (cause := self.members.register(hello)) is not None:
            self._drop(self.members[hello.rank], cause, now)
        self.members[hello.rank] = Member(hello, connection, now)
        self._send(m.Welcome(), connection)
        if self._final is not None:
            self._send(self._final, connection)
        self._advance(now)

    def _admit_trainer(self, join: m.Join, connection: object, now: float) -> None:
        if (
            join.attempt != self._attempt.number
            or self.state not in RUNNING
            or not 0 <= join.rank < self._pod.trainers
        ):
            self._send(m.End(join.attempt, f"attempt {join.attempt} is over"), connection)
            self._effects.append(e.Close(connection))
        else:
            self._attempt.trainers.sessions[join.rank] = Trainer(connection, now)
            self._send(m.Welcome(), connection)

    def _lose_agent(self, rank: int, connection: object, now: float) -> None:
        member = self.members.get(rank)
        if member is not None and member.connection is connection:
            self._drop(member, f"{member.pod} was lost", now)
        self._advance(now)

    def _drop(self, member: Member, cause: str, now: float) -> None:
        """Removes a lost agent. Its processes are gone with it, or it ends them itself within
        `heartbeat.LOST_AFTER` seconds.
        """
        ran = member.hello.rank in self.members.runs
        self._attempt.strays = self._attempt.strays or ran
        self.members.forget(member.hello.rank)
        if self._saves is not None:
            self._saves.forget(member.hello.rank)
        self._effects.append(e.Close(member.connection))
        if self.state is JobState.STOPPING:
            # The trainers can no longer save together.
            self._lose(AttemptEnd(f"{self._attempt.stop_cause}; then {cause}", STOPPED), now)
        elif self.state in RUNNING:
            self._lose(AttemptEnd(cause, POD), now)
        elif (
            self.state is JobState.ENDING
            and ran
            and self._ending is not None
            and self._ending.kind in (PROGRAM, CLUSTER)
        ):
            # When a pod is lost, the other pods' programs fail at once; the loss itself shows
            # seconds later.
            ending = self._attempt.explain(self._ending, self._pause)
            self._ending = replace(ending, cause=f"{ending.cause}; {cause}", kind=POD)
        elif self.state is JobState.GATHERING:
            self._say(f"{cause}; waiting for it")

    # What agents and trainers say.

    def _hear_agent(self, rank: int, connection: object, message: m.Message, now: float) -> None:
        member = self.members.get(rank)
        if member is None or member.connection is not connection:
            return
        if now - member.last_heard > PAUSE:
            # After a pause of this process, all others seem to have been silent.
            paused = self.members.get(0, member) if now - self._ticked > PAUSE else member
            self._pause = Pause(member.last_heard, now, paused.pod)
        member.last_heard = now
        match message:
            case m.Beat(quiet, silent):
                if silent is not None:
                    member.silent_since = now - silent
                if quiet is not None and (self.state in RUNNING or self._saves is not None):
                    self._attempt.moved = max(self._attempt.moved, now - quiet)
                return  # The most frequent message: nothing follows from it.
            case m.Fatal(code, sentence) if 0 < code < 256:  # 256 would end a pod with 0.
                self._finish(Outcome(code, f"trainer {rank}: {sentence}"), now)
            case m.Report():
                if message.leaving and self.state in (JobState.STARTING, JobState.TRAINING):
                    self._stop(f"{member.pod} was told to stop", now)
                current = message.attempt == self._attempt.number
                if current and message.place:
                    self._attempt.places[rank] = message.place[:LONGEST_PLACE]
                self.members.hear(rank, message, current, self.state in RUNNING, now)
            case m.Saves() if self._saves is not None:
                self._saves.hear(rank, message)
            case m.Lost(attempt) if attempt == self._attempt.number:
                self._process_lost(member, message, now)
        self._advance(now)

    def _stop(self, cause: str, now: float) -> None:
        """Lets the trainers save what they have trained, together; if that is nothing yet, ends the
        attempt at once. Some may not listen to SIGTERM yet, and others would wait for those.
        """
        self._attempt.stop_cause = cause
        self._say(f"attempt {self._attempt.number} stops: {cause}")
        if self._attempt.trainers.has_stepped() is False:
            self._lose(AttemptEnd(cause, STOPPED), now)
        else:
            self._enter(JobState.STOPPING, now)
            self._broadcast(m.Stop(self._attempt.number, cause))

    def _process_lost(self, member: Member, lost: m.Lost, now: float) -> None:
        attempt = self._attempt
        if self.state is JobState.STOPPING:
            self.members.stopped.add(member.hello.rank)
        elif self.state in RUNNING:
            attempt.add_end(member, self.members, lost, now)
            self._lose(attempt.explain(AttemptEnd("", PROGRAM), self._pause), now)
        elif attempt.ends:  # Else it was no process that ended the attempt.
            attempt.add_end(member, self.members, lost, now)

    def _hear_trainer(self, rank: int, connection: object, message: m.Message, now: float) -> None:
        session = self._attempt.trainers.sessions.get(rank)
        if session is None or session.connection is not connection or self.state not in RUNNING:
            return
        trainers = self._attempt.trainers
        left = trainers.left
        self._effects += trainers.hear(rank, message, self.state is not JobState.STARTING, now)
        if trainers.left and not left:
            self._broadcast(m.AllReached(self._attempt.number, "left"))
        self._advance(now)

    # What the volume answers.

    def _start(self, number: int, resumption: Resumption, now: float) -> None:
        """Starts the attempt: the volume has answered its number and what it resumes from."""
        if self.state is JobState.FINISHED:
            return
        self._asked = False
        local, earlier, kept = False, 0, list[str]()
        if self._saves is not None:
            earlier, kept = self._saves.written, self._saves.list_kept(resumption)
            local = not self._saves.full
            self._saves.begin(number, resumption)
        trainers = Trainers(self._pod.trainers, self._pod.way.passes)
        if not self.members.is_complete(self.members.ready):
            # An agent was lost while the volume answered: the number is spent, the attempt never
            # ran.
            self._attempt = replace(self._attempt, number=number, trainers=trainers)
            self._enter(JobState.ENDING, now)
            self._ending = AttemptEnd("a pod was lost before the attempt began", POD)
        else:
            members = [self.members[rank] for rank in range(self._pod.trainers)]
            self._attempt = CurrentAttempt(number, trainers, now)
            self.members.begin()
            self._identity = members[0].read
            self._looked = self._reported = now
            self._difference, self._slow = None, {}
            self._stopwatch.begun = now
            self._enter(JobState.STARTING, now)
            self._say(
                f"attempt {number}: all {len(members)} pods are here, training starts "
                f"{resumption.description}"
            )
            addresses = m.pack([member.hello.address for member in members])
            bring = local and not resumption.local
            resumed = dict(resumption.resumed)
            self._broadcast(m.Start(number, resumed, addresses, local, bring, earlier, kept))
        self._advance(now)

    def _after_end(self, facts: policy.Facts, seconds: Mapping[str, float], now: float) -> None:
        self._ending, self._stopwatch.seconds = None, Counter(seconds)
        if (outcome := policy.decide(facts)) is not None:
            self._outcome = outcome
        elif self.state is JobState.ENDING:
            self._asked = False
            self._enter(JobState.GATHERING, now)
        self._advance(now)

    def _have_copied(self, now: float, *, rest: bool = True) -> bool:
        """Whether nothing of an attempt whose processes have ended is left to copy to the volume;
        without `rest`: nothing without which the next attempt cannot begin. One that writes to the
        volume removes the scratch.
        """
        if self._saves is None:
            return True
        rest = rest or bool(self._saves.full)
        return self._saves.are_final(self.members) and self._copy_saves(now, final=True, rest=rest)

    def _copy_saves(self, now: float, *, final: bool = False, rest: bool = False) -> bool:
        """Returns whether nothing is left to copy from the pods' scratch; else sees to it."""
        assert self._saves is not None
        steps = self._saves.advance(final=final, rest=rest)
        for step in steps or ():
            match step:
                case str():
                    self._say(step)
                case m.Copy():
                    self._attempt.moved = now
                    self._broadcast(step)
                case _:
                    self._effects.append(step)
        return steps is None

    def _conclude(self, attempt: int, missing: str | None, progress: str, now: float) -> None:
        if attempt != self._attempt.number or self.state not in RUNNING:
            return
        self._asked = False
        if missing is None and self._saves is not None:
            missing = self._saves.missing or None
        absent = self._attempt.trainers.absent
        if self.state is JobState.STOPPING and missing is not None:
            self._lose(AttemptEnd(self._attempt.stop_cause, STOPPED), now)
        elif absent and self.state is not JobState.STOPPING:
            sentence = (
                f"trainers {list_ranks(absent)} ended with 0 and had never joined the others: they "
                "have trained nothing"
            )
            self._lose(AttemptEnd(sentence, PROGRAM), now)
        elif missing is None:
            done = self._attempt.trainers.describe_end(progress)
            doubts = self.members.describe_doubts()
            done += DONE + (f", but {doubts}" if doubts else "")
            self._finish(
                Outcome(ExitCode.DONE, done),
                now,
                AttemptEnd("done", STOPPED, gone=not self._attempt.strays),
            )
        else:
            doubts = self.members.describe_doubts()
            cause = "; ".join(filter(None, (f"every trainer ended with 0, but {missing}", doubts)))
            self._lose(AttemptEnd(cause, PROGRAM), now)
        self._advance(now)

    def _announce(self, outcome: Outcome) -> None:
        """Tells all agents how the job ended."""
        if self._final is None:
            crashed = self._attempt.crashed if outcome.code == ExitCode.ATTEMPTS_EXHAUSTED else None
            self._final = m.Finish(outcome.code, outcome.sentence, crashed)
            self._broadcast(self._final)

    # The course of the job.

    def _advance(self, now: float) -> None:
        members = self.members
        stopping = self.state is JobState.STOPPING
        ended = members.stopped if stopping else members.trained
        if self.state in RUNNING and (deadlock := self._attempt.trainers.deadlock(ended)):
            # Trainers that stop can only save together.
            cause = f"{self._attempt.stop_cause}; then {deadlock}" if stopping else deadlock
            self._lose(AttemptEnd(cause, STOPPED if stopping else PROGRAM), now)
        if self.state is JobState.STARTING and members.is_complete(members.serving):
            self._enter(JobState.TRAINING, now)
            self._broadcast(m.AllReached(self._attempt.number, "serving"))
            self._effects += self._attempt.trainers.serve(now)
        if self.state in RUNNING and members.is_complete(members.trained) and not self._asked:
            if self._have_copied(now):
                self._ask(e.Conclude(self._attempt.number, self.state is JobState.STOPPING))
        elif (
            self.state is JobState.STOPPING
            and members.is_complete(members.stopped)
            and not self._asked
        ):
            if self._have_copied(now):
                self._lose(AttemptEnd(self._attempt.stop_cause, STOPPED), now)
        elif self.state is JobState.TRAINING and self._saves is not None and not self._asked:
            self._copy_saves(now)
        final = self._saves is None or self._saves.are_final(members)
        if self.state is JobState.ENDING and not members.runs and self._outcome is None and final:
            # No pod can be found lost any more.
            self._record_end()
        if self._outcome is not None and self._have_copied(now):
            self._finish(self._outcome, now)
        gathered = (
            self.state is JobState.GATHERING
            and not self._asked
            and self._outcome is None
            and members.is_complete(members.ready)
        )
        if (
            gathered
            and (identity := self._common_reading(now)) is not None
            and self._have_copied(now, rest=False)
        ):
            self._ask(e.Begin(identity, *self._scratch()))

    def _scratch(self) -> tuple[Scratch, ...]:
        return (self._saves.scratch(),) if self._saves is not None else ()

    def _common_reading(self, now: float) -> Identity | None:
        """Returns the run's data and program. If not all agents have read them, asks the others to
        prepare again; None.
        """
        read = self.members.readings()
        if read.keys() == {self._identity} or (self._identity is None and len(read) == 1):
            return next(iter(read))
        parts = [
            f"trainers {list_ranks(read[reading])} read {reading}"
            for reading in sorted(read, key=str)
        ]
        sentence = "; ".join(
            [*parts, *([f"the run began with {self._identity}"] if self._identity else [])]
        )
        if self._difference is None or self._difference[0] != sentence:
            self._say(f"{sentence}: no attempt begins, they prepare again")
        self._difference = (sentence, self._difference[1] if self._difference else now)
        for rank, member in self.members.items():
            if member.read != self._identity:
                self.members.ready.discard(rank)
                self._send(m.PrepareAgain(), member.connection)
        return None

    def _lose(self, ending: AttemptEnd, now: float) -> None:
        """Ends the attempt everywhere. Its end is recorded only once all have ended it: a further
        loss may show late.
        """
        if self.state not in RUNNING:
            return
        self._enter(JobState.ENDING, now)
        seconds = self._stopwatch.stop(self._attempt.trainers, now, done=False)
        if not self._attempt.ends and self._attempt.trainers.join:
            ending = replace(ending, stepped=self._attempt.trainers.has_stepped())
        self._ending, self._asked = replace(ending, seconds=seconds), False
        end, trainers = (
            m.End(self._attempt.number, ending.cause),
            (session.connection for session in self._attempt.trainers.sessions.values()),
        )
        self._broadcast(end)
        self._send(end, *trainers)

    def _record_end(self) -> None:
        """Records the end of the attempt that is ending, unless that is under way. A leaving server
        owes this to the next one.
        """
        if self.state is JobState.ENDING and not self._asked:
            assert self._ending is not None
            ending = self._attempt.explain(self._ending, self._pause)
            ending = replace(ending, gone=not self._attempt.strays)
            self._ask(e.RecordEnd(ending, *self._scratch()))

    def _finish(self, outcome: Outcome, now: float, ending: AttemptEnd | None = None) -> None:
        """Ends the job, and with it the attempt, by `ending`."""
        if self.state is not JobState.FINISHED:
            if self.state in RUNNING:
                ending = ending or AttemptEnd(outcome.sentence, STOPPED)
                done = outcome.code == ExitCode.DONE
                seconds = self._stopwatch.stop(self._attempt.trainers, now, done)
                ending = replace(ending, seconds=seconds)
            ending = self._ending if self._ending is not None and not self._asked else ending
            self.state = JobState.FINISHED
            self._ask(e.RecordOutcome(outcome, ending))

    # Time.

    def _tick(self, now: float, late: bool) -> None:
        members, trainers, self._ticked = self.members, self._attempt.trainers, now
        training = self.state in (JobState.STARTING, JobState.TRAINING)
        waiting = trainers.map_waits(members.serving)
        silent = dict(sorted(members.silent.items(), key=lambda entry: entry[1])[:1])
        for rank, member in list(members.items()):
            if now - member.last_heard > heartbeat.LOST_AFTER and not late:
                self._drop(
                    member, f"{member.pod} said nothing for {heartbeat.LOST_AFTER:.0f} s", now
                )
            else:
                own_silence = {rank: members.silent[rank]} if rank in members.silent else {}
                where, held = (
                    trainers.status(rank, waiting, silent | own_silence, now)
                    if training
                    else ("", 0.0)
                )
                self._send(m.Status(self.state.value, where, held), member.connection)
        if self.state in RUNNING:
            waits = (
                session.connection
                for session in trainers.sessions.values()
                if session.waits_in is not None
            )
            self._send(m.Beat(), *waits)
        match self._overdue(now):
            case Outcome() as outcome:
                self._finish(outcome, now)
            case AttemptEnd() as ending:
                self._lose(ending, now)
            case str(sentence) if now - self._reminded > REMIND_INTERVAL:
                self._reminded = now
                self._say(sentence)
        quiet = now - self._attempt.moved
        # In an attempt that runs, the same silence ends the attempt.
        lags = self._saves.waits if self._saves is not None and self.state not in RUNNING else ""
        if self._saves is not None and lags and quiet > self._pod.stall:
            self._say(
                f"waiting no longer for {lags}: not a byte for {quiet:.0f} s "
                f"(limits.stall_seconds is {self._pod.stall:g})"
            )
            self._saves.give_up()
        if self.state is JobState.TRAINING and now - self._looked >= PACE_INTERVAL:
            self._look(now)
        self._advance(now)

    def _look(self, now: float) -> None:
        """Reports which trainers are slow, and where the time goes."""
        self._looked, before, self._slow = now, self._slow, self._attempt.trainers.find_slow(now)
        names = {
            rank: f"trainer {rank} on {self.members[rank].hello.node or self.members[rank].pod}"
            for rank in self._slow
        }
        for rank in self._slow.keys() - before.keys():
            self._say(
                f"{names[rank]} is slow: a step takes it {self._slow[rank]:.1f} times as long as "
                "the median"
            )
        if self._slow.keys() != before.keys() or now - self._reported >= GOODPUT_INTERVAL:
            self._reported = now
            slow = [
                f"{names[rank]} ({times:.1f} times the median)"
                for rank, times in self._slow.items()
            ]
            seconds = self._stopwatch.seconds + Counter(
                self._stopwatch.read(self._attempt.trainers, now, done=True)
            )
            self._say(Goodput(seconds, tuple(slow[:MOST_NAMED])).line())

    def measure_goodput(self, now: float) -> tuple[dict[str, float], dict[int, float]]:
        """Returns the run's seconds by what they went into, and how many times the median a step
        takes, by the rank of each slow trainer.
        """
        seconds = Counter(self._stopwatch.seconds)
        if self.state in RUNNING:
            seconds.update(self._stopwatch.read(self._attempt.trainers, now, done=True))
        return dict(seconds), dict(self._slow)

    def _overdue(self, now: float) -> deadlines.Verdict:
        pod, members, attempt = self._pod, self.members, self._attempt
        match self.state:
            case JobState.GATHERING:
                difference = self._difference and (self._difference[0], now - self._difference[1])
                return deadlines.check_peers(pod, members, now - self._since, difference)
            case JobState.STARTING | JobState.TRAINING as state:
                starting = state is JobState.STARTING
                return deadlines.check_attempt(
                    pod, members, attempt, self._since, now, starting=starting
                )
            case JobState.STOPPING:
                return deadlines.check_stop(pod, members, attempt, now - self._since)
            case JobState.ENDING if now - self._since > END_DEADLINE:
                for rank in sorted(self.members.runs):
                    self._drop(
                        self.members[rank],
                        f"{self.members[rank].pod} does not end its processes",
                        now,
                    )
        return None

    # Helpers.

    def _enter(self, state: JobState, now: float) -> None:
        self.state = state
        self._since = self._reminded = now

    def _ask(self, question: e.Question) -> None:
        self._asked = True
        self._effects.append(question)

    def _send(self, message: m.Message, *connections: object) -> None:
        self._effects.append(e.Send(message, connections))

    def _say(self, text: str) -> None:
        self._effects.append(e.Say(text))

    def _broadcast(self, message: m.Message) -> None:
        self._send(message, *(member.connection for member in self.members.values()))

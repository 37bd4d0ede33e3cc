"""Random sequences of what agents, trainers, pods and the clock do, asked of the rendezvous itself:
at most one attempt at a time, no ended run revived, success only with all ranks, and every attempt
ends. The agents are honest about their own processes; what they send may be late, double or lost.
"""

from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from paddle_node.contract import ExitCode
from paddle_node.rendezvous import effects as e
from paddle_node.rendezvous import events as on
from paddle_node.rendezvous import messages as m
from paddle_node.volume import durable
from paddle_node.volume.attempts import Outcome
from reducer import LOST, Run

COUNT = 3
CODES = (0, 1, 2, 65, 74, 127, 134, 137, 143, 256)
STEPS = st.lists(
    st.tuples(
        st.sampled_from([
            "come", "serve", "serve", "trained", "stopped", "fall", "clear", "clear", "drain",
            "lose", "late", "foreign", "fatal", "silence", "beats", "join", "step", "gather",
            "replace", "missing", "saved", "all", "all",
        ]),
        st.integers(0, COUNT - 1),
        st.integers(0, 9),
    ),
    min_size=20,
    max_size=50,
)  # fmt: skip


class Agent:
    """One pod's agent, as it sees itself."""

    def __init__(self) -> None:
        self.link: object | None = None
        self.runs = 0
        """The attempt of its processes; 0: none is left."""
        self.told_to_end = False


class Checked(Run):
    """A run whose every effect is checked."""

    def __init__(self, place: Any, trainers_join: bool) -> None:
        self.agents = [Agent() for _ in range(COUNT)]
        self.begun = 0
        self.trained: set[tuple[int, int]] = set()
        super().__init__(place, COUNT, trainers_join=trainers_join, ATTEMPTS="2")

    def handle(self, event: on.Event) -> None:
        effects = self.rendezvous.handle(event, self.now)
        for effect in effects:
            match effect:
                case e.Send(message, connections):
                    for agent in self.agents:
                        if agent.link is not None and agent.link in connections:
                            self.obey(agent, message)
                case e.Close(connection):
                    for agent in self.agents:
                        if agent.link is connection:  # Its processes end with it.
                            agent.link, agent.runs = None, 0
                case e.Say():
                    pass
                case question:
                    self.handle(self.books.answer(question))

    def obey(self, agent: Agent, message: m.Message) -> None:
        match message:
            case m.Start(number):
                assert self.outcome is None, "an ended run was revived"
                assert number >= self.begun, "a number was used twice"
                assert not agent.runs, "two attempts at a time"
                assert all(
                    other.runs in (0, number) for other in self.agents if other.link is not None
                )
                self.attempt = self.begun = agent.runs = number
                agent.told_to_end = False
            case m.End(number) if number == agent.runs:
                agent.told_to_end = True
            case m.Finish(code, sentence):
                assert self.outcome in (None, Outcome(code, sentence)), "a run ended twice"
                self.outcome = Outcome(code, sentence)
                if code == ExitCode.DONE:
                    assert {rank for number, rank in self.trained if number == self.begun} == set(
                        range(COUNT)
                    ), "success without all ranks"

    def act(self, name: str, rank: int, number: int) -> None:
        agent = self.agents[rank]
        if name == "come" and agent.link is None:
            agent.link, agent.runs = object(), 0
            hello = m.Hello(rank, COUNT, uuid4().hex, "m", f"job-{rank}", "", f"10.0.0.{rank + 1}")
            self.handle(on.AgentCame(hello, agent.link))
            self.tell_state(rank)
        elif name == "all":
            for each in range(COUNT):
                for what in ("clear", "come", "serve"):
                    self.act(what, each, number)
        elif name == "silence":
            self.tick(number)
        elif name == "beats":
            self.tick(number + 1, *range(COUNT))
        elif name == "replace":
            # Pod 0 is lost, and with it the server: each agent ends its processes.
            for each in self.agents:
                each.link, each.runs = None, 0
            if self.record.outcome is None:
                self.outcome = None
                self.serve()
        elif name in ("missing", "saved"):
            self.files.missing = "a pass" if name == "missing" and number < 5 else None
            self.files.made = "pass" if name == "saved" and number < 5 else ""
        elif name == "join":
            trainer = object()
            self.handle(on.TrainerCame(m.Join(rank, self.begun - number // 9), trainer))
            self.trainers = {**getattr(self, "trainers", {}), rank: trainer}
        elif name in ("step", "gather"):
            message = m.Step(0, number, number, {}) if name == "step" else m.Gather("x", number)
            trainer = getattr(self, "trainers", {}).get(rank, object())
            self.handle(on.TrainerSent(rank, trainer, message))
        elif agent.link is not None:
            self.act_connected(name, rank, number)

    def act_connected(self, name: str, rank: int, number: int) -> None:
        agent, code = self.agents[rank], CODES[number]
        lost = m.Lost(agent.runs, f"trainer {rank} ended with {code}", code, **LOST)
        works = agent.runs and not agent.told_to_end
        if name == "serve" and works:
            self.tell_state(rank, serving=True)
        elif name in ("trained", "stopped") and works:
            if name == "trained":
                self.trained.add((agent.runs, rank))
            self.tell_state(rank, serving=True, ended=name)
        elif name == "fall" and agent.runs:
            self.tell(rank, lost)
        elif name == "clear" and agent.told_to_end:
            agent.runs = 0
            self.tell_state(rank)
        elif name == "drain":
            self.tell_state(rank, leaving=True)
        elif name == "lose":
            link, agent.link, agent.runs = agent.link, None, 0
            self.handle(on.AgentLeft(rank, link))
        elif name == "late" and self.begun:
            self.tell(rank, m.Lost(self.begun - 1, "late", code, **LOST))
        elif name == "foreign":
            self.handle(on.AgentSent(rank, object(), lost))
            self.handle(on.AgentLeft(rank, object()))
        elif name == "fatal" and number > 4:
            self.tell(rank, m.Fatal((0, 256, 1)[number % 3], "it cannot go on"))

    def tell_state(self, rank: int, **more: Any) -> None:
        agent = self.agents[rank]
        plain = {
            "attempt": agent.runs or self.begun, "gone": not agent.runs, "ready": not agent.runs,
            "data": "d", "program": "p", "serving": False, "silent": False, "ended": "",
            "leaving": False,
        }  # fmt: skip
        self.tell(rank, m.Report(**plain | more))

    def tell(self, rank: int, message: m.Message) -> None:
        if self.agents[rank].link is not None:
            self.handle(on.AgentSent(rank, self.agents[rank].link, message))

    def finish(self) -> None:
        """Lets everything go well from now on: the run must end."""
        self.files.missing = None
        for _ in range(60):
            if self.outcome is not None:
                break
            for rank in range(COUNT):
                for what in ("clear", "come", "serve"):
                    self.act(what, rank, 0)
            for rank in range(COUNT):
                if self.pod.way.passes and self.agents[rank].runs:
                    self.act("join", rank, 0)
            for rank in range(COUNT):
                self.act("trained", rank, 0)
            self.tick(1, *range(COUNT))
        assert self.outcome is not None, "the run does not end"
        assert all(attempt.cause is not None for attempt in self.attempts)
        recorded = self.record.outcome
        assert recorded is None or recorded == self.outcome


def play(tmp_path_factory: pytest.TempPathFactory, join: bool, steps: list[Any]) -> None:
    run = Checked(tmp_path_factory.mktemp("run"), join)
    for step in steps:
        run.act(*step)
    run.finish()


@pytest.fixture
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """No machine loses its power here, and a flush takes most of the time."""
    monkeypatch.setattr(durable, "sync", lambda path: None)
    monkeypatch.setattr(durable.Writer, "sync", lambda self: None)


CHECKED = settings(
    deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.slow
@settings(CHECKED, max_examples=60, derandomize=True)
@given(st.booleans(), STEPS)
def test_whatever_happens_a_run_has_one_attempt_at_a_time_and_one_end(
    unsynced, tmp_path_factory, join, steps
):
    play(tmp_path_factory, join, steps)


@pytest.mark.long
@pytest.mark.slow
@settings(CHECKED, max_examples=5000)
@given(st.booleans(), STEPS)
def test_whatever_happens_at_length(unsynced, tmp_path_factory, join, steps):
    play(tmp_path_factory, join, steps)

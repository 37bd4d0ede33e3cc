"""A run without sockets, processes or clocks: the real rendezvous, with its real record of attempts
on disk, and agents whose messages a test makes. What only sockets, processes and the volume do
(order across connections, delays, lost writes) is not seen here.
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from node_pods import GOOD
from paddle_node import environment
from paddle_node.rendezvous import effects as e
from paddle_node.rendezvous import events as on
from paddle_node.rendezvous import messages as m
from paddle_node.rendezvous.attempts import AttemptRecord
from paddle_node.rendezvous.bookkeeper import Bookkeeper
from paddle_node.rendezvous.members import Members
from paddle_node.rendezvous.state import Rendezvous
from paddle_node.runtimes import History, Resumption
from paddle_node.volume.attempts import Outcome, RecordedAttempt

LOST = {"trainer": True, "error": "", "uncaught": False, "stepped": None, "ago": 0.0, "silent": 0.0}


class Files:
    """The program's progress: what it may resume from, newest first, and what an attempt saved."""

    def __init__(self) -> None:
        self.saved: list[str] = []
        self.made = ""
        self.missing: str | None = None

    def begin(self, identity: object, history: History) -> Resumption:
        resumable = [{"newest": name} for name in self.saved]
        chosen = [resume for resume in resumable if resume not in history.unloadable] or resumable
        if not chosen:
            return Resumption()
        return Resumption(chosen[0], f"from {chosen[0]['newest']}")

    def name_progress(self, attempt: int, resumption: Resumption) -> str:
        return self.made

    def find_missing(self, *_: object) -> str | None:
        return self.missing

    def save_time(self) -> float:
        return 0.0

    def publish(self) -> None: ...


class Run:
    """One run. `said` has its lines; `outcome` is what all agents were told."""

    def __init__(
        self, place: Path, count: int = 2, *, trainers_join: bool = False, **settings: str
    ) -> None:
        named = {f"PADDLE_NODE_{name}": value for name, value in settings.items()}
        self.pod = environment.parse(
            GOOD
            | {
                "JOB_PATH": str(place),
                "JOB_COMPLETION_INDEX": "0",
                "CONF_PADDLE_GRADIENT_NUM": str(count),
                "PADDLE_NODE_COMMAND": "" if trainers_join else '["true"]',
            }
            | named
        )
        self.count, self.now = count, 0.0
        self.files = Files()
        self.said: list[str] = []
        self.links = [object() for _ in range(count)]
        self.outcome: Outcome | None = None
        self.crashed: list[int] | None = None
        self.attempt = 0
        self.serve()

    def serve(self) -> None:
        """Starts pod 0's server, as at first and after pod 0 was replaced."""
        self.pod.folder.run_state.mkdir(parents=True, exist_ok=True)
        self.record = AttemptRecord(self.pod.folder, self.pod.run_id)
        self.books = Bookkeeper(self.pod, self.record, self.files, self.said.append)
        members = Members(self.count, self.pod.pod_ip, "m", lambda rank: f"job-{rank}")
        self.rendezvous = Rendezvous(
            self.pod, members, self.books.identity, {}, self.now, self.books.last
        )
        if self.books.exhausted is not None:
            self.handle(on.JobOver(self.books.exhausted))

    def handle(self, event: on.Event) -> None:
        """Handles an event and everything that follows from it."""
        for effect in self.rendezvous.handle(event, self.now):
            match effect:
                case e.Say(text):
                    self.said.append(text)
                case e.Send(m.Finish(code, sentence, crashed)):
                    self.outcome, self.crashed = Outcome(code, sentence), crashed
                case e.Send(m.Start(number)):
                    self.attempt = number
                case e.Send() | e.Close():
                    pass
                case question:
                    self.handle(self.books.answer(question))

    def come(self, *ranks: int) -> None:
        """Lets agents come, with their data read and no process left."""
        for rank in ranks or range(self.count):
            hello = m.Hello(
                rank, self.count, f"i{id(self.links[rank])}", "m", f"job-{rank}.job", "",
                f"10.0.0.{rank + 1}",
            )  # fmt: skip
            self.handle(on.AgentCame(hello, self.links[rank]))
            self.report(rank, attempt=0, gone=True, ready=True)

    def report(self, rank: int, **more: Any) -> None:
        plain = {
            "attempt": self.attempt, "gone": False, "ready": True, "data": "d", "program": "p",
            "serving": False, "silent": False, "ended": "", "leaving": False,
        }  # fmt: skip
        self.tell(rank, m.Report(**plain | more))

    def tell(self, rank: int, message: m.Message) -> None:
        self.handle(on.AgentSent(rank, self.links[rank], message))

    def train(self, *ranks: int) -> None:
        """Lets the pservers of pods listen, and with that the trainers train."""
        for rank in ranks or range(self.count):
            self.report(rank, serving=True)

    def fall(self, rank: int, code: int, what: str = "", **more: Any) -> None:
        """Lets a process end."""
        what = what or f"trainer {rank} ended with {code}"
        self.tell(rank, m.Lost(self.attempt, what, code, **LOST | more))

    def clear(self, *ranks: int) -> None:
        """Lets pods report that no process of the attempt is left."""
        for rank in ranks or range(self.count):
            self.report(rank, gone=True)

    def lose(self, rank: int) -> None:
        self.handle(on.AgentLeft(rank, self.links[rank]))

    def tick(self, seconds: int, *speak: int) -> None:
        """Lets seconds pass in which only the agents `speak` say anything."""
        for _ in range(seconds):
            self.now += 1.0
            for rank in speak:
                self.tell(rank, m.Beat())
            self.handle(on.Ticked(False))

    @property
    def attempts(self) -> Sequence[RecordedAttempt]:
        return AttemptRecord(self.pod.folder, self.pod.run_id)._of_run


def as_recorded(**facts: Any) -> RecordedAttempt:
    """Returns an attempt with these facts, which has ended."""
    assert facts.keys() <= {field.name for field in fields(RecordedAttempt)}
    return replace(RecordedAttempt(1, "run", 0.0, cause="it fell"), **facts)

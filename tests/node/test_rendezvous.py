"""What the rendezvous decides where pods of a test cannot show it: long silence, crossed messages, one fault behind another."""

import sys

import pytest
from paddle_node import environment
from paddle_node.rendezvous import messages as m
from paddle_node.rendezvous import state as r
from paddle_node.rendezvous.attempts import CLUSTER, POD, PROGRAM, Loss, Outcome
from paddle_node.rendezvous.members import Members
from paddle_node.runtimes import Resumption


def report(attempt: int, **changes: object) -> m.Report:
    """Of an agent whose workers train."""
    known = {"ready": False, "data": "d", "program": "p", "serving": True, "silent": False, "ended": "", "leaving": False}
    return m.Report(attempt, **known | changes)


def ready(attempt: int, data: str = "d") -> m.Report:
    """Of an agent that has its data, and no worker of that attempt any more."""
    return report(attempt, ready=True, data=data, serving=False)


class Scene:
    """A run of two pods. `now` is the server's clock; what the rendezvous has its server do is written down."""

    def __init__(self, trainers_join: bool = True) -> None:
        self.now, self.said, self.sent, self.closed, self.asked = 1000.0, [], [], [], []
        self.say, self.close_connection = self.said.append, self.closed.append
        environ = {"JOB_NAME": "job", "JOB_PATH": "/v", "TRAIN_CONFIG_DIR": "p", "CONF_PADDLE_GRADIENT_NUM": "2", "POD_IP": "::1"}
        run = {"JOB_COMPLETION_INDEX": "0", "PADDLE_NODE_RUN_ID": "run", "PADDLE_NODE_SERVICE": "job"}
        node = environment.parse(environ | run | {"PADDLE_NODE_PEER_DEADLINE": "60", "PADDLE_NODE_STALL": "300"})
        self.rendezvous = r.Rendezvous(node, Members(2, "v", "job-{}".format), trainers_join, None, self, self.now)

    def send(self, message: m.Message, *connections: str) -> None:
        self.sent += [(connection, message) for connection in connections]

    def ask(self, what: str, *about: object) -> None:
        self.asked.append((what, about))

    def asks(self, what: str) -> list:
        return [about for asked, about in self.asked if asked == what]

    def heard(self, connection: str, kind: type) -> list:
        return [message for to, message in self.sent if to == connection and isinstance(message, kind)]

    def agent(self, rank: int, incarnation: str = "") -> str:
        connection = sys.intern(f"agent {rank} {incarnation}".strip())
        hello = m.Hello(rank, 2, incarnation or f"i{rank}", "v", f"job-{rank}", "", f"10.0.0.{rank}")
        self.rendezvous.hello(hello, connection, self.now)
        return connection

    def trainer(self, rank: int) -> None:
        self.rendezvous.join(m.Join(rank, self.rendezvous.attempt), sys.intern(f"trainer {rank}"), self.now)

    def tell(self, who: str, *messages: m.Message) -> None:
        kind, rank = who.split()[:2]
        said = self.rendezvous.agent_message if kind == "agent" else self.rendezvous.trainer_message
        for message in messages:
            said(int(rank), sys.intern(who), message, self.now)

    def lose(self, rank: int) -> None:
        self.rendezvous.closed(rank, sys.intern(f"agent {rank}"), self.now)

    def wait(self, seconds: float, progress: bool = False, writes: tuple[str, ...] = ()) -> None:
        """Agents that are here live, and say how long no worker has written."""
        until = self.now + seconds
        while self.now < until:
            self.now += 1
            for member in list(self.rendezvous.members.values()):
                self.tell(member.connection, m.Beat(0.0 if member.connection in writes else 1000.0))
            self.rendezvous.tick(self.now, False, None, progress)

    def begun(self) -> None:
        self.rendezvous.begun(self.rendezvous.attempt + 1, Resumption(), self.now)

    def started(self) -> "Scene":
        for rank in (0, 1):
            self.tell(self.agent(rank), ready(0))
        assert self.asks("begin")
        self.begun()
        for rank in (0, 1):
            self.tell(f"agent {rank}", report(self.rendezvous.attempt))
        assert self.heard("agent 1", m.AllReached)
        return self

    def ended(self) -> Loss:
        """All processes have ended: what is recorded."""
        for rank in list(self.rendezvous.members):
            self.tell(f"agent {rank}", ready(self.rendezvous.attempt))
        ((loss,),) = self.asks("record_end")
        return loss


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_nobody_hears_the_outcome_before_it_is_on_the_volume_and_who_comes_later_hears_it_too(scene):
    scene.started()
    for rank in (0, 1):
        scene.trainer(rank)
        scene.tell(f"agent {rank}", report(1, ended="trained"))
    scene.rendezvous.concluded(1, None, "pass 4", scene.now)
    ((outcome, _),) = scene.asks("record_outcome")
    assert outcome == Outcome(0, "pass 4 is complete: the job is done") and not scene.heard("agent 0", m.Finish)
    scene.rendezvous.outcome_recorded(outcome)
    assert scene.heard("agent 0", m.Finish)[0].code == scene.heard("agent 1", m.Finish)[0].code == 0
    assert scene.heard(scene.agent(1, "new"), m.Finish)


def test_of_two_agents_of_one_rank_the_later_one_is_the_newer_whatever_their_clocks_say(scene):
    old, new = scene.agent(1, "old"), scene.agent(1, "new")
    assert scene.closed == [old]
    # The one that was replaced comes back from behind a partition; the newer one after its connection broke.
    assert scene.heard(scene.agent(1, "old"), m.Refused) == [m.Refused(76, "a newer pod of trainer 1 has taken this one's place")]
    assert len(scene.heard(scene.agent(1, "new"), m.Welcome)) == 2 and scene.rendezvous.members[1].connection == new


def test_the_next_attempt_waits_until_no_process_of_the_last_one_is_left(scene):
    scene.started()
    scene.agent(1, "new")
    assert scene.heard("agent 0", m.End)[0].cause == "the pod of trainer 1 (job-1) restarted"
    scene.tell("agent 1 new", ready(0))
    scene.tell("agent 0", ready(0))  # Of before the attempt: trainer 0's pod still ends its processes.
    assert scene.rendezvous.state is r.State.ENDING and not scene.asks("record_end")
    scene.tell("agent 0", ready(1))
    assert scene.asks("record_end")[0][0].kind == POD
    scene.rendezvous.end_recorded(None, scene.now)
    scene.begun()
    assert [start.attempt for start in scene.heard("agent 1 new", m.Start)] == [2]


def test_a_pod_that_is_lost_costs_no_retry_though_the_others_programs_failed_first(scene):
    scene.started()
    scene.tell("agent 0", m.Lost(1, "trainer 0 ended with 1", 1, True, "RuntimeError: connection reset (train.py:7)"), ready(1))
    scene.lose(1)
    ((loss,),) = scene.asks("record_end")
    cause = "trainer 0 ended with 1: RuntimeError: connection reset (train.py:7), in job-0; the pod of trainer 1 (job-1) was lost"
    assert (loss.kind, loss.failed, loss.cause) == (POD, False, cause)


def test_where_a_process_was_killed_that_the_others_failed_says_nothing_of_the_program(scene):
    scene.started()
    scene.tell("agent 0", m.Lost(1, "trainer 0 ended with 1", 1, True, ""))
    scene.tell("agent 1", m.Lost(1, "trainer 1 ended with 137 (SIGKILL)", 137, False, ""))
    assert (scene.ended().kind, scene.ended().failed) == (PROGRAM, False)


def test_faults_of_the_volume_are_counted_apart_and_the_beginning_is_asked_again(scene):
    for rank in (0, 1):
        scene.tell(scene.agent(rank), ready(0))
    for number in range(1, r.FAULTS + 1):
        assert len(scene.asks("begin")) == number and not scene.asks("record_outcome")
        scene.rendezvous.not_begun("output/run takes no attempt: Stale file handle")
        scene.wait(1)
    assert scene.asks("record_outcome")[0][0].code == 70


def test_who_waits_in_vain_is_found(scene):
    scene.started()
    for rank in (0, 1):
        scene.trainer(rank)
    scene.tell("trainer 0", m.Meeting("step"))
    scene.wait(1)
    first, second = scene.heard("agent 0", m.Status)[-1].trainer, scene.heard("agent 1", m.Status)[-1].trainer
    assert (first["waits_in"], first["waits_for"], second["waits_for"]) == ("meeting step", [1], [])
    scene.tell("trainer 0", m.Meeting(""), m.Gather("barrier a", None))
    scene.tell("trainer 1", m.Gather("barrier b", None))
    assert scene.ended().cause == "the trainers wait for each other: trainers 0 in barrier a; trainers 1 in barrier b"


@pytest.mark.parametrize("first", ["the wait", "the end"])
def test_nobody_waits_for_a_trainer_that_has_ended(scene, first):
    scene.started()
    scene.trainer(0)
    steps = [
        lambda: scene.tell("trainer 0", m.Gather("barrier step", None)),
        lambda: scene.tell("agent 1", report(1, ended="trained")),
    ]
    for step in steps if first == "the wait" else reversed(steps):
        step()
    assert scene.ended().cause == "trainer 1 ended while others wait for it in barrier step"
    assert scene.heard("trainer 0", m.Over)


def test_a_program_of_which_one_rank_ends_early_and_the_others_never_stop_waiting_ends():
    scene = Scene(trainers_join=False).started()
    scene.tell("agent 1", report(1, ended="trained"))
    scene.wait(299, writes=("agent 0",))
    scene.wait(200, progress=True)
    scene.wait(299)
    assert not scene.heard("agent 0", m.End)
    scene.wait(3)
    sentence = "no step, no output and no progress for 301 s (PADDLE_NODE_STALL is 300); trainers 1 ended with 0 before"
    assert (scene.ended().cause, scene.ended().kind) == (sentence, PROGRAM)


def test_a_pserver_that_answers_nothing_is_named_and_then_a_fault_of_the_cluster(scene):
    scene.started()
    for rank in (0, 1):
        scene.trainer(rank)
    scene.tell("trainer 0", m.Gather("barrier pass 0 saved", None))
    scene.tell("agent 0", report(1, silent=True), report(1))
    scene.tell("agent 1", report(1, silent=True))
    scene.wait(32)
    waits = "in barrier pass 0 saved trainers 1 are waited for; the pservers of trainers 1 answer nothing"
    assert scene.said[-1] == f"no trainer has moved for 31 s: {waits}"
    scene.wait(207)
    assert not scene.heard("agent 0", m.End)
    scene.wait(3)
    cause = "pserver 1 of job-1 answered nothing for 241 s (240 are allowed)"
    assert (scene.ended().cause, scene.ended().kind) == (cause, CLUSTER)


def test_pods_that_never_read_the_same_end_the_job(scene):
    """Shards were exchanged under waiting pods: two trainers trained old records, one new ones."""
    for rank, data in ((0, "old"), (1, "new")):
        scene.tell(scene.agent(rank), ready(0, data))
    read = "trainers 1 read data new and program p; trainers 0 read data old and program p"
    assert scene.said[-1] == f"{read}: no attempt begins, they prepare again"
    assert scene.heard("agent 0", m.PrepareAgain) and scene.heard("agent 1", m.PrepareAgain) and not scene.asks("begin")
    scene.wait(61)
    assert scene.asks("record_outcome")[0][0].code == 65


def test_silence_is_loss_unless_the_server_itself_was_away(scene):
    scene.started()
    scene.now += 7
    scene.rendezvous.tick(scene.now, True, None, False)
    assert not scene.heard("agent 0", m.End)
    scene.tell("agent 0", m.Beat())
    scene.rendezvous.tick(scene.now + 1, False, None, False)
    assert scene.heard("agent 0", m.End)[0].cause == "the pod of trainer 1 (job-1) said nothing for 6 s"


def test_a_report_that_crosses_a_word_of_the_servers_or_comes_twice_changes_nothing(scene):
    for rank in (0, 1):
        scene.agent(rank)
    scene.tell("agent 0", ready(0, "old"))
    scene.tell("agent 1", ready(0), ready(0), report(0, serving=False), ready(0))
    scene.tell("agent 0", ready(0, "old"))  # Of before it heard that it should prepare again.
    assert scene.heard("agent 0", m.PrepareAgain) and not scene.asks("begin")
    scene.tell("agent 0", report(0, serving=False), ready(0))
    scene.tell("agent 1", ready(0))
    assert len(scene.asks("begin")) == 1
    scene.begun()
    scene.tell("agent 0", ready(0))  # Of before it heard that.
    scene.tell("agent 0", report(1, leaving=True), report(1, leaving=True))
    assert len(scene.heard("agent 1", m.Stop)) == 1 and scene.rendezvous.state is r.State.STOPPING

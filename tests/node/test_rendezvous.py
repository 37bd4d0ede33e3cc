"""What the rendezvous decides where pods of a test cannot show it: long silence, crossed messages, one fault behind another."""

import sys
from unittest.mock import Mock

import pytest
from paddle_node import environment
from paddle_node.rendezvous import messages as m
from paddle_node.rendezvous.attempts import POD, PROGRAM, Loss
from paddle_node.rendezvous.members import Members
from paddle_node.rendezvous.state import Rendezvous, State
from paddle_node.runtimes import Resumption


def report(attempt: int, ready: bool = False, data: str = "d", ended: m.Ended = "", leaving: bool = False) -> m.Report:
    """Of an agent whose workers train; or, `ready`, that has its data, and no worker of that attempt any more."""
    return m.Report(attempt, ready, data, "p", not ready, False, ended, leaving)


class Scene:
    """A run of two pods. `now` is the clock; its server writes down what it is told to do. Connections are names."""

    def __init__(self, trainers_join: bool = True) -> None:
        self.now, self.server = 1000.0, Mock()
        environ = {"JOB_NAME": "job", "JOB_PATH": "/v", "TRAIN_CONFIG_DIR": "p", "CONF_PADDLE_GRADIENT_NUM": "2", "POD_IP": "::1"}
        run = {"JOB_COMPLETION_INDEX": "0", "PADDLE_NODE_RUN_ID": "run", "PADDLE_NODE_SERVICE": "job"}
        node = environment.parse(environ | run | {"PADDLE_NODE_PEER_DEADLINE": "60", "PADDLE_NODE_STALL": "300"})
        members = Members(2, "v", "job-{}".format)
        self.rendezvous = Rendezvous(node, members, trainers_join, None, self.server, self.now)

    def asked(self, what: str) -> list:
        return [call.args[1:] for call in self.server.ask.call_args_list if call.args[0] == what]

    def heard(self, who: str, kind: type) -> list:
        sent = [call.args for call in self.server.send.call_args_list]
        return [message for message, *connections in sent if who in connections and isinstance(message, kind)]

    def come(self, rank: int, incarnation: str = "") -> str:
        who = sys.intern(f"agent {rank} {incarnation}".strip())
        hello = m.Hello(rank, 2, incarnation, "v", f"job-{rank}", "", f"10.0.0.{rank}")
        self.rendezvous.hello(hello, who, self.now)
        return who

    def tell(self, who: str, *messages: m.Message) -> None:
        kind, rank = who.split()[:2]
        said = self.rendezvous.agent_message if kind == "agent" else self.rendezvous.trainer_message
        for message in messages:
            said(int(rank), sys.intern(who), message, self.now)

    def wait(self, seconds: float, progress: bool = False, quiet: float = 1000.0) -> None:
        """Agents that are here live, and say how long no worker has written."""
        for _ in range(int(seconds)):
            self.now += 1
            for rank in list(self.rendezvous.members):
                self.tell(f"agent {rank}", m.Beat(quiet))
            self.rendezvous.tick(self.now, False, None, progress)

    def started(self) -> "Scene":
        for rank in (0, 1):
            self.tell(self.come(rank), report(0, ready=True))
        self.rendezvous.begun(1, Resumption(), self.now)
        for rank in (0, 1):
            self.tell(f"agent {rank}", report(1))
            self.rendezvous.join(m.Join(rank, 1), sys.intern(f"trainer {rank}"), self.now)
        assert self.heard("agent 1", m.AllReached)
        return self

    def ended(self) -> Loss:
        """All processes have ended: what is recorded."""
        for rank in list(self.rendezvous.members):
            self.tell(f"agent {rank}", report(1, ready=True))
        ((loss,),) = self.asked("record_end")
        return loss


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_of_two_agents_of_one_rank_the_later_one_is_the_newer_whatever_their_clocks_say(scene):
    old, new = scene.come(1, "old"), scene.come(1, "new")
    scene.server.close_connection.assert_called_once_with(old)
    # The one that was replaced comes back from behind a partition; the newer one after its connection broke.
    assert scene.heard(scene.come(1, "old"), m.Refused) == [m.Refused(76, "a newer pod of trainer 1 has taken this one's place")]
    assert len(scene.heard(scene.come(1, "new"), m.Welcome)) == 2 and scene.rendezvous.members[1].connection == new


def test_the_next_attempt_waits_until_no_process_of_the_last_one_is_left(scene):
    scene.started()
    scene.tell(scene.come(1, "new"), report(0, ready=True))
    assert scene.heard("agent 0", m.End)[0].cause == "the pod of trainer 1 (job-1) restarted"
    scene.tell("agent 0", report(0, ready=True))  # Of before the attempt: trainer 0's pod still ends its processes.
    assert scene.rendezvous.state is State.ENDING and not scene.asked("record_end")
    scene.tell("agent 0", report(1, ready=True))
    assert scene.asked("record_end")[0][0].kind == POD
    scene.rendezvous.end_recorded(None, scene.now)
    assert len(scene.asked("begin")) == 2


FAILED = m.Lost(1, "trainer 0 ended with 1", 1, True, "RuntimeError: connection reset (train.py:7)")


def test_a_pod_that_is_lost_costs_no_retry_though_the_others_programs_failed_first(scene):
    scene.started().tell("agent 0", FAILED, report(1, ready=True))
    scene.rendezvous.closed(1, sys.intern("agent 1"), scene.now)
    loss = scene.ended()
    assert (loss.kind, loss.failed) == (POD, False)
    assert loss.cause == f"{FAILED.what}: {FAILED.error}, in job-0; the pod of trainer 1 (job-1) was lost"


def test_where_a_process_was_killed_that_the_others_failed_says_nothing_of_the_program(scene):
    scene.started().tell("agent 0", FAILED)
    scene.tell("agent 1", m.Lost(1, "trainer 1 ended with 137 (SIGKILL)", 137, False, ""))
    loss = scene.ended()
    assert (loss.kind, loss.failed) == (PROGRAM, False)


def test_who_waits_in_vain_is_found(scene):
    scene.started().tell("trainer 0", m.Meeting("step"))
    scene.wait(1)
    first, second = (scene.heard(f"agent {rank}", m.Status)[-1].trainer for rank in (0, 1))
    assert (first["waits_in"], first["waits_for"], second["waits_for"]) == ("meeting step", [1], [])
    scene.tell("trainer 0", m.Meeting(""), m.Gather("barrier a", None))
    scene.tell("trainer 1", m.Gather("barrier b", None))
    assert scene.ended().cause == "the trainers wait for each other: trainers 0 in barrier a; trainers 1 in barrier b"


@pytest.mark.parametrize("first", [0, 1])
def test_nobody_waits_for_a_trainer_that_has_ended(scene, first):
    scene.started()
    steps = [("trainer 0", m.Gather("barrier step", None)), ("agent 1", report(1, ended="trained"))]
    for step in (steps[first], steps[1 - first]):
        scene.tell(*step)
    assert scene.ended().cause == "trainer 1 ended while others wait for it in barrier step"
    assert scene.heard("trainer 0", m.End)


def test_a_program_of_which_one_rank_ends_early_and_the_others_never_stop_waiting_ends():
    scene = Scene(trainers_join=False).started()
    scene.tell("agent 1", report(1, ended="trained"))
    scene.wait(299, quiet=0.0)
    scene.wait(200, progress=True)
    scene.wait(299)
    assert not scene.heard("agent 0", m.End)
    scene.wait(3)
    sentence = "no step, no output and no progress for 301 s (PADDLE_NODE_STALL is 300); trainers 1 ended with 0 before"
    assert (scene.ended().cause, scene.ended().kind) == (sentence, PROGRAM)


def test_pods_that_never_read_the_same_end_the_job(scene):
    for rank, data in ((0, "old"), (1, "new")):
        scene.tell(scene.come(rank), report(0, ready=True, data=data))
    read = "trainers 1 read data new and program p; trainers 0 read data old and program p"
    scene.server.say.assert_called_with(f"{read}: no attempt begins, they prepare again")
    assert scene.heard("agent 0", m.PrepareAgain) and scene.heard("agent 1", m.PrepareAgain)
    scene.tell("agent 0", report(0, ready=True, data="old"))  # Of before it heard that.
    scene.wait(61)
    assert scene.asked("record_outcome")[0][0].code == 65 and not scene.asked("begin")


def test_silence_is_loss_unless_the_server_itself_was_away(scene):
    scene.started()
    scene.now += 7
    scene.rendezvous.tick(scene.now, True, None, False)
    assert not scene.heard("agent 0", m.End)
    scene.tell("agent 0", m.Beat())
    scene.rendezvous.tick(scene.now + 1, False, None, False)
    assert scene.heard("agent 0", m.End)[0].cause == "the pod of trainer 1 (job-1) said nothing for 6 s"

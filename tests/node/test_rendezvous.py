"""What the rendezvous decides, without sockets, volume or clock: who is in, how attempts begin and end, what counts as what."""

import sys

import pytest
from paddle_node import environment
from paddle_node.rendezvous import messages as m
from paddle_node.rendezvous import state as r
from paddle_node.rendezvous.attempts import CLUSTER, POD, PROGRAM, STOPPED, Loss, Outcome
from paddle_node.runtimes import Resumption


def report(attempt: int, **changes: object) -> m.Report:
    """Of an agent whose workers train."""
    known = {"ready": False, "data": "d", "program": "p", "serving": True, "silent": False, "ended": "", "leaving": False}
    return m.Report(attempt, **known | changes)


def ready(attempt: int, data: str = "d") -> m.Report:
    """Of an agent that has its data, and no worker of that attempt any more."""
    return report(attempt, ready=True, data=data, serving=False)


class Scene:
    """A run of two pods. `now` is the server's clock; `done` is what it was told to do since the last look."""

    def __init__(self, trainers_join: bool = True) -> None:
        self.now, self.done = 1000.0, []
        environ = {"JOB_NAME": "job", "JOB_PATH": "/v", "TRAIN_CONFIG_DIR": "p", "CONF_PADDLE_GRADIENT_NUM": "2", "POD_IP": "::1"}
        run = {"JOB_COMPLETION_INDEX": "0", "PADDLE_NODE_RUN_ID": "run", "PADDLE_NODE_SERVICE": "job"}
        times = {"PADDLE_NODE_PEER_DEADLINE": "60", "PADDLE_NODE_STALL": "300"}
        node = environment.parse(environ | run | times)
        self.rendezvous = r.Rendezvous(node, "v", "job-{}".format, trainers_join, None, self.now)

    def agent(self, rank: int, boot: str = "", **changes: object) -> str:
        hello = m.Hello(
            **{"rank": rank, "world_size": 2, "boot": boot or f"b{rank}", "membership": "v", "name": f"job-{rank}"}
            | {"node": "", "address": f"10.0.0.{rank}"}
            | changes
        )
        connection = sys.intern(f"agent {rank} {boot}".strip())
        self.done += self.rendezvous.hello(hello, connection, self.now)
        return connection

    def trainer(self, rank: int) -> None:
        self.done += self.rendezvous.join(m.Join(rank, self.rendezvous.attempt), sys.intern(f"trainer {rank}"), self.now)

    def say(self, who: str, *messages: m.Message) -> None:
        kind, rank = who.split()[:2]
        said = self.rendezvous.agent_said if kind == "agent" else self.rendezvous.trainer_said
        for message in messages:
            self.done += said(int(rank), sys.intern(who), message, self.now)

    def answer(self, how: str, *answer: object) -> None:
        """What the volume answers."""
        self.done += getattr(self.rendezvous, how)(*answer, *([] if how == "outcome_recorded" else [self.now]))

    def asks(self, what: str) -> list:
        """What the volume is asked about."""
        return [each.about for each in self.done if isinstance(each, r.Ask) and each.what == what]

    def wait(
        self, seconds: float, volume_since: float | None = None, progress: bool = False, beats: tuple[str, ...] = ()
    ) -> None:
        """Agents that are here live, and say how long no worker has written."""
        until = self.now + seconds
        while self.now < until:
            self.now += 1
            for member in list(self.rendezvous.members.values()):
                quiet = 0.0 if member.connection in beats else 1000.0
                self.say(member.connection, m.Beat(quiet))
            self.done += self.rendezvous.tick(self.now, False, volume_since, progress)

    def started(self) -> "Scene":
        for rank in (0, 1):
            self.say(self.agent(rank), ready(0))
        assert self.asks("begin")
        self.begun()
        for rank in (0, 1):
            self.say(f"agent {rank}", report(self.rendezvous.attempt))
        assert self.heard("agent 1", m.AllReached)
        return self

    def begun(self, **resume: str) -> None:
        self.answer("begun", self.rendezvous.attempt + 1, Resumption(resume))

    def asked(self, kind: type) -> list:
        return [each for each in self.done if isinstance(each, kind)]

    def heard(self, connection: str, kind: type) -> list:
        return [each.message for each in self.asked(r.Send) if each.connection == connection and isinstance(each.message, kind)]

    def ended(self) -> Loss:
        """All processes have ended: what is recorded."""
        for rank in self.rendezvous.members:
            self.say(f"agent {rank}", ready(self.rendezvous.attempt))
        ((loss,),) = self.asks("record_end")
        return loss


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_job_from_the_first_agent_to_the_outcome(scene):
    scene.started()
    assert m.unpack(scene.heard("agent 0", m.Start)[0].addresses) == ["10.0.0.0", "10.0.0.1"]
    for rank in (0, 1):
        scene.trainer(rank)
        scene.say(f"agent {rank}", report(1, ended="trained"))
    scene.answer("concluded", 1, None, "pass 4")
    ((outcome, _),) = scene.asks("record_outcome")
    assert outcome == Outcome(0, "pass 4 is complete: the job is done")
    assert not scene.heard("agent 0", m.Finish)  # Not before it is on the volume.
    scene.answer("outcome_recorded", outcome)
    assert scene.heard("agent 0", m.Finish)[0].code == scene.heard("agent 1", m.Finish)[0].code == 0
    # Whoever comes later hears it, too.
    assert scene.heard(scene.agent(1, "new"), m.Finish)


@pytest.mark.parametrize(("join", "missing", "cause"), [
    ((0,), None, "trainers 1 ended with 0 and had never joined the others: they have trained nothing"),
    ((0, 1), "pass 4 should be complete", "every trainer ended with 0, but pass 4 should be complete"),
])  # fmt: skip
def test_an_end_with_0_alone_is_no_success(scene, join, missing, cause):
    scene.started()
    for rank in join:
        scene.trainer(rank)
    for rank in (0, 1):
        scene.say(f"agent {rank}", report(1, ended="trained"))
    scene.answer("concluded", 1, missing, "")
    assert (scene.ended().cause, scene.ended().kind) == (cause, PROGRAM)


@pytest.mark.parametrize(("changes", "answer"), [
    ({"membership": "another"}, m.Refused(0, "this pod sees other pods than the pod of trainer 0")),
    ({"rank": 2}, m.Refused(2, "the trainer id is 2: 0 to 1 are this job's")),
    ({"world_size": 3}, m.Refused(2, "CONF_PADDLE_GRADIENT_NUM is 3 here and 2 in the pod of trainer 0: all pods need the same")),
])  # fmt: skip
def test_who_is_not_in(scene, changes, answer):
    connection = scene.agent(**{"rank": 1, **changes})
    assert scene.heard(connection, m.Message) == [answer] and scene.done[-1] == r.Close(connection)
    assert scene.rendezvous.members == {}


def test_of_two_agents_of_one_rank_the_later_one_is_the_newer_whatever_their_clocks_say(scene):
    old = scene.agent(1, "old")
    new = scene.agent(1, "new")
    assert r.Close(old) in scene.done
    # The one that was replaced comes back from behind a partition; the newer one after its connection broke.
    assert scene.heard(scene.agent(1, "old"), m.Refused) == [m.Refused(76, "a newer pod of trainer 1 has taken this one's place")]
    scene.done.clear()
    assert scene.heard(scene.agent(1, "new"), m.Welcome) and scene.rendezvous.members[1].connection == new


def test_the_next_attempt_waits_until_no_process_of_the_last_one_is_left(scene):
    scene.started()
    scene.agent(1, "new")
    assert scene.heard("agent 0", m.End)[0].cause == "the pod of trainer 1 (job-1) restarted"
    scene.say("agent 1 new", ready(0))
    assert scene.rendezvous.state is r.State.ENDING and not scene.asks("record_end")  # Trainer 0's pod still ends its processes.
    scene.say("agent 0", ready(0))  # Of before the attempt.
    assert not scene.asks("record_end")
    scene.say("agent 0", ready(1))
    assert scene.asks("record_end")[0][0].kind == POD
    scene.answer("end_recorded", None)
    scene.begun()
    assert [start.attempt for start in scene.heard("agent 1 new", m.Start)] == [2]


def test_a_pod_that_is_lost_costs_no_retry_though_the_others_programs_failed_first(scene):
    scene.started()
    scene.say("agent 0", m.Lost(1, "trainer 0 ended with 1", 1, True, "RuntimeError: connection reset (train.py:7)"))
    scene.say("agent 0", ready(1))
    scene.done += scene.rendezvous.closed(1, sys.intern("agent 1"), scene.now)
    ((loss,),) = scene.asks("record_end")
    assert (loss.kind, loss.failed) == (POD, False)
    assert loss.cause == (
        "trainer 0 ended with 1: RuntimeError: connection reset (train.py:7), in job-0; the pod of trainer 1 (job-1) was lost"
    )


def test_where_a_process_was_killed_that_the_others_failed_says_nothing_of_the_program(scene):
    scene.started()
    scene.say("agent 0", m.Lost(1, "trainer 0 ended with 1", 1, True, ""))
    scene.say("agent 1", m.Lost(1, "trainer 1 ended with 137 (SIGKILL)", 137, False, ""))
    assert (scene.ended().kind, scene.ended().failed) == (PROGRAM, False)


def test_a_code_that_no_other_attempt_changes_ends_the_job(scene):
    scene.started()
    scene.say("agent 1", m.Lost(1, "trainer 1 ended with 65 (BAD_DATA)", 65, True, ""))
    ((outcome, loss),) = scene.asks("record_outcome")
    assert outcome.code == loss.code == 65 and "which another attempt cannot change" in outcome.sentence


def test_only_the_pod_whose_trainer_crashed_ends_with_its_code(scene):
    scene.started()
    scene.say("agent 1", m.Lost(1, "trainer 1 ended with 7", 7, True, ""))
    assert scene.ended().code == 7
    scene.answer("end_recorded", Outcome(70, "3 attempts ended without progress"))
    scene.answer("outcome_recorded", scene.asks("record_outcome")[0][0])
    assert scene.heard("agent 0", m.Finish)[0].crashed == [1, 7]


def test_faults_of_the_volume_are_counted_apart_and_the_beginning_is_asked_again(scene):
    for rank in (0, 1):
        scene.say(scene.agent(rank), ready(0))
    for number in range(1, r.FAULTS):
        assert len(scene.asks("begin")) == number
        scene.answer("not_begun", "output/run takes no attempt: Stale file handle")
        scene.wait(1)
    assert not scene.asks("record_outcome")
    scene.answer("not_begun", "output/run takes no attempt: Stale file handle")
    assert scene.asks("record_outcome")[0][0].code == 70


def test_sigterm_to_one_pod_lets_all_save_and_counts_as_nothing(scene):
    scene.started()
    scene.say("agent 1", report(1, leaving=True))
    assert scene.heard("agent 0", m.Stop)
    scene.say("agent 1", report(1, ended="stopped"))
    assert not scene.heard("agent 0", m.End)
    scene.say("agent 0", report(1, ended="stopped"))
    assert scene.heard("agent 0", m.End) and scene.ended().kind == STOPPED


def test_trainers_meet_and_who_waits_in_vain_is_found(scene):
    scene.started()
    for rank in (0, 1):
        scene.trainer(rank)
    scene.say("trainer 1", m.Gather("x", "one"))
    scene.say("trainer 0", m.Gather("x", "zero"))
    assert scene.heard("trainer 0", m.Answer) == scene.heard("trainer 1", m.Answer) == [m.Answer(["zero", "one"])]
    scene.say("trainer 0", m.Meeting("step"))
    scene.wait(1)
    first, second = scene.heard("agent 0", m.Status)[-1].trainer, scene.heard("agent 1", m.Status)[-1].trainer
    assert (first["waits_in"], first["waits_for"], second["waits_for"]) == ("meeting step", [1], [])
    scene.say("trainer 0", m.Meeting(""), m.Gather("a", None))
    scene.say("trainer 1", m.Gather("b", None))
    assert scene.ended().cause == "the trainers wait for each other: trainers 0 in barrier a; trainers 1 in barrier b"


@pytest.mark.parametrize("first", ["the wait", "the end"])
def test_nobody_waits_for_a_trainer_that_has_ended(scene, first):
    scene.started()
    scene.trainer(0)
    steps = [lambda: scene.say("trainer 0", m.Gather("step", None)), lambda: scene.say("agent 1", report(1, ended="trained"))]
    for step in steps if first == "the wait" else reversed(steps):
        step()
    assert scene.ended().cause == "trainer 1 ended while others wait for it in barrier step"
    assert scene.heard("trainer 0", m.Over)


def test_a_trainer_of_an_earlier_attempt_is_told_so(scene):
    scene.started()
    scene.done += scene.rendezvous.join(m.Join(0, 7), "late", scene.now)
    assert scene.heard("late", m.Message) == [m.Over("attempt 7 is over")]


def test_a_program_of_which_one_rank_ends_early_and_the_others_wait_for_ever_ends():
    scene = Scene(trainers_join=False).started()
    scene.say("agent 1", report(1, ended="trained"))
    scene.wait(299, beats=("agent 0",))
    scene.wait(200, progress=True)
    scene.wait(299)
    assert not scene.heard("agent 0", m.End)
    scene.wait(3)
    sentence = "no step, no output and no progress for 301 s (PADDLE_NODE_STALL is 300); trainers 1 ended with 0 before"
    assert (scene.ended().cause, scene.ended().kind) == (sentence, PROGRAM)


def test_a_pserver_that_answers_nothing_is_a_fault_of_the_cluster(scene):
    scene.started()
    scene.say("agent 0", report(1, silent=True), report(1))
    scene.say("agent 1", report(1, silent=True))
    scene.wait(239)
    assert not scene.heard("agent 0", m.End)
    scene.wait(3)
    cause = "pserver 1 of job-1 answered nothing for 241 s (240 are allowed)"
    assert (scene.ended().cause, scene.ended().kind) == (cause, CLUSTER)


def test_why_no_trainer_moves_is_said(scene):
    scene.started()
    for rank in (0, 1):
        scene.trainer(rank)
    scene.say("trainer 0", m.Gather("pass 0 saved", None))
    scene.say("agent 1", report(1, silent=True))
    scene.wait(32)
    said = "in barrier pass 0 saved trainers 1 are waited for; the pservers of trainers 1 answer nothing"
    assert scene.asked(r.Say)[-1].text == f"no trainer has moved for 31 s: {said}"


def test_an_attempt_begins_only_when_all_have_read_the_same(scene):
    """Shards were exchanged under waiting pods: two trainers trained old records, one new ones."""
    for rank, data in ((0, "old"), (1, "new")):
        scene.say(scene.agent(rank), ready(0, data))
    said = "trainers 1 read data new and program p; trainers 0 read data old and program p: no attempt begins, they prepare again"
    assert scene.asked(r.Say)[-1].text == said and not scene.asks("begin")
    for rank in (0, 1):
        assert scene.heard(f"agent {rank}", m.PrepareAgain)
        scene.say(f"agent {rank}", ready(0, "new"))
    scene.begun()
    # Who comes later reads what the run began with, and is the only one that prepares again.
    scene.done += scene.rendezvous.closed(1, sys.intern("agent 1"), scene.now)
    scene.say("agent 0", ready(1, "new"))
    scene.answer("end_recorded", None)
    scene.say(scene.agent(1, "later"), ready(0, "newest"))
    assert scene.heard("agent 1 later", m.PrepareAgain) and len(scene.heard("agent 0", m.PrepareAgain)) == 1
    assert scene.asked(r.Say)[-1].text.endswith(
        "the run began with data new and program p: no attempt begins, they prepare again"
    )
    scene.wait(61)
    assert scene.asks("record_outcome")[0][0].code == 65


def test_a_report_that_crosses_a_word_of_the_servers_or_comes_twice_changes_nothing(scene):
    for rank in (0, 1):
        scene.agent(rank)
    scene.say("agent 0", ready(0, "old"))
    scene.say("agent 1", ready(0), ready(0), report(0, serving=False), ready(0))
    assert scene.heard("agent 0", m.PrepareAgain) and not scene.asks("begin")
    scene.say("agent 0", ready(0, "old"))  # Of before it heard that.
    scene.say("agent 1", ready(0))
    assert not scene.asks("begin")
    scene.say("agent 0", report(0, serving=False), ready(0))
    scene.say("agent 1", ready(0))
    assert len(scene.asks("begin")) == 1
    scene.begun()
    scene.say("agent 0", ready(0))  # Of before it heard that.
    scene.say("agent 0", report(1, leaving=True), report(1, leaving=True))
    assert len(scene.heard("agent 1", m.Stop)) == 1 and scene.rendezvous.state is r.State.STOPPING


def test_every_wait_has_a_deadline_and_says_for_whom(scene):
    scene.agent(0)
    scene.wait(61)
    ((outcome, _),) = scene.asks("record_outcome")
    assert outcome.code == 69
    assert outcome.sentence.startswith("1 of 2 pods are missing: job-1; not ready yet: trainers 0 after 61 s")


def test_a_volume_that_hangs_is_left(scene):
    scene.started()
    scene.wait(62, volume_since=scene.now)
    assert scene.asks("record_outcome")[0][0] == Outcome(
        75, "/v/job/output/run has not answered for 61 s: nothing can be recorded there"
    )


def test_silence_is_loss_unless_the_server_itself_was_away(scene):
    scene.started()
    scene.now += 7
    scene.done += scene.rendezvous.tick(scene.now, True, None, False)
    assert not scene.heard("agent 0", m.End)
    scene.say("agent 0", m.Beat())
    scene.done += scene.rendezvous.tick(scene.now + 1, False, None, False)
    assert scene.heard("agent 0", m.End)[0].cause == "the pod of trainer 1 (job-1) said nothing for 6 s"

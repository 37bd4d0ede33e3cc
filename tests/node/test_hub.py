"""The hub's own decisions, spoken to over real connections: who is refused, and waits that can never end."""

import asyncio
import json
import re

import pytest
from paddle_node import environment, protocol
from paddle_node.attempts import Record
from paddle_node.hub import Hub, State
from paddle_node.resumption import Resumption


class Peer:
    """A supervisor or a trainer, as the hub sees one."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    def say(self, **message):
        self.writer.write(protocol.encode(message))

    async def hear(self, kind):
        while True:
            message = await asyncio.wait_for(protocol.receive(self.reader), 60)
            assert message is not None, f"closed before {kind}"
            if kind in message:
                return message


@pytest.fixture
def hub_of_two(tmp_path, worker_address):
    node = environment.parse(
        {
            "JOB_NAME": "job",
            "JOB_PATH": str(tmp_path),
            "TRAIN_CONFIG_DIR": "quick_start",
            "CONF_PADDLE_GRADIENT_NUM": "2",
            "JOB_COMPLETION_INDEX": "0",
            "PADDLE_NODE_RUN_ID": "run",
            "PADDLE_NODE_SERVICE": "job",
            "PADDLE_NODE_PASSES": "1",
            "POD_IP": worker_address,
        }
    )

    class Passes:
        """On the volume, as far as the hub asks."""

        trainers_join = True
        complete = None

        def begin(self, identity, unloadable, first):
            return Resumption()

        def made(self, attempt):
            return self.complete

        def newest(self, identity, passed_over):
            return self.complete

    class Scene:
        passes = Passes()

        async def __aenter__(self):
            self.hub = Hub(node, Record(node.folder, "run"), "v", lambda i: f"job-{i}", self.passes, print, print)
            await self.hub.serve()
            return self

        async def __aexit__(self, *_):
            self.hub.state = State.GATHERING
            await self.hub.close()

        async def connect(self):
            return Peer(*await asyncio.open_connection(node.pod_ip, node.control_port, limit=protocol.LONGEST))

        async def supervisor(self, index, **changes):
            peer = await self.connect()
            hello = {"hello": "supervisor", "run": "run", "index": index, "boot": f"b{index}", "view": "v", "trainers": 2}
            peer.say(**{**hello, "born": 1.0, "name": f"job-{index}", "address": f"10.0.0.{index}", **changes})
            return peer

        async def trainer(self, index, attempt=1):
            peer = await self.connect()
            peer.say(hello="trainer", run="run", index=index, attempt=attempt)
            return peer

        async def started(self):
            both = [await self.supervisor(0), await self.supervisor(1)]
            for peer in both:
                peer.say(ready=0)
            for peer in both:
                message = await peer.hear("start")
                assert protocol.unpack(message["addresses"]) == ["10.0.0.0", "10.0.0.1"]
                peer.say(serving=1, attempt=message["start"])
            for peer in both:
                await peer.hear("train")
            return both

    return Scene()


def test_a_gather_answers_by_trainer_id(hub_of_two):
    async def scene():
        async with hub_of_two as scene:
            supervisors = await scene.started()
            trainers = [await scene.trainer(0), await scene.trainer(1)]
            for trainer in trainers:
                await trainer.hear("answer")
            trainers[1].say(ask="gather", name="x", value="one")
            trainers[0].say(ask="gather", name="x", value="zero")
            for trainer in trainers:
                assert (await trainer.hear("answer"))["values"] == ["zero", "one"]
            assert len(supervisors) == 2

    asyncio.run(scene())


def test_trainers_in_different_barriers_end_the_attempt(hub_of_two):
    async def scene():
        async with hub_of_two as scene:
            supervisors = await scene.started()
            for index, name in ((0, "a"), (1, "b")):
                (await scene.trainer(index)).say(ask="gather", name=name, value=None)
            ended = await supervisors[0].hear("end")
            waits = ("trainers 0 in barrier a", "trainers 1 in barrier b")
            assert ended["cause"].startswith("the trainers wait for each other: ")
            assert all(wait in ended["cause"] for wait in waits)

    asyncio.run(scene())


@pytest.mark.slow
@pytest.mark.parametrize("first", ["the wait", "the end"])
def test_nobody_waits_for_a_trainer_that_has_ended(hub_of_two, first):
    async def scene():
        async with hub_of_two as scene:
            supervisors = await scene.started()
            trainer = await scene.trainer(0)
            if first == "the wait":
                trainer.say(ask="gather", name="step", value=None)
                await trainer.hear("wait")
                supervisors[1].say(trained=1, attempt=1)
            else:
                supervisors[1].say(trained=1, attempt=1)
                await supervisors[1].hear("beat")
                trainer.say(ask="gather", name="step", value=None)
            assert (await supervisors[0].hear("end"))["cause"] == "trainer 1 ended while others wait for it in barrier step"
            assert "ended" in await trainer.hear("ended")

    asyncio.run(scene())


@pytest.mark.slow
def test_who_does_not_come_to_a_meeting_without_the_hub_is_named(hub_of_two):
    async def scene():
        async with hub_of_two as scene:
            supervisors = await scene.started()
            trainers = [await scene.trainer(0), await scene.trainer(1)]
            for trainer in trainers:
                await trainer.hear("answer")

            async def status(index, waits_in):
                async with asyncio.timeout(60):
                    while True:
                        found = (await supervisors[index].hear("beat"))["trainer"]
                        if found and found["waits_in"] == waits_in:  # None: from before it joined.
                            return found

            trainers[0].say(tell="meeting", name="step")
            assert (await status(0, "meeting step"))["waits_for"] == [1]
            assert (await status(1, None))["waits_for"] == []
            trainers[0].say(tell="met")
            await status(0, None)

    asyncio.run(scene())


@pytest.mark.slow
def test_why_no_trainer_moves_is_said(hub_of_two, monkeypatch, capsys):
    async def scene():
        async with hub_of_two as scene:
            supervisors = await scene.started()
            trainers = [await scene.trainer(0), await scene.trainer(1)]
            trainers[0].say(ask="gather", name="pass 0 saved", value=None)
            await trainers[0].hear("wait")
            supervisors[1].say(silent=1, attempt=1)
            said = ""
            async with asyncio.timeout(60):
                while "the pservers of trainers 1 answer nothing" not in said:
                    await asyncio.sleep(0.1)
                    said += capsys.readouterr().out
            assert "no trainer has moved for " in said and "in barrier pass 0 saved trainers 1 are waited for" in said

    monkeypatch.setattr("paddle_node.hub.REMIND", 0.5)
    asyncio.run(scene())


@pytest.mark.slow
def test_a_pserver_that_answers_nothing_ends_the_attempt_unless_it_answers_again_in_time(hub_of_two, monkeypatch):
    async def scene():
        async with hub_of_two as scene:
            supervisors = await scene.started()
            supervisors[0].say(silent=1, attempt=1)
            supervisors[0].say(silent=0, attempt=1)
            supervisors[1].say(silent=1, attempt=1)
            cause = (await supervisors[0].hear("end"))["cause"]
            assert re.fullmatch(r"pserver 1 of job-1 answered nothing for \d s \(1.5 are allowed\)", cause), cause

    monkeypatch.setattr("paddle_node.hub.SILENT_SERVER", 1.5)
    asyncio.run(scene())


def test_a_trainer_of_an_earlier_attempt_is_told_so(hub_of_two):
    async def scene():
        async with hub_of_two as scene:
            supervisors = await scene.started()
            late = await scene.trainer(0, attempt=7)
            assert (await late.hear("ended"))["ended"] == "attempt 7 of run run is over"
            assert len(supervisors) == 2

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("change", "kind", "expected"),
    [
        ({"run": "other"}, "later", {}),  # An old address of this job may be another job's by now.
        ({"trainers": 3}, "refused", {"refused": 2}),
        ({"index": 2}, "refused", {"refused": 2, "sentence": "the trainer id is 2: 0 to 1 are this job's"}),
        ({"view": "another"}, "later", {}),
    ],
)
def test_who_does_not_belong_here_is_refused(hub_of_two, change, kind, expected):
    async def scene():
        async with hub_of_two as scene:
            stranger = await scene.supervisor(**{"index": 1, **change})
            message = await stranger.hear(kind)
            assert message.items() >= expected.items()

    asyncio.run(scene())


def test_a_restarted_pod_ends_the_attempt_and_the_next_one_waits_for_both(hub_of_two):
    async def scene():
        async with hub_of_two as scene:
            first, second = await scene.started()
            again = await scene.supervisor(1, boot="new")
            assert (await first.hear("end"))["cause"] == "the pod of trainer 1 (job-1) restarted"
            await asyncio.sleep(0.1)
            assert scene.hub.state is State.ENDING  # Trainer 0's pod still ends its processes.
            first.say(ready=1)
            async with asyncio.timeout(60):
                # The new pod has none to end, however long it takes to get its data.
                while scene.hub.state is not State.GATHERING:
                    await asyncio.sleep(0.01)
            again.say(ready=0)
            assert (await again.hear("start"))["start"] == 2
            assert second.reader.at_eof() or await second.reader.read() is not None

    asyncio.run(scene())


@pytest.mark.slow
def test_a_pod_that_was_replaced_and_comes_back_is_sent_away(hub_of_two):
    async def scene():
        async with hub_of_two as scene:
            new = await scene.supervisor(1, boot="new", born=100.0)
            old = await scene.supervisor(1, boot="old", born=50.0)
            assert (await old.hear("refused"))["refused"] == 76
            await new.hear("beat")
            # The same pod, after its connection broke, and a still newer one are welcome.
            for boot, born in (("new", 100.0), ("newer", 101.0)):
                await (await scene.supervisor(1, boot=boot, born=born)).hear("beat")

    asyncio.run(scene())


def test_success_needs_the_last_pass_on_the_volume(hub_of_two, tmp_path):
    async def scene():
        async with hub_of_two as scene:
            both = await scene.started()
            scene.passes.complete = 0
            trainers = [await scene.trainer(index) for index in range(2)]
            for peer, trainer in zip(both, trainers, strict=True):
                await trainer.hear("answer")
                peer.say(trained=1, attempt=1)
            assert (await both[1].hear("finish"))["finish"] == 0
            # It was on the volume before anybody heard of it.
            document = json.loads((tmp_path / "job/output/run/attempts.json").read_text())
            assert document["outcomes"]["run"]["code"] == 0

    asyncio.run(scene())


def test_no_success_where_a_trainer_never_joined_though_the_last_pass_is_there(hub_of_two):
    """`train.py` = `sys.exit(0)` in the folder of an earlier run."""

    async def scene():
        async with hub_of_two as scene:
            both = await scene.started()
            scene.passes.complete = 0
            await (await scene.trainer(0)).hear("answer")
            for peer in both:
                peer.say(trained=1, attempt=1)
            ended = await both[1].hear("end")
            assert ended["cause"] == "trainers 1 ended with 0 and had never joined the others: they have trained nothing"

    asyncio.run(scene())


def test_an_attempt_begins_only_when_all_have_read_the_same_data_and_program(hub_of_two, capsys):
    """Shards were exchanged under waiting pods: two trainers trained old records, one new ones."""

    async def scene():
        async with hub_of_two as scene:
            both = [await scene.supervisor(0), await scene.supervisor(1)]
            both[0].say(ready=0, data="old", program="p")
            both[1].say(ready=0, data="new", program="p")
            for peer in both:
                await peer.hear("again")
                peer.say(ready=0, data="new", program="p")
            for peer in both:
                assert (await peer.hear("start"))["start"] == 1
            said = "trainers 1 read data new and program p; trainers 0 read data old and program p: no attempt begins"
            assert said in capsys.readouterr().out
            # Who comes later reads what the run began with, and is the only one that prepares again.
            late = await scene.supervisor(1, boot="later")
            await both[0].hear("end")
            both[0].say(ready=1, data="new", program="p")
            late.say(ready=0, data="newest", program="p")
            await late.hear("again")
            assert "the run began with data new and program p" in capsys.readouterr().out
            late.say(ready=0, data="new", program="p")
            assert (await both[0].hear("start"))["start"] == (await late.hear("start"))["start"] == 2

    asyncio.run(scene())


def test_pods_that_never_read_the_same_end_with_one_sentence(hub_of_two, monkeypatch):
    async def scene():
        async with hub_of_two as scene:
            object.__setattr__(scene.hub._node, "peer_deadline", 0.5)
            both = [await scene.supervisor(0), await scene.supervisor(1)]
            for peer, data in zip(both, ("one", "other"), strict=True):
                peer.say(ready=0, data=data, program="p")
            finish = await both[0].hear("finish")
            assert finish["finish"] == 65
            assert "trainers 0 read data one and program p; trainers 1 read data other and program p, for " in finish["sentence"]

    asyncio.run(scene())


def test_garbage_does_not_disturb(hub_of_two):
    async def scene():
        async with hub_of_two as scene:
            for line in (b"GET / HTTP/1.1\r\n\r\n", b"[]\n", b'{"hello": "nobody"}\n', b"\xff\xfe\n"):
                reader, writer = await asyncio.open_connection(scene.hub._node.pod_ip, scene.hub._node.control_port)
                writer.write(line)
                assert await asyncio.wait_for(reader.read(), 60) == b""
            await scene.started()

    asyncio.run(scene())

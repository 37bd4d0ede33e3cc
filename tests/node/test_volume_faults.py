"""A volume that refuses while an attempt begins: a fault of the cluster, not the pods' end."""

import errno
import os
from unittest.mock import Mock

import pytest
from paddle_node import environment, retry
from paddle_node.rendezvous import messages as m
from paddle_node.rendezvous.attempts import Record
from paddle_node.rendezvous.members import Members
from paddle_node.rendezvous.server import Volume
from paddle_node.rendezvous.state import Rendezvous, State
from paddle_node.runtimes import Resumption


class Refusing:
    """Stands in for a runtime's progress on a volume that refuses so often, with that error; nothing else of it is real."""

    trainers_join = True

    def __init__(self, times: int, number: int) -> None:
        self.times, self.number = times, number

    def begin(self, identity, history):
        self.times -= 1
        if self.times >= 0:
            raise OSError(self.number, os.strerror(self.number))
        return Resumption()


@pytest.mark.parametrize(
    ("times", "number", "found"),
    [
        (2, errno.ESTALE, State.STARTING),
        (99, errno.EIO, State.GATHERING),  # It is asked again.
        (99, errno.ENOSPC, State.FINISHED),
    ],
)
def test_a_fault_that_passes_is_waited_for_and_then_counted(tmp_path, monkeypatch, times, number, found):
    monkeypatch.setattr(retry, "DEADLINE", 0.1)
    monkeypatch.setattr(retry, "PAUSES", (0.01, 0.02))
    environ = {"JOB_NAME": "job", "JOB_PATH": str(tmp_path), "TRAIN_CONFIG_DIR": "p", "CONF_PADDLE_GRADIENT_NUM": "1"}
    node = environment.parse(environ | {"JOB_COMPLETION_INDEX": "0", "PADDLE_NODE_RUN_ID": "run", "POD_IP": "127.0.0.1"})
    volume = Volume(node, Record(node.folder, "run"), Refusing(times, number), print)
    effects = Mock()
    rendezvous = Rendezvous(node, Members(1, "", str), True, None, effects, 0.0)
    rendezvous.hello(m.Hello(0, 1, "incarnation", "", "job-0", "", "10.0.0.1"), "agent", 0.0)
    rendezvous.agent_message(0, "agent", m.Report(0, True, "d", "p", False, False, "", False), 0.0)
    volume.begin(*effects.ask.call_args.args[1:])(rendezvous, 1.0)
    assert rendezvous.state is found
    if found is State.FINISHED:
        assert effects.ask.call_args.args[1].code == 74

"""A volume that refuses while an attempt begins is waited for; then the job fails with a sentence."""

import errno
import os
from unittest.mock import Mock

import pytest
from paddle_node import durable, environment, retry
from paddle_node.rendezvous.attempts import Outcome, Record
from paddle_node.rendezvous.server import Volume
from paddle_node.runtimes import Resumption
from paddle_node.training.passes import Identity


@pytest.mark.parametrize(("times", "number", "code"), [(2, errno.ESTALE, None), (999, errno.EIO, 70), (999, errno.ENOSPC, 74)])
def test_a_fault_that_passes_is_waited_for_and_one_that_stays_ends_the_job(tmp_path, monkeypatch, times, number, code):
    monkeypatch.setattr(retry, "DEADLINE", 0.01)
    monkeypatch.setattr(retry, "PAUSES", (0.01, 0.02))
    environ = {"JOB_NAME": "job", "JOB_PATH": str(tmp_path), "TRAIN_CONFIG_DIR": "p", "CONF_PADDLE_GRADIENT_NUM": "1"}
    node = environment.parse(environ | {"JOB_COMPLETION_INDEX": "0", "PADDLE_NODE_RUN_ID": "run", "POD_IP": "127.0.0.1"})
    progress, rendezvous, said = Mock(), Mock(), []
    progress.begin.side_effect = [OSError(number, os.strerror(number))] * times + [Resumption()]
    Volume(node, Record(node.folder, "run"), progress, said.append).begin(Identity("d", "p"))(rendezvous, 0.0)
    assert rendezvous.begun.called is (code is None) and bool(said) is (number != errno.ENOSPC)
    if number == errno.ESTALE:  # Also where only the record cannot be written for a moment; no number is spent on that.
        record, whole = Record(node.folder, "run"), durable.write
        faults = [OSError(number, os.strerror(number))] * times
        monkeypatch.setattr(durable, "write", lambda *given: (_ for _ in ()).throw(faults.pop()) if faults else whole(*given))
        progress.begin.side_effect, progress.made.return_value = [Resumption()], ""
        Volume(node, record, progress, said.append).begin(Identity("d", "p"))(rendezvous, 0.0)
        assert not faults and rendezvous.begun.call_args.args[0] == 2 and not rendezvous.finish.called
    if code:
        sentence = f"{node.folder.run_state} takes no attempt: {os.strerror(number)}"
        rendezvous.finish.assert_called_once_with(Outcome(code, sentence))

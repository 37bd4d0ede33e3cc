"""When a volume refuses the start of an attempt, the job waits; if the fault stays, the job fails
with one sentence.
"""

import errno
import os
from unittest.mock import Mock

import pytest
from node_pods import GOOD
from paddle_node import environment, retry
from paddle_node.rendezvous.attempts import AttemptRecord
from paddle_node.rendezvous.bookkeeper import Bookkeeper
from paddle_node.rendezvous.effects import Begin
from paddle_node.rendezvous.events import AttemptBegun, JobOver
from paddle_node.runtimes import Resumption
from paddle_node.volume.attempts import Outcome
from paddle_node.volume.passes import Identity


@pytest.mark.parametrize(
    ("times", "number", "code"),
    [(2, errno.ESTALE, None), (999, errno.EIO, 70), (999, errno.ENOSPC, 74)],
)
def test_a_fault_that_passes_is_waited_for_and_one_that_stays_ends_the_job(
    tmp_path, monkeypatch, times, number, code
):
    monkeypatch.setattr(retry, "DEADLINE", 0.01)
    monkeypatch.setattr(retry, "PAUSES", (0.01, 0.02))
    node = environment.parse(GOOD | {"JOB_PATH": str(tmp_path)})
    progress, said = Mock(), []
    progress.begin.side_effect = [OSError(number, os.strerror(number))] * times + [Resumption()]
    books = Bookkeeper(node, AttemptRecord(node.folder, "run"), progress, said.append)
    answer = books.answer(Begin(Identity("d", "p")))
    assert bool(said) is (number != errno.ENOSPC)
    sentence = f"no attempt can begin: {node.folder.run_state}: {os.strerror(number)}"
    expected = JobOver(Outcome(code, sentence)) if code else AttemptBegun(1, Resumption())
    assert answer == expected

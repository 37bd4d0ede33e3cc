"""A container that starts again in its pod, as its agent finds it: through the door that start.sh opens."""

import json
import time

from paddle_node import __main__ as door
from paddle_node import contract
from paddle_node.agent import restarts
from paddle_node.contract import ExitCode


def test_too_many_restarts_within_an_hour_end_the_pod_with_a_sentence(tmp_path):
    environ = {
        "PADDLE_NODE_ROOT": str(tmp_path), "JOB_NAME": "words", "TRAIN_CONFIG_DIR": "program", "CONF_PADDLE_GRADIENT_NUM": "1",
        "JOB_COMPLETION_INDEX": "0", "PADDLE_NODE_RUN_ID": "run", "POD_IP": "127.0.0.1", "PADDLE_NODE_PEER_DEADLINE": "0.1",
    }  # fmt: skip
    home, memory, last_words = (
        contract.path(p, environ) for p in (contract.HOME, contract.SHARED_MEMORY, contract.TERMINATION_LOG)
    )
    home.mkdir(parents=True)
    memory.mkdir(parents=True)
    last_words.touch()
    (memory / "left").write_text("of a killed process")
    (home / "starts.json").write_text(json.dumps([time.monotonic() - 60] * (restarts.MOST + 1)))
    assert door.main(environ, []) == ExitCode.KILLED_AGAIN
    assert "was killed 6 times within an hour" in last_words.read_text()
    assert list(memory.iterdir()) == []


def test_what_the_pods_scratch_cannot_tell_ends_nobody(tmp_path):
    """And the first container of a pod removes nothing."""
    memory = tmp_path / "shm"
    memory.mkdir()
    (memory / "own").touch()
    restarts.begin(tmp_path / "missing", memory)
    restarts.begin(tmp_path, memory)
    assert (memory / "own").exists()
    long_ago = json.dumps([time.monotonic() - 2 * restarts.WITHIN] * 100)
    for damaged in ("", "[", "{}", '["x"]', "[null]", "7", long_ago):
        (tmp_path / "starts.json").write_text(damaged)
        restarts.begin(tmp_path)
        assert len(json.loads((tmp_path / "starts.json").read_text())) == 1

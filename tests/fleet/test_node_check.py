"""The node check's all-reduce with the image's own Paddle: between processes on this machine, and
without a GPU.
"""

import os
import subprocess

import pytest
from training_job import IMAGE, PADDLE

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("arguments", "variables", "code"),
    [(("2", "gloo"), {}, 0), ((), {"PADDLE_NODE_GPUS": "2"}, 71)],
)
def test_an_all_reduce(arguments: tuple[str, ...], variables: dict[str, str], code: int) -> None:
    command, environ = (
        [PADDLE, "-m", "paddle_node.agent.node_check", *arguments],
        os.environ | variables,
    )
    done = subprocess.run(command, cwd=IMAGE, env=environ, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert done.stdout.startswith("an all-reduce over the GPUs failed: ") == (code == 71)

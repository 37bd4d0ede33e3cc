"""The processes of runtimes whose users write `train.py`."""

import os
from collections.abc import Mapping
from pathlib import Path

from paddle_node.contract import Variable
from paddle_node.environment import NodeEnvironment
from paddle_node.runtimes import Process, Role

PROGRAM = "train.py"


def process(node: NodeEnvironment, role: Role, more: Mapping[str, str]) -> Process:
    """Returns the process of the user's program; `more` adds to its environment."""
    return Process(
        role=role,
        argv=(
            node.python,
            "-m",
            "paddle_node.training.program",
            str(node.program / PROGRAM),
            *node.arguments,
        ),
        environ={**environ(node), **more},
        log=node.folder.train_log(node.trainer_id),
        working_directory=node.home,
    )


def environ(node: NodeEnvironment) -> dict[str, str]:
    """Returns the container's own environment plus the variables of every Python process that uses
    Paddle.
    """
    ours = str(Path(__file__).resolve().parents[2])
    theirs = node.environ.get("PYTHONPATH", "")
    return {
        **node.environ,
        "OMP_NUM_THREADS": str(node.threads),
        "PYTHONPATH": f"{ours}:{theirs}" if theirs else ours,
        "PYTHONUNBUFFERED": "1",
        **({Variable.DATA.value: str(node.folder.data)} if node.folder.data else {}),
    }


def standby(node: NodeEnvironment, role: Role, *modules: str) -> Process:
    """Returns a process that imports `modules`, waits for a line on stdin, then runs as
    `process(node)`.
    """
    return Process(
        role=role,
        argv=(node.python, "-m", "paddle_node.agent.standby", *modules),
        environ=environ(node),
        log=Path(os.devnull),
        working_directory=node.home,
    )

"""The processes of runtimes whose users write `train.py`."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from paddle_node.contract import Variable
from paddle_node.environment import PodEnvironment
from paddle_node.runtimes import Process, Role

PROGRAM = "train.py"


def process(pod: PodEnvironment, role: Role, more: Mapping[str, str]) -> Process:
    """Returns the process of the user's program; `more` adds to its environment."""
    return Process(
        role=role,
        argv=(
            pod.python,
            "-m",
            "paddle_node.training.program",
            str(pod.program / PROGRAM),
            *pod.arguments,
        ),
        environ={**environ(pod), **more},
        log=pod.folder.train_log(pod.trainer_id),
        working_directory=pod.home,
    )


def environ(pod: PodEnvironment) -> dict[str, str]:
    """Returns the container's own environment plus the variables of every Python process that uses
    Paddle.
    """
    ours = str(Path(__file__).resolve().parents[2])
    theirs = pod.environ.get("PYTHONPATH", "")
    return {
        **pod.environ,
        "OMP_NUM_THREADS": str(pod.threads),
        "PYTHONPATH": f"{ours}:{theirs}" if theirs else ours,
        "PYTHONUNBUFFERED": "1",
        **({Variable.DATA.value: str(pod.folder.data)} if pod.folder.data else {}),
    }


def standby(pod: PodEnvironment, role: Role, modules: Sequence[str]) -> Process:
    """Returns a process that imports `modules`, while the trainer id may be unknown. Then it reads
    ONE line from its standard input, the JSON object {"argv": [...], "environ": {...}} of the
    `Process` with the same role, and becomes that process.
    """
    return Process(
        role=role,
        argv=(pod.python, "-m", "paddle_node.agent.standby", *modules),
        environ=environ(pod),
        log=Path(os.devnull),
        working_directory=pod.home,
    )

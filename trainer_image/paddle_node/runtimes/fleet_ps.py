"""Parameter-server training with paddlepaddle 2.6.2: in every pod one pserver and one trainer.

Promises: both run the user's `train.py`; Paddle learns the cluster from its environment alone, every endpoint by
the pods' addresses (never by a host name, which several pods of a rehearsal share); no gloo: barriers, the start
order and the end of the pservers are `paddle_node.fleet`'s, by way of the supervisors.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from paddle_node.runtimes import Process

if TYPE_CHECKING:
    from paddle_node.environment import Attempt, NodeEnvironment, Peer

PROGRAM = "train.py"


class FleetPs:
    """See the module."""

    name = "fleet-ps"

    def processes(self, node: NodeEnvironment, peers: Sequence[Peer], attempt: Attempt) -> tuple[Process, ...]:
        """The pserver, and the trainer beside it: the trainer waits for all pservers by itself."""
        del attempt  # The supervisor puts it into each child's environment.
        base = {**node.environ, **_common(node, peers)}
        me = peers[node.trainer_id]
        argv = (sys.executable, "-m", "paddle_node.program", str(node.program / PROGRAM), *node.arguments)
        server = Process(
            role="server",
            argv=argv,
            environ=base | {"TRAINING_ROLE": "PSERVER", "POD_IP": me.address, "PADDLE_PORT": str(node.port)},
            log=node.folder.server_log(node.trainer_id),
            working_directory=node.home,
            ports=(node.port,),
        )
        trainer = Process(
            role="trainer",
            argv=argv,
            environ=base
            | {
                "TRAINING_ROLE": "TRAINER",
                "POD_IP": me.address,
                "PADDLE_PORT": str(_trainer_port(node)),
                "PADDLE_TRAINER_ID": str(me.index),
            },
            log=node.folder.train_log(node.trainer_id),
            working_directory=node.home,
        )
        return (server, trainer)


def _common(node: NodeEnvironment, peers: Sequence[Peer]) -> dict[str, str]:
    return {
        "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(peer.endpoint(node.port) for peer in peers),
        "PADDLE_TRAINER_ENDPOINTS": ",".join(peer.endpoint(_trainer_port(node)) for peer in peers),
        "PADDLE_TRAINERS_NUM": str(len(peers)),
        # Paddle's own wait for the pservers knows no deadline: the supervisors wait instead.
        "FLAGS_LAUNCH_BARRIER": "0",
        "OMP_NUM_THREADS": str(node.threads),
        "PYTHONPATH": _python_path(node),
        "PYTHONUNBUFFERED": "1",
    }


def _trainer_port(node: NodeEnvironment) -> int:
    """Nothing listens there: in 2.6.2 a trainer's endpoint is only its name, and must differ from every pserver's."""
    return node.port + 1


def _python_path(node: NodeEnvironment) -> str:
    """The folder that holds `paddle_node` first: a user's program imports it from wherever the program lies."""
    ours = str(Path(__file__).resolve().parents[2])
    theirs = node.environ.get("PYTHONPATH", "")
    return f"{ours}:{theirs}" if theirs else ours


RUNTIME = FleetPs()

"""Parameter-server training with paddlepaddle 2.6.2: in every pod one pserver and one trainer.

Promises: both run the user's `train.py`; Paddle learns the cluster from its environment alone, every endpoint by
the pods' addresses (never by a host name, which several pods of a rehearsal share); no gloo: barriers, the start
order and the end of the pservers are `paddle_node.fleet`'s, by way of the supervisors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from paddle_node.contract import Variable
from paddle_node.failure import SettingError
from paddle_node.runtimes import Process, python_program

if TYPE_CHECKING:
    from paddle_node.environment import Attempt, NodeEnvironment, Peer


class FleetPs:
    """See the module."""

    name = "fleet-ps"

    def standby(self, node: NodeEnvironment) -> tuple[Process, ...]:
        """Both have Paddle imported when the last pod comes."""
        return (
            python_program.standby(node, "server", ("paddle_node.fleet", "paddle_node.parameter_servers")),
            python_program.standby(
                node, "trainer", ("paddle_node.fleet", "paddle_node.training", "paddle_node.parameter_server_engine")
            ),
        )

    def processes(self, node: NodeEnvironment, peers: Sequence[Peer], attempt: Attempt) -> tuple[Process, ...]:
        """The pserver, and the trainer beside it: the trainer waits for all pservers by itself."""
        del attempt  # The supervisor puts it into each child's environment.
        me = peers[node.trainer_id]
        if ":" in me.address:
            raise SettingError(
                f"{Variable.POD_IP} is {me.address}: pservers of Paddle 2.6.2 know IPv4 addresses only;"
                f" set {Variable.RUNTIME}=collective, or use an IPv4 network"
            )
        base = {
            **python_program.environ(node),
            "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(peer.endpoint(node.port) for peer in peers),
            "PADDLE_TRAINER_ENDPOINTS": ",".join(peer.endpoint(_trainer_port(node)) for peer in peers),
            "PADDLE_TRAINERS_NUM": str(len(peers)),
            "POD_IP": me.address,
            # Paddle's own wait for the pservers knows no deadline: the supervisors wait instead.
            "FLAGS_LAUNCH_BARRIER": "0",
        }
        server = Process(
            role="server",
            argv=python_program.argv(node),
            environ={**base, "TRAINING_ROLE": "PSERVER", "PADDLE_PORT": str(node.port)},
            log=node.folder.server_log(node.trainer_id),
            working_directory=node.home,
            ports=(node.port,),
            health="/health",
        )
        trainer = Process(
            role="trainer",
            argv=python_program.argv(node),
            environ={
                **base,
                "TRAINING_ROLE": "TRAINER",
                "PADDLE_PORT": str(_trainer_port(node)),
                "PADDLE_TRAINER_ID": str(me.index),
            },
            log=node.folder.train_log(node.trainer_id),
            working_directory=node.home,
        )
        return (server, trainer)


def _trainer_port(node: NodeEnvironment) -> int:
    """Nothing listens there: in 2.6.2 a trainer's endpoint is only its name, and must differ from every pserver's."""
    return node.port + 1


RUNTIME = FleetPs()

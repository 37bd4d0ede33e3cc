"""Collective training with Paddle 2.6.2 and 3.x: every pod runs one trainer with the whole model;
gradients are averaged.

Paddle reads the cluster from its environment. Its launcher is not used, because it masks exit
codes.
"""

from collections.abc import Sequence

from paddle_node.environment import Attempt, NodeEnvironment, endpoint
from paddle_node.runtimes import Process, Runtime, backend, launch, python_program
from paddle_node.training.recorded_passes import RecordedPasses


def standby(node: NodeEnvironment) -> tuple[Process, ...]:
    """Returns a standby trainer that imports Paddle before the last pod arrives."""
    return (
        python_program.standby(
            node, "trainer", "paddle_node.training.backends.collective", "paddle_node.training.loop"
        ),
    )


def processes(
    node: NodeEnvironment, addresses: Sequence[str], attempt: Attempt
) -> tuple[Process, ...]:
    """Returns this pod's trainer."""
    cluster = {
        **launch.ranks(node, addresses, 1)[0],
        "POD_IP": addresses[node.trainer_id],
        # Paddle's rendezvous needs its own port in addition to trainer 0's.
        "PADDLE_MASTER": endpoint(addresses[0], node.port + 1),
        **backend(node),
    }
    return (python_program.process(node, "trainer", cluster),)


RUNTIME = Runtime(processes, RecordedPasses, standby=standby)

"""Collective training: in every pod one trainer with the whole model; gradients are averaged. Paddle 2.6.2 and 3.x.

Paddle learns the cluster from its environment, without its launcher, which masks exit codes.
"""

from collections.abc import Sequence

from paddle_node.environment import Attempt, NodeEnvironment, endpoint
from paddle_node.runtimes import Process, Runtime, backend, launch, python_program
from paddle_node.training.resumption import RecordedPasses


def standby(node: NodeEnvironment) -> tuple[Process, ...]:
    """Has Paddle imported when the last pod comes."""
    return (python_program.standby(node, "trainer", "paddle_node.training.backends.collective", "paddle_node.training.loop"),)


def processes(node: NodeEnvironment, addresses: Sequence[str], attempt: Attempt) -> tuple[Process, ...]:
    """The trainer."""
    cluster = {
        **launch.ranks(node, addresses, 1)[0],
        "POD_IP": addresses[node.trainer_id],
        # The rendezvous needs a port of its own beside trainer 0's.
        "PADDLE_MASTER": endpoint(addresses[0], node.port + 1),
        **backend(node),
    }
    return (python_program.process(node, "trainer", cluster),)


RUNTIME = Runtime(processes, RecordedPasses, standby)

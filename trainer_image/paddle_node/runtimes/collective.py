"""Collective training with Paddle 2.6.2 and 3.x: every pod runs one trainer with the whole model;
gradients are averaged.

Paddle reads the cluster from its environment. Its launcher is not used, because it masks exit
codes.
"""

from collections.abc import Sequence

from paddle_node.environment import Attempt, PodEnvironment, endpoint
from paddle_node.runtimes import Process, Runtime, backend, launch, python_program
from paddle_node.runtimes.pass_progress import PassProgress


def processes(
    pod: PodEnvironment, addresses: Sequence[str], attempt: Attempt
) -> tuple[Process, ...]:
    """Returns this pod's trainer."""
    cluster = {
        **launch.ranks(pod, addresses, 1)[0],
        "POD_IP": addresses[pod.trainer_id],
        # Paddle's rendezvous needs its own port in addition to trainer 0's.
        "PADDLE_MASTER": endpoint(addresses[0], pod.port + 1),
        **backend(pod),
    }
    return (python_program.process(pod, "trainer", cluster),)


STANDBY = ("paddle_node.training.backends.collective", "paddle_node.training.loop")
RUNTIME = Runtime(processes, PassProgress, standby={"trainer": STANDBY})

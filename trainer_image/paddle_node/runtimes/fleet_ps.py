"""Parameter-server training with paddlepaddle 2.6.2: every pod runs one pserver and one trainer.

Paddle reads the cluster from its environment. `train.py` runs without gloo: `paddle_node.fleet`
provides the barriers and ends the pservers. A command gets what Paddle's launcher would set, with
gloo; the agents end its pservers after its trainers.
"""

from collections.abc import Sequence
from dataclasses import replace

from paddle_node import command_line
from paddle_node.contract import Variable
from paddle_node.environment import Attempt, PodEnvironment, endpoint
from paddle_node.failure import BadSetting
from paddle_node.runtimes import Process, Role, Runtime, launch, python_program
from paddle_node.runtimes.file_progress import FileProgress
from paddle_node.runtimes.pass_progress import PassProgress


def processes(
    pod: PodEnvironment, addresses: Sequence[str], attempt: Attempt
) -> tuple[Process, ...]:
    """Returns this pod's pserver and its trainer, which waits for all pservers on its own."""
    # Paddle's own wait for the pservers has no deadline: the agents wait instead.
    cluster = {"FLAGS_LAUNCH_BARRIER": "0"}
    server, trainer = (
        python_program.process(pod, role, variables | cluster)
        for role, variables in _roles(pod, addresses).items()
    )
    return _serve(pod, server), trainer


def command_processes(
    pod: PodEnvironment, addresses: Sequence[str], attempt: Attempt
) -> tuple[Process, ...]:
    """Returns the command as pserver and as trainer."""
    program = command_line.read(pod.command.words, servers=True).program
    # Adds what role makers need for gloo; without it, their barriers do nothing. The trainers meet
    # over HTTP in a child of pserver 0, which ends with its attempt. If they met in a folder,
    # Paddle would dial the addresses of an earlier attempt and end with SIGABRT.
    cluster = {
        "RANK": str(pod.trainer_id),
        "WORLD_SIZE": str(len(addresses)),
        "PADDLE_WITH_GLOO": pod.environ.get("PADDLE_WITH_GLOO", "1"),
        "PADDLE_GLOO_RENDEZVOUS": "3",
        "PADDLE_GLOO_HTTP_ENDPOINT": endpoint(addresses[0], pod.port + 2),
    }
    server, trainer = (
        launch.process(pod, program, attempt, variables | cluster, several=False)
        for variables in _roles(pod, addresses).values()
    )
    return _serve(pod, server), trainer


def _roles(pod: PodEnvironment, addresses: Sequence[str]) -> dict[Role, dict[str, str]]:
    """Returns the variables by which Paddle knows the cluster, of this pod's two processes."""
    pod_address = addresses[pod.trainer_id]
    if ":" in pod_address:
        raise BadSetting(
            f"{Variable.POD_IP} is {pod_address}: pservers of Paddle 2.6.2 know IPv4 addresses "
            f"only; set {Variable.RUNTIME}=collective, or use an IPv4 network"
        )
    # Nothing listens at a trainer's endpoint: in 2.6.2 it is only a name, which must differ from
    # every pserver's.
    cluster = {
        "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(
            endpoint(address, pod.port) for address in addresses
        ),
        "PADDLE_TRAINER_ENDPOINTS": ",".join(
            endpoint(address, pod.port + 1) for address in addresses
        ),
        "PADDLE_TRAINERS_NUM": str(len(addresses)),
        "POD_IP": pod_address,
    }
    return {
        "server": {**cluster, "TRAINING_ROLE": "PSERVER", "PADDLE_PORT": str(pod.port)},
        "trainer": {
            **cluster,
            "TRAINING_ROLE": "TRAINER",
            "PADDLE_PORT": str(pod.port + 1),
            "PADDLE_TRAINER_ID": str(pod.trainer_id),
        },
    }


def _serve(pod: PodEnvironment, process: Process) -> Process:
    """Returns the process as the pod's pserver; that of a command ends only when the agents end
    it.
    """
    log = pod.folder.server_log(pod.trainer_id)
    return replace(
        process, role="server", log=log, ports=(pod.port,), health="/health", judged=False
    )


SERVER = ("paddle_node.fleet", "paddle_node.training.backends.parameter_servers")
TRAINER = ("paddle_node.fleet", "paddle_node.training.loop", SERVER[1])
RUNTIME = Runtime(processes, PassProgress, standby={"server": SERVER, "trainer": TRAINER})
COMMAND = Runtime(command_processes, FileProgress)

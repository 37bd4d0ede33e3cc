"""Parameter-server training with paddlepaddle 2.6.2: every pod runs one pserver and one trainer.

Paddle reads the cluster from its environment. `train.py` runs without gloo: `paddle_node.fleet`
provides the barriers and ends the pservers. A command gets what Paddle's launcher would set, with
gloo; the agents end its pservers after its trainers.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from paddle_node import command_line
from paddle_node.contract import Variable
from paddle_node.environment import Attempt, PodEnvironment, endpoint
from paddle_node.failure import BadSetting
from paddle_node.runtimes import Process, Progress, Role, Runtime, launch, python_program
from paddle_node.runtimes.file_progress import FileProgress
from paddle_node.runtimes.pass_progress import PassProgress


def standby(pod: PodEnvironment) -> tuple[Process, ...]:
    """Returns standbys that import Paddle before the last pod arrives; none for a command, of which
    nothing is known.
    """
    if pod.command.words:
        return ()
    servers = "paddle_node.training.backends.parameter_servers"
    return (
        python_program.standby(pod, "server", "paddle_node.fleet", servers),
        python_program.standby(
            pod, "trainer", "paddle_node.fleet", "paddle_node.training.loop", servers
        ),
    )


def processes(
    pod: PodEnvironment, addresses: Sequence[str], attempt: Attempt
) -> tuple[Process, ...]:
    """Returns this pod's pserver and its trainer, which waits for all pservers on its own."""
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
    roles: dict[Role, dict[str, str]] = {
        "server": {"TRAINING_ROLE": "PSERVER", "PADDLE_PORT": str(pod.port)},
        "trainer": {
            "TRAINING_ROLE": "TRAINER",
            "PADDLE_PORT": str(pod.port + 1),
            "PADDLE_TRAINER_ID": str(pod.trainer_id),
        },
    }
    if pod.command.words:
        program = command_line.read(pod.command.words, servers=True).program
        # Adds what role makers need for gloo; without it, their barriers do nothing. The trainers
        # meet over HTTP in a child of pserver 0, which ends with its attempt. If they met in a
        # folder, Paddle would dial the addresses of an earlier attempt and end with SIGABRT.
        cluster |= {
            "RANK": str(pod.trainer_id),
            "WORLD_SIZE": str(len(addresses)),
            "PADDLE_WITH_GLOO": pod.environ.get("PADDLE_WITH_GLOO", "1"),
            "PADDLE_GLOO_RENDEZVOUS": "3",
            "PADDLE_GLOO_HTTP_ENDPOINT": endpoint(addresses[0], pod.port + 2),
        }
        server, trainer = (
            launch.process(pod, program, attempt, cluster | role, several=False)
            for role in roles.values()
        )
    else:
        # Paddle's own wait for the pservers has no deadline: the agents wait instead.
        server, trainer = (
            python_program.process(pod, kind, cluster | role | {"FLAGS_LAUNCH_BARRIER": "0"})
            for kind, role in roles.items()
        )
    log = pod.folder.server_log(pod.trainer_id)
    # A pserver of a command ends only when the agents end it.
    server = replace(
        server, role="server", log=log, ports=(pod.port,), health="/health", judged=False
    )
    return (server, trainer)


def progress(pod: PodEnvironment, say: Callable[[str], None]) -> Progress:
    """Returns the progress: passes on the volume or, for a command, the files that the job's
    settings name.
    """
    return FileProgress(pod, say) if pod.command.words else PassProgress(pod, say)


RUNTIME = Runtime(processes, progress, standby=standby)

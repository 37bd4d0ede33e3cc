"""Runs the 2016-17 `paddle pserver` and `paddle train` from an image that the user provides.

The command lines are those of the PaddlePaddle on AWS tutorials, always with `--local=0`: without
it, every trainer trains alone and reports success. The user's arguments come last, so that they
take precedence. 0.x writes the passes and `done` itself.
"""

from collections.abc import Sequence

from paddle_node.environment import Attempt, NodeEnvironment
from paddle_node.runtimes import Process, Runtime
from paddle_node.training.resumption import OldPasses

CONFIG = "trainer_config.lr.py"
COMMENT = "paddle_process_by_paddle"


def processes(
    node: NodeEnvironment, addresses: Sequence[str], attempt: Attempt
) -> tuple[Process, ...]:
    """Returns `paddle pserver`, and `paddle train`, which starts as soon as all pservers listen."""
    network = (f"--nics={node.nic}", f"--port={node.port}", f"--ports_num={node.ports_num}")
    cluster = (
        f"--ports_num_for_sparse={node.ports_num_sparse}",
        f"--num_gradient_servers={node.trainers}",
    )
    server = Process(
        role="server",
        argv=("paddle", "pserver", *network, *cluster, f"--comment={COMMENT}"),
        environ=node.environ,
        log=node.folder.server_log(node.trainer_id),
        working_directory=node.program,
        ports=tuple(node.ports),
    )
    resume = (f"--start_pass={int(attempt.resume['pass']) + 1}",) if attempt.resume else ()
    trainer = Process(
        role="trainer",
        argv=(
            "paddle",
            "train",
            *network,
            f"--comment={COMMENT}",
            f"--pservers={','.join(addresses)}",
            *cluster,
            f"--config=./{CONFIG}",
            f"--trainer_count={node.threads}",
            f"--num_passes={node.passes}",
            "--use_gpu=0",
            "--log_period=50",
            "--dot_period=10",
            "--saving_period=1",
            "--local=0",
            f"--trainer_id={node.trainer_id}",
            f"--save_dir={node.folder.output}",
            *resume,
            *node.arguments,
        ),
        environ=node.environ,
        log=node.folder.train_log(node.trainer_id),
        working_directory=node.program,
        waits_for_servers=True,
    )
    return (server, trainer)


RUNTIME = Runtime(processes, OldPasses)

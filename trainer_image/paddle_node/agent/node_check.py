"""Checks this pod's node: its GPUs and adapters are present, and an all-reduce over the GPUs gives
the right sum.

The agent runs `python -m paddle_node.agent.node_check` before each attempt of a job with GPUs or
adapters. With a number of processes and a backend as arguments, the command runs the all-reduce
itself.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import time
from typing import NoReturn

from paddle_node import contract
from paddle_node.contract import ExitCode
from paddle_node.environment import PodEnvironment, Reader, UserCommand, read_settings
from paddle_node.runtimes import Process, python_program

ADAPTERS = "/dev/infiniband"
CHECK_SECONDS = 300.0
"""Seconds for the all-reduce, Paddle's start included; also for nvidia-smi."""
NUMBERS = 1 << 20


def process(pod: PodEnvironment) -> Process:
    """Returns the process that the agent starts for the check."""
    words = (sys.executable, "-m", "paddle_node.agent.node_check")
    return Process("check", words, python_program.environ(pod), contract.path(os.devnull), pod.home)


def main() -> None:
    """Prints what passed, or prints what failed and exits with NODE_UNFIT."""
    settings, began = UserCommand(**read_settings(UserCommand, Reader())), time.monotonic()
    adapters = len(list(contract.path(ADAPTERS).glob("uverbs*")))
    well = [f"{adapters} EFA adapters"] if adapters else []
    if adapters < settings.efa:
        refuse_node(f"{adapters} of {settings.efa} EFA adapters are there")
    if settings.gpus and shutil.which("nvidia-smi"):
        seen = sum(line.startswith("GPU ") for line in run("nvidia-smi", "-L").splitlines())
        if seen < settings.gpus:
            refuse_node(f"{seen} of {settings.gpus} GPUs are visible")
        well.append(f"{seen} GPUs")
    # A command's program may need no Paddle.
    if settings.gpus and importlib.util.find_spec("paddle"):
        run(sys.executable, "-m", "paddle_node.agent.node_check", str(settings.gpus), "nccl")
        well.append(f"an all-reduce over {settings.gpus} GPUs")
    print(f"{', '.join(well) or 'nothing to check is here'}: {time.monotonic() - began:.1f} s")


def run(*command: str) -> str:
    """Returns the command's standard output. Ends the check if the command fails or times out."""
    what = "an all-reduce over the GPUs" if command[0] == sys.executable else command[0]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=CHECK_SECONDS)
    except subprocess.TimeoutExpired:
        refuse_node(f"{what} did not end within {CHECK_SECONDS:.0f} s")
    if done.returncode:
        output = done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}"
        refuse_node(f"{what} failed: {output.splitlines()[-1]}")
    return done.stdout


def refuse_node(why: str) -> NoReturn:
    """Prints why the node is unfit and ends the check."""
    print(why, flush=True)
    sys.exit(ExitCode.NODE_UNFIT)


def all_reduce() -> None:
    """Runs one rank's part. The sum is exact in float32."""
    import paddle
    import paddle.distributed as dist

    dist.init_parallel_env()
    ranks = dist.get_world_size()
    numbers = paddle.full([NUMBERS], dist.get_rank() + 1, "float32")
    dist.all_reduce(numbers)
    if not bool((numbers == ranks * (ranks + 1) / 2).all()):
        sys.exit(f"rank {dist.get_rank()} of {ranks} got a wrong sum")


if __name__ == "__main__":
    if sys.argv[1:]:
        from paddle.distributed import spawn

        spawn(all_reduce, nprocs=int(sys.argv[1]), backend=sys.argv[2])
    else:
        main()

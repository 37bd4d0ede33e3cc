"""Runs any program: the command that a user types on one machine, unchanged, on N pods.

This runtime replaces Paddle's launcher or torchrun in the command, so that the agent starts each
rank as its own process. A script that starts a launcher itself, as paddleformers-cli does, runs
once per pod, with an environment that overrides the flags of Paddle's launcher.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from paddle_node import command_line, contract
from paddle_node.contract import EXIT_CODE, MASTER_PORTS, Variable
from paddle_node.environment import Attempt, PodEnvironment, endpoint
from paddle_node.failure import BadSetting
from paddle_node.runtimes import HOOK, Process, Runtime, backend
from paddle_node.runtimes.attempt_output import OUTPUT
from paddle_node.runtimes.file_progress import FileProgress

DEVICES = "CUDA_VISIBLE_DEVICES"


def processes(
    pod: PodEnvironment, addresses: Sequence[str], attempt: Attempt
) -> tuple[Process, ...]:
    """Returns one process per rank of this pod, or a single one for a script that starts the ranks
    itself.
    """
    # A recipe says the whole line that resumes.
    again = attempt.resumed.get("newest") and pod.command.resume_line
    line = command_line.read(again or pod.command.words)
    cluster = _cluster(pod, addresses, attempt, line.starts_ranks)
    ranks_here = ranks(pod, addresses, pod.command.processes)
    if line.starts_ranks and pod.command.processes > 1:
        # A script that starts the pod's ranks with Paddle's launcher or torchrun treats the pod as
        # the rank.
        ranks_here = [{"RANK": str(pod.trainer_id), "WORLD_SIZE": str(pod.trainers)}]
    if line.launcher is command_line.PADDLEFORMERS and not pod.environ.get(DEVICES):
        # It hands the list to Paddle's launcher as `--gpus`, which refuses an empty one, on CPUs,
        # too.
        cluster[DEVICES] = ",".join(map(str, range(pod.command.gpus or pod.command.processes)))
    elif line.launcher is command_line.TORCH:
        ranks_here = [rank | _torch(pod, attempt, rank) for rank in ranks_here]
    program, beside = line.program, str(PurePosixPath(line.folder, "python"))
    if not os.path.isfile(pod.program / beside):  # noqa: PTH113 (it may lie out of reach)
        program = tuple("python" if word == beside else word for word in program)
    several = len(ranks_here) > 1
    return tuple(
        process(pod, program, attempt, {**cluster, **rank}, several) for rank in ranks_here
    )


def process(
    pod: PodEnvironment,
    program: Sequence[str],
    attempt: Attempt,
    more: Mapping[str, str],
    several: bool,
) -> Process:
    """Returns a process of the user's program; `more` adds to the container's environment, and
    holds at least RANK.
    """
    here = contract.path(contract.ATTEMPT, pod.environ)
    values = {
        "data": str(pod.folder.data or pod.folder.shard(pod.trainer_id)),
        "output": str(here / OUTPUT),
        "rank": more["RANK"],
        "trainers": str(pod.trainers),
        "shard": str(pod.trainer_id),
        **{name: str(path) for name, path in pod.folder.inputs.items()},
    }
    newest = attempt.resumed.get("newest")
    resumed_from = str(here / newest) if newest else None
    # Of one pod there cannot be two worlds, however many ranks a script starts in it.
    together = pod.trainers > 1 and not pod.command.apart
    world = pod.trainers * pod.command.processes if together else 0
    ours = str(Path(__file__).resolve().parents[2])
    on_volume = pod.folder.attempt(pod.run_id, attempt.number)
    handed_on = {
        "OMP_NUM_THREADS": str(pod.threads),
        "PYTHONUNBUFFERED": "1",
        # Paddle 2.6.2 ships its own zlib: if that is loaded first, Python's gzip fails, and scipy
        # with it.
        "LD_PRELOAD": "libz.so.1",
        **pod.environ,
        Variable.DATA.value: values["data"],
        Variable.WORLD.value: str(world),
        Variable.STEPS.value: str(pod.folder.steps(pod.trainer_id, int(more["RANK"]))),
        # After the program's own path, for `paddle_node.report`.
        "PYTHONPATH": ":".join(filter(None, (HOOK, pod.environ.get("PYTHONPATH"), ours))),
        **more,
    }
    try:
        words = [command_line.fill(word, values, resumed_from) for word in program]
        words += pod.arguments
        if resumed_from:
            words += [command_line.fill(word, values, resumed_from) for word in pod.command.resume]
        handed_on |= {
            name: command_line.fill(handed_on.get(name, ""), values)
            for name in pod.command.templates.split(",")
            if name
        }
    except ValueError as error:
        raise BadSetting(f"{Variable.COMMAND} has {error}") from None
    _look_for(words[0], pod, handed_on.get("PATH"))
    log = pod.folder.node(pod.trainer_id) / f"rank-{more['RANK']}.log"
    return Process(
        role="trainer",
        argv=tuple(words),
        environ=handed_on,
        log=log if several else pod.folder.train_log(pod.trainer_id),
        working_directory=pod.program,
        link=(here, pod.scratch(attempt.number) if attempt.local else on_volume),
        world=world,
        judged=pod.command.success != EXIT_CODE,
    )


def ranks(pod: PodEnvironment, addresses: Sequence[str], count: int) -> list[dict[str, str]]:
    """Returns the variables that Paddle's launcher and torchrun set for each of this pod's `count`
    ranks.
    """
    endpoints = [
        endpoint(address, pod.port + local) for address in addresses for local in range(count)
    ]
    first = pod.trainer_id * count
    # As with the launcher, a single process gets all of the pod's GPUs; each of several processes
    # gets one.
    devices = (
        [",".join(map(str, range(pod.command.gpus)))]
        if count == 1
        else [str(local) for local in range(count)]
    )
    return [
        {
            "PADDLE_TRAINER_ID": str(rank),
            "PADDLE_TRAINERS_NUM": str(len(endpoints)),
            "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints),
            "PADDLE_CURRENT_ENDPOINT": endpoints[rank],
            "PADDLE_GLOBAL_RANK": str(rank),
            "PADDLE_GLOBAL_SIZE": str(len(endpoints)),
            "PADDLE_LOCAL_RANK": str(local),
            "PADDLE_LOCAL_SIZE": str(count),
            "PADDLE_RANK_IN_NODE": str(local),
            "TRAINING_ROLE": "TRAINER",
            "RANK": str(rank),
            "WORLD_SIZE": str(len(endpoints)),
            "LOCAL_RANK": str(local),
            "LOCAL_WORLD_SIZE": str(count),
            **({"FLAGS_selected_gpus": devices[local]} if pod.command.gpus else {}),
        }
        for local, rank in enumerate(range(first, first + count))
    ]


def _flags_of_launchers(pod: PodEnvironment, address: str, port: str) -> dict[str, str]:
    """Returns the variables that are flags of Paddle's launcher and of torchrun in a script. Flags
    that the script itself gives to torchrun take precedence.
    """
    return {
        "PADDLE_NPROC_PER_NODE": str(pod.command.processes),
        "PET_NPROC_PER_NODE": str(pod.command.processes),
        "PET_NNODES": str(pod.trainers),
        "PET_NODE_RANK": str(pod.trainer_id),
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": port,
    }


def _torch(pod: PodEnvironment, attempt: Attempt, rank: Mapping[str, str]) -> dict[str, str]:
    """Returns what torchrun adds for a rank of its one role."""
    return {
        "GROUP_RANK": str(pod.trainer_id),
        "GROUP_WORLD_SIZE": str(pod.trainers),
        "ROLE_NAME": "default",
        "ROLE_RANK": rank["RANK"],
        "ROLE_WORLD_SIZE": rank["WORLD_SIZE"],
        "TORCHELASTIC_RUN_ID": f"{pod.run_id}-{attempt.number}",
        "TORCHELASTIC_RESTART_COUNT": str(attempt.number - 1),
    }


def _cluster(
    pod: PodEnvironment, addresses: Sequence[str], attempt: Attempt, script: bool
) -> dict[str, str]:
    """Returns the variables of all ranks of a pod; they override the launcher's flags."""
    master = pod.port + MASTER_PORTS
    # The launcher serves its peers if the master's address is its own, which it derives from the
    # host name only.
    launcher = script and pod.trainer_id == 0 and pod.trainers > 1
    return {
        **backend(pod),
        "POD_IP": addresses[pod.trainer_id],
        "PADDLE_MASTER": f"127.0.0.1:{master}" if launcher else endpoint(addresses[0], master),
        "PADDLE_NNODES": str(pod.trainers),
        "PADDLE_RANK": str(pod.trainer_id),
        # Keeps out messages from an earlier attempt's launcher.
        "PADDLE_JOB_ID": f"{pod.run_id}-{attempt.number}",
        **(_flags_of_launchers(pod, addresses[0], str(master + 1)) if script else {}),
        "PADDLE_LOG_DIR": str(pod.folder.node(pod.trainer_id) / "launcher"),
        "NNODES": str(pod.trainers),
        "NODE_RANK": str(pod.trainer_id),
        "MASTER_ADDR": addresses[0],
        "MASTER_PORT": str(master + 1),
    }


def _look_for(program: str, pod: PodEnvironment, path: str | None) -> None:
    program_path = pod.program / program if "/" in program else shutil.which(program, path=path)
    try:
        there = program_path is not None and Path(program_path).is_file()
    except PermissionError:
        raise BadSetting(
            f"{Variable.COMMAND} begins with {program!r}, which user {os.geteuid()}, as whom the "
            "pods run, may not reach: let the image have it in a folder that everybody may read"
        ) from None
    if not there:
        raise BadSetting(
            f"{Variable.COMMAND} begins with {program!r}: the image and {pod.program} have no "
            "such program"
        )


RUNTIME = Runtime(processes, FileProgress)

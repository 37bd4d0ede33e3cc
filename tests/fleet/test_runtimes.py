import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from paddle_node import environment, runtimes
from paddle_node.environment import Attempt, NodeEnvironment
from paddle_node.failure import SettingError
from paddle_node.runtimes import Process

FIRST = Attempt(1)
ADDRESSES = [f"192.168.129.{66 + i}" for i in range(3)]


def node(*arguments: str, **more: str) -> NodeEnvironment:
    environ = {
        "JOB_NAME": "paddle-cluster-job",
        "TRAIN_CONFIG_DIR": "recommendation",
        "CONF_PADDLE_GRADIENT_NUM": "3",
        "TRAINER_COUNT": "4",
        "JOB_COMPLETION_INDEX": "1",
        "PADDLE_NODE_RUN_ID": "run",
        "PADDLE_NODE_SERVICE": "job",
        "POD_IP": ADDRESSES[1],
        "PYTHONPATH": "/theirs",
    }
    return environment.parse(environ | more, arguments)


def test_the_allowed_names():
    with pytest.raises(
        SettingError, match=r"PADDLE_NODE_RUNTIME is 'sync': allowed are collective, fleet-ps, launch, paddle-0.x"
    ):
        runtimes.by_name("sync")
    assert all(runtimes.by_name(name).name == name for name in ("collective", "fleet-ps", "launch", "paddle-0.x"))


def test_paddle_0x_gets_the_tutorials_command_lines_and_the_users_arguments_untouched():
    arguments = ("--config_args=a=1,b=two words", "--show_parameter_stats_period", "$(id); 'quoted'")
    server, trainer = runtimes.by_name("paddle-0.x").processes(node(*arguments), ADDRESSES, Attempt(1))
    assert " ".join(server.argv) == (
        "paddle pserver --nics=eth0 --port=7164 --ports_num=2 --ports_num_for_sparse=2 --num_gradient_servers=3"
        " --comment=paddle_process_by_paddle"
    )
    own = len(trainer.argv) - len(arguments)
    assert trainer.argv[own:] == arguments
    assert " ".join(trainer.argv[:own]) == (
        "paddle train --nics=eth0 --port=7164 --ports_num=2 --comment=paddle_process_by_paddle"
        " --pservers=192.168.129.66,192.168.129.67,192.168.129.68 --ports_num_for_sparse=2 --num_gradient_servers=3"
        " --config=./trainer_config.lr.py --trainer_count=4 --num_passes=10 --use_gpu=0 --log_period=50 --dot_period=10"
        " --saving_period=1 --local=0 --trainer_id=1 --save_dir=/home/jobpath/paddle-cluster-job/output"
    )
    assert server.ports == (7164, 7165, 7166, 7167) and trainer.waits_for_servers
    assert trainer.working_directory == Path("/home/jobpath/paddle-cluster-job/recommendation")


def test_fleet_ps_refuses_an_address_that_its_pservers_cannot_use():
    with pytest.raises(SettingError, match=r"POD_IP is fd00::2: pservers of Paddle .* know IPv4 addresses only"):
        runtimes.by_name("fleet-ps").processes(node(), [f"fd00::{i + 1}" for i in range(3)], Attempt(1))


def launched(command: str, *arguments: str, attempt: Attempt = FIRST, peers: int = 2, **more: str) -> list[Process]:
    environ = {
        "PADDLE_NODE_COMMAND": json.dumps(command.split()),
        "CONF_PADDLE_GRADIENT_NUM": str(peers),
        "PATH": os.environ["PATH"],
    }
    told = replace(node(*arguments, **environ, **more), program=Path("/program"))
    return list(runtimes.by_name("launch").processes(told, ADDRESSES[:peers], attempt))


def test_launch_on_two_pods_of_eight_gpus_starts_a_rank_a_gpu_and_names_no_gloo():
    ranks = launched(
        "python3 -m paddle.distributed.launch --gpus 0,1 train.py -o out={output}",
        attempt=Attempt(3, {"newest": "output/7.pdparams"}),
        PADDLE_NODE_PROCESSES="8",
        PADDLE_NODE_GPUS="8",
        PADDLE_NODE_RESUME='["--resume", "{newest_stem:output/*.pdparams}"]',
        PADDLE_NODE_TEMPLATES="WHO",
        WHO="{rank} of {trainers} pods, {{shard}} {shard}",
    )
    output = "/home/jobpath/paddle-cluster-job/output"
    endpoints = [f"192.168.129.{66 + pod}:{7164 + local}" for pod in range(2) for local in range(8)]
    for local, rank in enumerate(ranks):
        assert rank.argv == ("python3", "-u", "train.py", "-o", f"out={output}", "--resume", f"{output}/7")
        told = {
            name: value
            for name, value in rank.environ.items()
            if re.match("PADDLE_(?!NODE_)|FLAGS|[A-Z_]*(RANK|SIZE|MASTER)|WHO", name)
        }
        assert told == {
            "FLAGS_selected_gpus": str(local),
            "LOCAL_RANK": str(local),
            "LOCAL_WORLD_SIZE": "8",
            "MASTER_ADDR": "192.168.129.66",
            "MASTER_PORT": "7181",
            "NODE_RANK": "1",
            "PADDLE_CURRENT_ENDPOINT": endpoints[8 + local],
            "PADDLE_GLOBAL_RANK": str(8 + local),
            "PADDLE_GLOBAL_SIZE": "16",
            "PADDLE_JOB_ID": "run-3",
            "PADDLE_LOCAL_RANK": str(local),
            "PADDLE_LOCAL_SIZE": "8",
            "PADDLE_LOG_DIR": f"{output}/node_1/launcher",
            "PADDLE_MASTER": "192.168.129.66:7180",
            "PADDLE_NNODES": "2",
            "PADDLE_RANK": "1",
            "PADDLE_RANK_IN_NODE": str(local),
            "PADDLE_TRAINERS_NUM": "16",
            "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints),
            "PADDLE_TRAINER_ID": str(8 + local),
            "RANK": str(8 + local),
            "WHO": f"{8 + local} of 2 pods, {{shard}} 1",
            "WORLD_SIZE": "16",
        }  # fmt: skip
    assert {str(rank.log) for rank in ranks} == {f"{output}/node_1/rank-{rank}.log" for rank in range(8, 16)}


def test_launch_starts_a_plain_program_and_leaves_a_script_its_own_ranks():
    (alone,) = launched("python3 train.py --mine", "--more")
    assert alone.argv == ("python3", "train.py", "--mine", "--more") and alone.working_directory == Path("/program")
    assert (alone.environ["RANK"], alone.environ["WORLD_SIZE"], alone.environ["PADDLE_DISTRI_BACKEND"]) == ("1", "2", "gloo")
    (script,) = launched("sh run.sh", PADDLE_NODE_PROCESSES="4", PADDLE_NODE_GPUS="4")
    told = {name: script.environ.get(name) for name in ("PADDLE_NPROC_PER_NODE", "PADDLE_NNODES", "RANK", "WORLD_SIZE", "NNODES")}
    assert list(told.values()) == ["4", "2", "1", "2", "2"]
    assert not {"PADDLE_DISTRI_BACKEND", "FLAGS_selected_gpus", "PADDLE_TRAINER_ID"} & script.environ.keys()
    with pytest.raises(SettingError, match="COMMAND begins with 'absent': the image and /program have no such program"):
        launched("absent")

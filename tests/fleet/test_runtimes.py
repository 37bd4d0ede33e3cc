import json
import os
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from node_pods import GOOD
from paddle_node import environment, runtimes
from paddle_node.contract import Way
from paddle_node.environment import Attempt, PodEnvironment
from paddle_node.failure import BadSetting
from paddle_node.runtimes.file_progress import FileProgress

ADDRESSES = [f"192.168.129.{66 + i}" for i in range(3)]


def node(*arguments: str, **more: str) -> PodEnvironment:
    told = {
        "JOB_NAME": "paddle-cluster-job",
        "TRAIN_CONFIG_DIR": "recommendation",
        "TRAINER_COUNT": "4",
    }
    pod = {
        "JOB_COMPLETION_INDEX": "1",
        "PADDLE_NODE_RUN_ID": "run",
        "POD_IP": ADDRESSES[1],
        "PYTHONPATH": "/theirs",
    }
    return environment.parse(GOOD | told | pod | more, arguments)


def test_paddle_0x_gets_the_tutorials_command_lines_and_the_users_arguments_untouched():
    arguments = (
        "--config_args=a=1,b=two words",
        "--show_parameter_stats_period",
        "$(id); 'quoted'",
    )
    server, trainer = runtimes.find_runtime(Way("paddle-0.x")).processes(
        node(*arguments), ADDRESSES, Attempt(1)
    )
    assert " ".join(server.argv) == (
        "paddle pserver --nics=eth0 --port=7164 --ports_num=2 --ports_num_for_sparse=2 "
        "--num_gradient_servers=3 --comment=paddle_process_by_paddle"
    )
    own = len(trainer.argv) - len(arguments)
    assert trainer.argv[own:] == arguments
    assert " ".join(trainer.argv[:own]) == (
        "paddle train --nics=eth0 --port=7164 --ports_num=2 --comment=paddle_process_by_paddle "
        "--pservers=192.168.129.66,192.168.129.67,192.168.129.68 --ports_num_for_sparse=2 "
        "--num_gradient_servers=3 --config=./trainer_config.lr.py --trainer_count=4 "
        "--num_passes=10 --use_gpu=0 --log_period=50 --dot_period=10 --saving_period=1 --local=0 "
        "--trainer_id=1 --save_dir=/home/jobpath/paddle-cluster-job/output"
    )
    assert server.ports == (7164, 7165, 7166, 7167) and trainer.waits_for_servers
    assert trainer.working_directory == Path("/home/jobpath/paddle-cluster-job/recommendation")


def test_fleet_ps_refuses_an_address_that_its_pservers_cannot_use():
    with pytest.raises(
        BadSetting, match=r"POD_IP is fd00::2: pservers of Paddle .* know IPv4 addresses only"
    ):
        runtimes.find_runtime(Way("fleet-ps")).processes(
            node(), [f"fd00::{i + 1}" for i in range(3)], Attempt(1)
        )


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["fleet-ps", "collective", "paddle-0.x"])
def test_as_many_pods_as_job_yaml_allows_are_told_of_each_other(runtime: str):
    assert runtimes.find_runtime(Way(runtime)).processes(
        node(), [f"10.100.{i // 250}.{i % 250}" for i in range(6_500)], Attempt(1)
    )


def test_launch_on_two_pods_of_eight_gpus_starts_a_rank_a_gpu_and_names_no_gloo():
    told = node(
        CONF_PADDLE_GRADIENT_NUM="2",
        PATH=os.environ["PATH"],
        PADDLE_NODE_COMMAND=json.dumps(
            [
                "python3",
                "-m",
                "paddle.distributed.launch",
                "--gpus",
                "0,1",
                "train.py",
                "-o",
                "out={output}",
            ]
        ),
        PADDLE_NODE_PROCESSES="8",
        PADDLE_NODE_GPUS="8",
        PADDLE_NODE_RESUME='["--resume", "{newest_stem:output/*.pdparams}"]',
        PADDLE_NODE_TEMPLATES="WHO",
        WHO="{rank} of {trainers} pods, {{shard}} {shard}",
    )
    attempt = Attempt(3, {"newest": "output/7.pdparams"})
    ranks = runtimes.find_runtime(Way("launch", command=True)).processes(
        replace(told, program=Path("/program")), ADDRESSES[:2], attempt
    )
    output = "/home/paddle/attempt/output"  # Which leads to the third attempt's folder.
    expected = yaml.safe_load(Path(__file__).with_name("launch_environment.yaml").read_text())
    endpoints = [f"192.168.129.{66 + pod}:{7164 + local}" for pod in range(2) for local in range(8)]
    for local, rank in enumerate(ranks):
        assert rank.argv == (
            "python3",
            "-u",
            "train.py",
            "-o",
            f"out={output}",
            "--resume",
            f"{output}/7",
        )
        told = {
            name: value
            for name, value in rank.environ.items()
            if re.match("PADDLE_(?!NODE_)|FLAGS|[A-Z_]*(RANK|SIZE|MASTER)|WHO", name)
        }
        values = {
            "local": local,
            "rank": 8 + local,
            "port": 7164 + local,
            "endpoints": ",".join(endpoints),
        }
        assert told == {name: value.format(**values) for name, value in expected.items()}
    assert {str(rank.log) for rank in ranks} == {
        f"/home/jobpath/paddle-cluster-job/output/node_1/rank-{rank}.log" for rank in range(8, 16)
    }


LINES = yaml.safe_load(Path(__file__).with_name("launchers.yaml").read_text())


@pytest.mark.parametrize("case", LINES, ids=lambda case: case["typed"])
def test_a_launcher_is_recognized_however_it_is_named(case: dict, tmp_path: Path):
    """torchrun used to run once in each pod, where it trained in a world of one."""
    for file in ("fleetrun", "torchrun", "paddleformers-cli", "python", "env", "tool"):
        for folder in (tmp_path / "bin", tmp_path / "venv" / "bin"):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / file).touch(0o755)
    settings = {
        "CONF_PADDLE_GRADIENT_NUM": "2",
        "PATH": str(tmp_path / "bin"),
        "PADDLE_NODE_COMMAND": json.dumps(shlex.split(case["typed"])),
        "PADDLE_NODE_PROCESSES": "2",
    }
    told = replace(node(**settings | case.get("settings", {})), program=tmp_path)
    ranks = runtimes.find_runtime(Way("launch", command=True)).processes(
        told, ADDRESSES[:2], Attempt(1)
    )
    assert [shlex.join(rank.argv) for rank in ranks] == [case["runs"]] * case.get("processes", 2)
    assert case.get("sets", {}).items() <= ranks[-1].environ.items()
    said = []
    FileProgress(told, said.append)._tell_flags()
    assert said == [
        f"{flags} in the command: the job's own settings win" for flags in case.get("overrides", [])
    ]


def test_a_program_that_the_pods_user_may_not_reach_is_one_sentence(tmp_path):
    """As in an image whose conda lies in /root."""
    root, closed = os.geteuid() == 0, tmp_path / "closed"
    closed.mkdir(mode=0)
    if root:
        os.seteuid(1234)
    try:
        with pytest.raises(BadSetting, match=rf"begins with '{closed}/python', which user \d+, "):
            runtimes.find_runtime(Way("launch", command=True)).processes(
                node(PADDLE_NODE_COMMAND=json.dumps([f"{closed}/python", "train.py"])),
                ADDRESSES,
                Attempt(1),
            )
    finally:
        if root:
            os.seteuid(0)


@pytest.mark.parametrize(
    ("glob", "newest", "number"),
    [
        ("output/ppTSM_epoch_*.pdparams", "output/ppTSM_epoch_00012.pdparams", "12"),
        ("output/v2/epoch-*-loss-*.pdopt", "output/v2/epoch-9-loss-0.31.pdopt", "9"),
        ("output/m[0-9]/*.pdopt", "output/m3/7.pdopt", "7"),
    ],
)
def test_a_program_that_resumes_by_a_number_gets_it(glob: str, newest: str, number: str):
    words = ["--resume_epoch", f"{{newest_number:{glob}}}"]
    pod = node(PADDLE_NODE_COMMAND='["python3"]', PADDLE_NODE_RESUME=json.dumps(words))
    ranks = runtimes.find_runtime(pod.way).processes(
        replace(pod, program=Path("/program")), ADDRESSES[:2], Attempt(2, {"newest": newest})
    )
    assert next(iter(ranks)).argv[-2:] == ("--resume_epoch", number)

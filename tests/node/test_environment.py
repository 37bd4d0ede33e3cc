"""The check of the settings: every wrong one gives a sentence that names it, what was found and
what is allowed.
"""

import errno
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from node_pods import GOOD
from paddle_node import __main__ as pod_entry
from paddle_node import environment
from paddle_node.failure import BadSetting

from k8s_charts.kinds import training_job
from k8s_charts.spec import TrainingJob


@pytest.mark.parametrize(
    "wrong", yaml.safe_load(Path(__file__).with_name("settings.yaml").read_text())
)
def test_a_wrong_setting_is_one_sentence(wrong):
    with pytest.raises(BadSetting) as error:
        environment.parse(GOOD | wrong["set"])
    assert error.value.sentence.startswith(wrong["said"])
    assert error.value.code == 2


@pytest.fixture
def last_words(tmp_path) -> Path:
    """The Kubernetes termination log of a pod whose root is the test's folder."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/termination-log").touch()
    return tmp_path / "dev/termination-log"


def test_the_entry_says_it_without_a_traceback(tmp_path, last_words):
    entry = Path(__file__).parents[2] / "trainer_image/start_paddle.py"
    environ = GOOD | {"PADDLE_NODE_RUNTIME": "mpi", "PADDLE_NODE_ROOT": str(tmp_path)}
    pod = subprocess.run([sys.executable, entry], env=environ, capture_output=True, text=True)
    assert pod.returncode == 2
    assert pod.stderr == ""
    assert pod.stdout.startswith("[agent] PADDLE_NODE_RUNTIME is 'mpi': allowed are ")
    assert last_words.read_text() in pod.stdout.replace("[agent] ", "")


@pytest.mark.parametrize(
    ("fault", "code", "remedy"),
    [(errno.EIO, 1, ""), (errno.EDQUOT, 74, "; make room on the volume, then run again")],
)
def test_a_volume_that_refuses_is_one_sentence(tmp_path, last_words, capfd, fault, code, remedy):
    def refuse(name):
        raise OSError(fault, "no such luck", "/mnt/volume/output")

    assert pod_entry.main(GOOD | {"PADDLE_NODE_ROOT": str(tmp_path)}, [], refuse) == code
    sentence = f"this pod cannot continue: /mnt/volume/output: no such luck{remedy}\n"
    assert last_words.read_text() == sentence
    assert capfd.readouterr().out.endswith(sentence)


def test_a_pod_imports_nothing_that_is_slow():
    modules = subprocess.run(
        [sys.executable, "-c", "import sys, paddle_node.__main__; print(*sys.modules)"],
        env={"PYTHONPATH": str(Path(__file__).parents[2] / "trainer_image")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert not {
        "kubernetes",
        "paddle",
        "numpy",
        "boto3",
        "pydantic",
        "yaml",
        "urllib3",
        "xxhash",
    } & set(modules)


def test_a_container_that_was_killed_too_often_within_an_hour_ends_its_pod(tmp_path, last_words):
    """With fewer kills it starts, whatever the pod's scratch holds, and removes what a killed one
    left in shared memory.
    """
    environ = GOOD | {
        "PADDLE_NODE_ROOT": str(tmp_path),
        "PADDLE_NODE_DISCOVERY": "pod-list",
    }  # It ends for lack of an account.
    home, memory = tmp_path / "home/paddle", tmp_path / "dev/shm"
    home.mkdir(parents=True)
    memory.mkdir()
    (memory / "left").write_text("of a killed process")
    for damaged in (None, "", "{}", '["x"]', json.dumps([time.monotonic() - 7200] * 100)):
        if damaged is not None:
            (home / "starts.json").write_text(damaged)
        assert pod_entry.main(environ, []) == 2
        assert len(json.loads((home / "starts.json").read_text())) == 1
        assert (memory / "left").exists() is (
            damaged is None
        )  # The first container of a pod removes nothing.
    (home / "starts.json").write_text(json.dumps([time.monotonic() - 60] * 6))
    assert pod_entry.main(environ, []) == 79
    assert "was killed 6 times within an hour" in last_words.read_text()


@pytest.mark.parametrize("end", ["minimum", "maximum"])
def test_a_pod_accepts_the_least_and_the_most_of_job_yaml(end):
    schema = TrainingJob.model_json_schema()

    def settings(group):
        properties = schema["$defs"].get(group, schema)["properties"]
        return {name: value[end] for name, value in properties.items() if end in value}

    job = TrainingJob.parse(
        settings("")
        | {"name": "words", "data": {"source": "s3://bucket/words"}, "trainers": 1}
        | {"limits": settings("Limits"), "ports": {"dense": settings("Ports")["dense"]}}
    )
    limits = job.limits
    node = environment.parse({**GOOD, **training_job.settings(job)})
    assert (node.passes, node.keep_passes, node.seed) == (job.passes, job.keep_passes, job.seed)
    assert (node.attempts, node.stall) == (limits.attempts, limits.stall_seconds)
    assert node.peer_deadline == limits.peer_deadline_seconds

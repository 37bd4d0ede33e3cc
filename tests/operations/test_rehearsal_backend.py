"""The commands that look at a job, without a cluster, on what a rehearsal left behind."""

import json
import os
import re
import socket
from datetime import UTC, datetime
from pathlib import Path

import pytest
from commands import Run
from job_controller import JobController
from paddle_node.volume import attempts
from paddle_node.volume.attempts import RecordedAttempt
from paddle_node.volume.goodput import Goodput
from paddle_node.volume.job_folder import JobFolder
from saved_pass import save_pass

from paddle_aws.operations.errors import BadInput, Failed
from paddle_aws.operations.jobs.objects.pod_state import PodState
from paddle_aws.operations.jobs.rehearsal_backend import RehearsalRecord, load
from paddle_aws.operations.jobs.watch.job_view import JobView
from paddle_aws.operations.jobs.watch.log_stream import PodSelection
from paddle_aws.rehearsal.folder import RehearsalFolder

STEP = {"attempt": 2, "step": 40, "time": 1e9, "metrics": {"loss": 0.25}}
GOODPUT = f"[agent 0] {Goodput({'training': 140.0, 'lost': 60.0}).line()}"


@pytest.fixture
def rehearsed(folder: Path) -> Path:
    """The folder of a rehearsal that failed after a pass; its job file was not the one in this
    folder.
    """
    kept, now = folder / ".rehearsal", datetime.now(UTC)
    job = JobFolder(kept / "volume" / "mine")
    save_pass(job, 0, {"part": b"x"})
    job.node(0).mkdir()
    job.steps(0, 0).write_text(f"{json.dumps(STEP)}\n")
    record = [RecordedAttempt(2, "run", 1e9)]
    job.run_state.mkdir()
    attempts.write(job, record, {})
    job.train_log(0).write_text("a\nb\n")
    (kept / "logs").mkdir()
    (kept / "logs" / "mine-0-abcde.trainer.log").write_text(f"{GOODPUT}\nboom\n")
    (kept / "logs" / "mine-0-abcde.trainer.probes.log").write_text("not for people\n")
    pod = PodState(
        "mine-0-abcde", "trainer", 0, "failed", "exit code 1: boom", "", 1, now.isoformat(), "boom"
    )
    RehearsalRecord(JobView("mine", "paddle", None, None, (pod,)), "mine", "/nowhere", now).write(
        kept
    )
    return kept


def test_what_ran_last_is_looked_at_and_named(run: Run, rehearsed: Path) -> None:
    done = run("status")
    assert done.code == 0 and "exit code 1: boom" in done.out
    assert done.err.startswith("the rehearsal of mine, ") and done.err.endswith(
        "; --no-rehearsal asks the cluster\n"
    )
    status = json.loads(run("status", "--json").out)
    assert (status["progress"]["step"], status["goodput"]["percent"]) == (40, 70)
    for more in ([], ["mine", "--follow"]):
        assert run("logs", *more).out.splitlines()[-1] == "trainer 0 | boom"
    assert run("logs", "--volume", "train", "--tail", "1").out == "trainer 0 | b\n"
    assert [row["complete"] for row in json.loads(run("results", "--json").out)["passes"]] == [True]


def test_a_cluster_is_asked_where_one_is_named_or_was_used_since(
    run: Run, api: JobController, rehearsed: Path
) -> None:
    for chosen in (["--no-rehearsal"], ["--namespace", "paddle"], ["words"]):
        assert "there is no job words" in run("status", *chosen).err
    assert run("submit", "--wait").code == 0
    assert "words is done" in run("status").out
    assert run("status", "--rehearsal").code == 0
    done = run("status", "words", "--rehearsal")
    assert (
        done.code == 2
        and done.err
        == "JOB is words: rehearsed here are mine; leave JOB out for the last one, or "
        "rehearse that\n"
    )


def test_a_record_that_is_none_is_a_sentence_and_leads_nowhere(run: Run, rehearsed: Path) -> None:
    def refused(sentence: str) -> None:
        done = run("results", "--rehearsal")
        assert done.code == 2 and sentence in done.err and len(done.err.splitlines()) <= 2

    file = rehearsed / "job.json"
    (rehearsed / "secret").mkdir()
    file.write_text(file.read_text().replace('"root": "mine"', '"root": "../secret"'))
    refused("secret cannot be used: outside of the job's folder")
    for record in ("", '{"view": 1}'):
        file.write_text(record)
        refused("is not a rehearsal's record")
    file.unlink()
    refused("there is no .rehearsal/job.json")


def test_an_older_runs_object_never_answers_with_a_newer_run(rehearsed: Path) -> None:
    file = rehearsed / "job.json"

    def replaced_by(run: str) -> None:
        file.write_text(json.dumps(json.loads(file.read_text()) | {"run": run}))

    replaced_by("first")
    first = load(rehearsed)
    assert [line.text for line in first.logs()][-1] == "boom" and first.status().name == "mine"
    assert first.results() == []
    with pytest.raises(Failed, match="another one has replaced it"), first.volume() as volume:
        replaced_by("second")  # While results are read.
        assert volume.files("output")
    for ask in (
        first.results,
        lambda: first.model(rehearsed / "to"),
        first.evaluate,
        first.status,
        first.wait,
        lambda: list(first.logs()),
        lambda: first.follow(PodSelection(), None, print),
    ):
        with pytest.raises(Failed, match="another one has replaced it"):
            ask()
    assert load(rehearsed).results() == []


def test_what_a_command_measures_is_its_own(run: Run, rehearsed: Path) -> None:
    container = {"env": [{"name": "PADDLE_NODE_COMMAND", "value": '["python", "train.py"]'}]}
    labels = {"app.kubernetes.io/component": "trainer"}
    document = {
        "kind": "Job",
        "metadata": {"name": "mine", "labels": labels},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }
    (rehearsed / "manifests").mkdir()
    (rehearsed / "manifests" / "job.yaml").write_text(json.dumps(document))
    done = run("evaluate", "mine")
    assert done.code == 2 and done.err.splitlines()[-1].startswith(
        "job mine runs a command, which measures itself: `evaluate` is for jobs without `command`"
    )


def test_a_rehearsal_of_another_name_leaves_the_others(run: Run, rehearsed: Path) -> None:
    mine = load(rehearsed)
    (rehearsed / "lock").touch()

    def rehearse(name: str) -> None:
        with RehearsalFolder(rehearsed) as folder:
            folder.announce(name, "paddle")
            folder.begin(name, name)
            (folder.volume / name / "output").mkdir(parents=True)
            view = JobView(name, "paddle", None, None, ())
            RehearsalRecord(view, name, "/nowhere", datetime.now(UTC), folder.run).write(rehearsed)
            folder.tidy()

    for name in ("second", "third"):
        rehearse(name)
        assert "boom" in run("logs", "mine").out
    rows = json.loads(run("list", "--json").out)
    assert [row["job"] for row in rows] == ["third", "second", "mine"]
    assert [p["complete"] for p in json.loads(run("results", "mine", "--json").out)["passes"]] == [
        True
    ]
    assert run("results").err.startswith("the rehearsal of third, ")
    assert mine.status().pods[0].failure and "boom" in [line.text for line in mine.logs()]
    rehearse("mine")
    with pytest.raises(Failed, match="another one has replaced it"):
        mine.results()
    assert json.loads(run("results", "mine", "--json").out)["passes"] == []
    assert (rehearsed / "volume" / "second").is_dir() and load(rehearsed, "second").name == "second"
    for name in ("../mine", "fourth"):
        with pytest.raises(BadInput, match="rehearsed here are mine, third, second; leave JOB out"):
            load(rehearsed, name)


@pytest.mark.parametrize(
    ("settings", "written", "place", "line"),
    [
        (
            {"MODEL": "output/o/iter_*/model.pdparams"},
            ["o/iter_4/model.pdparams", "o/iter_8/model.pdparams"],
            "model.pdparams",
            'weights = paddle.load("model.pdparams")  # model.set_state_dict(weights)',
        ),
        (  # PaddleOCR's: the newest file is no weights.
            {"MODEL": "output/[il][at]*"},
            ["iter_epoch_1.pdparams", "latest.pdparams", "latest.pdopt", "latest.states"],
            "latest.pdparams",
            'weights = paddle.load("latest.pdparams")  # model.set_state_dict(weights)',
        ),
        (
            {"MODEL": "output/m/*model*.safetensors"},
            ["m/model-00001-of-00002.safetensors", "m/model-00002-of-00002.safetensors"],
            "model-00001-of-00002.safetensors",
            'weights = safetensors.paddle.load_file("model-00001-of-00002.safetensors")\n'
            'weights |= safetensors.paddle.load_file("model-00002-of-00002.safetensors")',
        ),
        (
            {"SUCCESS": "output/step-9", "COMMAND": '["torchrun", "train.py"]'},
            ["step-9/model.safetensors", "step-9/optimizer.pt", "step-90/model.safetensors"],
            "step-9",
            'weights = safetensors.torch.load_file("step-9/model.safetensors")',
        ),
        ({"SUCCESS": "output/done.json"}, ["done.json", "x.pdparams"], "done.json", ""),
    ],
    ids=["recipe", "beside others", "shards", "folder", "no weights"],
)
def test_the_final_model_of_a_command_is_handed_out(
    run: Run,
    rehearsed: Path,
    tmp_path: Path,
    settings: dict[str, str],
    written: list[str],
    place: str,
    line: str,
) -> None:
    env = [{"name": f"PADDLE_NODE_{name}", "value": value} for name, value in settings.items()]
    labels = {"app.kubernetes.io/component": "trainer", "app.kubernetes.io/instance": "mine"}
    metadata = {"name": "mine-1", "labels": labels, "creationTimestamp": "2026-01-01T00:00:00Z"}
    spec = {"completions": 1, "template": {"spec": {"containers": [{"env": env}]}}}
    job = {"kind": "Job", "metadata": metadata, "spec": spec}
    (rehearsed / "manifests").mkdir()
    (rehearsed / "manifests" / "job.yaml").write_text(json.dumps(job))
    assert "nothing matches" in run("results", "--model").err
    for time, name in enumerate(written):
        file = rehearsed / "volume" / "mine" / "output" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
        os.utime(file, (time, time))
    done = run("results", "--model", "--to", "got")
    assert (done.code, done.out.strip()) == (0, line), done.err
    assert Path("got", place).exists()
    for fetched in re.findall('"(.*?)"', line):
        assert Path("got", fetched).read_text().endswith(Path(fetched).name)
    mine = load(rehearsed, "mine")
    assert mine.model(tmp_path) == tmp_path / place
    command = json.loads(settings.get("COMMAND", "[]"))
    assert mine.settings().get("command", "") == " ".join(command)


def test_a_port_that_is_taken_is_a_sentence(run: Run, rehearsed: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for jobs in ([], ["mine", "mine"]):
            done = run("board", *jobs, "--no-browser", "--port", str(port))
            said = f"--port is {port}: Address already in use; 0 takes any that is free"
            assert (done.code, done.err.splitlines()[-1]) == (2, said)

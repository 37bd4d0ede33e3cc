"""`status`, `list`, `logs`, `wait`: what a user and a program read, even when the connection
breaks.
"""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from commands import Run
from job_controller import JobController, Script
from kubernetes_api import Fault
from paddle_node.volume.job_folder import JobFolder
from paddle_node.volume.progress import Progress

pytestmark = pytest.mark.slow

PODS = "/api/v1/namespaces/paddle/pods"
NOISE = Path(__file__).with_name("paddle_2.6.2.txt").read_text()


@pytest.fixture
def training(run: Run, api: JobController, folder: Path) -> dict[str, Any]:
    """A job that runs until a test ends it."""
    api.scripts["trainer"] = Script(code=None, lines=("trainer RANK begins",))
    assert run("submit").code == 0
    api.requests.clear()
    return api.of("trainer")[0]


def pods(api: JobController) -> list[str]:
    return sorted(pod["metadata"]["name"] for pod in api.of("trainer", "pods"))


# status and list.


def test_status_tells_how_far_the_training_is_by_one_request_more(
    run: Run, api: JobController, training: dict[str, Any]
) -> None:
    first, second, _ = pods(api)
    far = Progress(
        attempt=2,
        step=40,
        loss=0.25,
        pass_number=1,
        passes=5,
        records_per_second=150.0,
        seconds_left=72.0,
        reported=datetime.now(UTC).isoformat(),
    )
    api.say(first, f"[agent 0] {far.line()}")
    api.say(first, "[pserver 0] noise")
    api.put(training | {"status": {"failed": 1}})
    lines = run("status").out.splitlines()
    words = (
        "  progress   pass 1 (the last is 4), step 40, loss 0.2500, 150 records a second, 72 s "
        "left ("
    )
    assert (
        any(line.startswith(words) for line in lines)
        and "  lost pods  1 so far, attempt 2" in lines
    )
    assert sorted(path.split("?")[0].rsplit("/", 1)[1] for _, path in api.requests) == [
        "jobs",
        "log",
        "paddlejobs",
        "pods",
    ]
    status = json.loads(run("status", "--json").out)
    assert (
        status["lost_pods"],
        status["progress"]["step"],
        status["progress"]["seconds_left"],
    ) == (
        1,
        40,
        72.0,
    )
    assert (status["job"], status["namespace"], status["state"]) == ("words", "paddle", "running")
    assert status["data"]["state"] == "done" and status["training"]["wanted"] == 3
    trainers = [
        (pod["rank"], pod["state"]) for pod in status["pods"] if pod["component"] == "trainer"
    ]
    assert trainers == [(0, "running"), (1, "running"), (2, "running")]
    # A pass that is through, and a pod that was killed and restarted in place.
    far = replace(far, step=None, loss=0.2, seconds_left=60.0)
    api.say(first, f"[agent 0] {far.line()}")
    again = [{"name": "trainer", "restartCount": 2, "state": {"running": {}}}]
    api.objects[f"{PODS}/{second}"]["status"]["containerStatuses"] = again
    text = run("status").out
    assert "pass 1 (the last is 4), complete, loss 0.2000, 150 records a second, 60 s left" in text
    assert "lost pods  3 so far" in text
    # In a pipe, each pod has one line.
    api.finish(training, 70, "x" * 200)
    done = run("status")
    rows = [line for line in done.out.splitlines() if line.startswith("trainer ")]
    assert len(rows) == 3 and all("x" * 200 in row for row in rows)
    assert "words failed: a pod ended with a code that no retry can heal" in done.out
    assert "pass 1 (the last is 4), complete, loss 0.2000" in done.out, "how far it came"


def test_status_of_a_command_tells_its_step(run: Run, api: JobController, folder: Path) -> None:
    settings = {
        "name": "words",
        "trainers": 2,
        "image": "registry.example/p:1",
        "program": {"from": "image", "folder": "p"},
        "command": "python train.py",
        "data": {"source": "s3://corpus/words", "shared": True},
        "metrics": {"loss": "loss: ([0-9.]+)", "step": "step: ([0-9]+)"},
    }
    (folder / "job.yaml").write_text(json.dumps(settings))
    far = Progress(attempt=1, step=58, loss=0.44, steps_per_second=3.1)
    lines = (f"[agent 0] {far.line()}", "[trainer 0] [agent 0] progress of its own", "step: 59")
    api.scripts["trainer"] = Script(code=None, lines=lines)
    assert run("submit", "--no-try").code == 0
    assert "  progress  attempt 1, step 58, loss 0.4400, 3.1 steps/s" in run("status").out
    progress = json.loads(run("status", "--json").out)["progress"]
    # Keys that programs read, of a command and of a program with passes.
    assert (
        progress.items()
        >= {
            "attempt": 1,
            "step": 58,
            "loss": 0.44,
            "steps_per_second": 3.1,
            "last_end": "",
            "told": "",
            "pass_number": None,
            "passes": None,
            "records_per_second": None,
            "seconds_left": None,
        }.items()
    )


def test_which_jobs_are_there(run: Run, api: JobController, folder: Path) -> None:
    assert run("list").err == "no jobs in namespace paddle: `paddle-aws submit` starts one\n"
    for command in ("status", "logs", "wait"):
        done = run(command, "nothing")
        assert (done.code, done.out) == (2, "")
        assert (
            done.err
            == "there is no job nothing in namespace paddle: `paddle-aws list -A` shows those "
            "there are\n"
        )
    run("submit", "--wait")
    api.scripts["trainer"] = Script(code=None)
    (folder / "job.yaml").write_text((folder / "job.yaml").read_text().replace("words", "other", 1))
    run("submit")
    rows = [line.split()[:3] for line in run("list").out.splitlines()]
    assert rows[0] == ["JOB", "STATE", "PODS"]
    assert sorted(rows[1:]) == [["other", "running", "0/3"], ["words", "done", "3/3"]]
    states = {job["job"]: job["state"] for job in json.loads(run("list", "-A", "--json").out)}
    assert states == {"other": "running", "words": "done"}


# logs.


def test_logs_of_all_ranks_in_order_of_time(
    run: Run, api: JobController, training: dict[str, Any]
) -> None:
    first, second, third = pods(api)
    for pod, line in (
        (second, "one"),
        (first, "two"),
        (third, "three"),
        (first, "\x1b[2Jfour\x07"),
    ):
        api.say(pod, line)
    begun = [f"trainer {rank} | trainer {rank} begins" for rank in range(3)]
    lines = ["trainer 1 | one", "trainer 0 | two", "trainer 2 | three", "trainer 0 | four"]
    assert run("logs").out.splitlines() == begun + lines
    assert run("logs", "--rank", "1-2", "--tail", "1").out.splitlines() == [
        "trainer 1 | one",
        "trainer 2 | three",
    ]
    assert run("logs", "--of", "data").out == "data 0 | hello\n"
    entries = [json.loads(line) for line in run("logs", "--rank", "2", "--json").out.splitlines()]
    assert [(line["pod"], line["rank"], line["text"]) for line in entries][-1] == (
        "trainer 2",
        2,
        "three",
    )
    for rank in ("3-1", "x", "", "0-99999999999"):
        done = run("logs", "--rank", rank)
        allowed = "all, a number, a range such as 0-3, or several with commas are allowed"
        assert (done.code, done.err) == (2, f"--rank is {rank}: {allowed}\n")


def test_what_paddle_says_of_itself_hides_no_loss(
    run: Run, api: JobController, training: dict[str, Any], trained: JobFolder
) -> None:
    """Lines as Paddle 2.6.2 and brpc write them in a job with parameter servers."""
    pod = pods(api)[0]
    for text in NOISE.splitlines():
        api.say(pod, text)
    whole = ["trainer 0 begins", *NOISE.splitlines()]
    quiet = [text for text in whole if re.search("loss|Error|begins", text)]
    assert len(quiet) == 7
    left_out = "lines that Paddle writes about itself are left out: --verbose shows them\n"

    def shown(*arguments: str) -> list[str]:
        done = run("logs", "--rank", "0", *arguments)
        assert done.code == 0 and (left_out == done.err) == (not {"-v", "--json"} & {*arguments})
        return [line.removeprefix("trainer 0 | ") for line in done.out.splitlines()]

    assert shown() == quiet and shown("--verbose", "-v") == whole
    assert shown("--tail", "2") == quiet[-2:] and shown("--tail", "3", "-v") == whole[-3:]
    assert [json.loads(line)["text"] for line in shown("--json")] == whole
    trained.train_log(0).write_text(NOISE)
    assert shown("--volume", "train") == quiet[1:]
    assert shown("--volume", "train", "--tail", "1") == quiet[-1:]
    api.finish(training)
    assert shown("--follow") == quiet and shown("--follow", "-v") == whole


def test_a_server_that_is_away_for_a_while_ends_no_follow(
    run: Run, api: JobController, training: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is away for longer than one request keeps trying."""
    monkeypatch.setattr("paddle_aws.operations.cluster.cluster_api.REPORT_AFTER", 0.0)

    def back() -> None:
        for pod in pods(api):
            api.say(pod, "later")
        api.finish(training)

    api.faults = [
        Fault("follow", cut=10, times=3),
        Fault("", status=503, times=60, skip=7),
        Fault("", then=back),
    ]
    done = run("logs", "--follow")
    assert done.code == 0, done.err
    assert done.out.count("later") == 3 and "waiting for it, up to 10 minutes" in done.err


@pytest.mark.parametrize(
    "command", [("logs",), ("logs", "--follow")], ids=lambda command: command[-1]
)
@pytest.mark.parametrize("shown", [2, 4])
def test_lines_of_one_tick_are_all_shown_once_wherever_it_is_cut(
    run: Run, api: JobController, training: dict[str, Any], command: tuple[str, ...], shown: int
) -> None:
    pod, tick = pods(api)[0], "2026-01-02T03:04:05.600000000Z"
    texts = ["one", "two", "two", "three"]
    api.logs[pod].lines = [
        ("2026-01-02T03:04:05.100000000Z", "early"),
        *((tick, text) for text in texts),
    ]
    api.finish(training)
    lines = [f"{moment} {text}\n" for moment, text in api.logs[pod].lines]
    api.faults = [Fault(f"/{pod}/log\\?", cut=len("".join(lines[: shown + 1])) - 1, times=2)]
    done = run(*command, "--rank", "0")
    assert done.out.splitlines() == [f"trainer 0 | {text}" for text in ("early", *texts)]
    assert api.faults[0].times == 0


def test_a_follow_takes_in_replaced_pods(
    run: Run, api: JobController, training: dict[str, Any]
) -> None:
    def replace() -> None:
        api.end(api.objects[f"{PODS}/{pods(api)[1]}"], 137)
        api.run(api.pod(training, 1), Script(code=None, lines=("back again",)))

    message = "trainer 1 ended with 1: RuntimeError: boom (train.py:12)"
    api.faults = [
        Fault("follow", then=replace),
        Fault("follow", then=lambda: api.finish(training, 1, message)),
    ]
    done = run("logs", "--follow", "--rank", "1")
    assert sorted(done.out.splitlines()) == [
        "trainer 1 | back again",
        "trainer 1 | trainer 1 begins",
    ]
    assert done.err.splitlines()[-1].endswith(f" on node-1: code 1: {message}")


# wait.


def test_wait_says_what_happens_and_how_it_ended(
    run: Run, api: JobController, training: dict[str, Any]
) -> None:
    done = run("wait", "--timeout", "0.001")
    assert done.code == 1 and "is still running after 0.001 minutes: it keeps running" in done.err
    # A wait continues if it may not ask for the reasons.
    api.remove(api.objects[f"{PODS}/{pods(api)[1]}"])
    refused = Fault("/events", status=403, times=1000)
    api.faults = [
        refused,
        Fault("/jobs", skip=2, then=lambda: api.finish(training, 70, "attempt 3 failed")),
    ]
    done = run("wait")
    assert done.code == 1 and refused.times < 1000
    assert "trainer 0,2 running" in done.err
    assert "trainer 0,2 failed: code 70 (attempts exhausted): attempt 3 failed" in done.err


@pytest.mark.parametrize(
    ("command", "code", "sentence"),
    [
        ("wait", 1, "job words was deleted while it was waited for"),
        ("logs --follow", 0, ""),
        ("submit --follow", 1, "job words was deleted or cancelled before it ended"),
    ],
)
@pytest.mark.parametrize("gone", ["data trainer", "trainer"])
def test_a_job_that_is_deleted_or_cancelled_is_not_followed(
    run: Run,
    api: JobController,
    training: dict[str, Any],
    command: str,
    code: int,
    sentence: str,
    gone: str,
) -> None:
    def delete() -> None:
        for component in gone.split():
            api.remove(api.of(component)[0])

    if "submit" in command:
        api.remove(training)
    api.faults = [Fault("follow" if "follow" in command else "/jobs", skip=2, then=delete)]
    done = run(*command.split())
    assert done.code == code and sentence in done.err and ("deleted" in done.err) == bool(sentence)


# Credentials.


def test_a_token_that_expires_in_mid_follow_is_renewed(
    run: Run, api: JobController, training: dict[str, Any], tmp_path: Path
) -> None:
    """A program supplies the token, as on EKS."""
    token = tmp_path / "token"
    version = "client.authentication.k8s.io/v1beta1"
    credential = json.dumps(
        {"apiVersion": version, "kind": "ExecCredential", "status": {"token": "%s"}}
    )
    script = f"printf '{credential}' \"$(cat {token})\""
    api.kubeconfig(
        tmp_path / "kubeconfig",
        {"exec": {"apiVersion": version, "command": "sh", "args": ["-c", script]}},
    )

    def renew(secret: str) -> None:
        token.write_text(secret)
        api.tokens = {secret}

    def expire() -> None:
        renew("second-secret")
        for pod in pods(api):
            api.say(pod, "later")
        api.finish(training)

    renew("first-secret")
    api.faults = [Fault("follow", cut=80, times=2), Fault("follow", cut=80, then=expire)]
    done = run("logs", "--follow")
    assert done.code == 0, done.err
    assert done.out.count("later") == 3
    assert "secret" not in done.out + done.err

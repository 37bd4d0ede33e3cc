"""`submit`: what the cluster gets and in which order, what is refused, and what a user reads
meanwhile.
"""

import hashlib
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import JOB, Run
from job_controller import JobController, Script
from kubernetes_api import Fault

from paddle_aws.operations.jobs.volume import transfer as volume_transfer

pytestmark = pytest.mark.slow

TABLES = yaml.safe_load(Path(__file__).with_name("submit.yaml").read_text())
PASSES, PADDLE_JOB = TABLES["passes"], TABLES["paddle job"]
RECORDS = b"".join(b"%d\tword\n" % number for number in range(400))


def kinds(api: JobController) -> list[str]:
    """The kinds that were applied, in order."""
    return [path.split("?")[0].split("/")[-2] for method, path in api.requests if method == "PATCH"]


def edit(folder: Path, text: str) -> None:
    """Writes the job file with lines added."""
    (folder / "job.yaml").write_text(JOB + text)


def test_the_split_comes_first_and_the_training_when_it_is_done(
    run: Run, api: JobController, folder: Path
) -> None:
    api.scripts["data"] = Script(code=65, message="split: reading\nline 7 is no record")
    done = run("submit")
    assert done.code == 1 and not api.of("trainer")
    assert (
        "the data split failed: data 0 on node-1: code 65 (bad data): line 7 is no record"
        in done.err
    )
    # The next submission tries the split again.
    api.scripts.clear()
    api.requests.clear()
    done = run("submit", "--wait")
    assert done.code == 0, done.err
    jobs = [job["metadata"]["name"] for job in api.all("jobs")]
    assert [name.rpartition("-")[0] for name in jobs] == ["words-data", "words"]
    applied = kinds(api)
    assert applied[0] == "namespaces" and applied.count("jobs") == 2
    assert applied.index("persistentvolumeclaims") < applied.index("jobs")
    assert (
        "the data is split" in done.err and "job words is done: 3 of 3 pods succeeded" in done.err
    )


def test_an_environment_that_cannot_be_built_ends_the_submission_with_its_sentence(
    run: Run, api: JobController, folder: Path
) -> None:
    edit(folder, "program: {requirements: [absent]}\n")
    says = "program.requirements has absent: pip finds no such package"
    api.scripts = {
        "environment": Script(code=2, message=f"environment: {says}"),
        "data": Script(code=None),
    }
    done = run("submit")
    assert done.code == 1 and not api.of("trainer")
    assert "its environment could not be built: " in done.err and says in done.err
    assert "--of environment` shows its log" in done.err
    shown = run("status").out
    assert shown.startswith("words failed: ") and says in shown
    # The next submission builds again. Once there is a training, its pods know whether another job
    # has built the environment.
    api.scripts = {"environment": Script(code=None), "trainer": Script(code=None)}
    for job in api.of("data"):
        api.finish(job, 0, "")
    done = run("submit")
    assert done.code == 0, done.err
    (environment,), (training,) = api.of("environment"), api.of("trainer")
    api.finish(environment, 2, f"environment: {says}")
    shown = run("status").out
    assert shown.startswith("words is running: its environment Job failed, and") and says in shown
    api.finish(training, 0)
    done = run("wait")
    assert done.code == 0 and "words is done" in done.err, done.err
    jobs = [job["metadata"]["name"].rpartition("-")[0] for job in api.all("jobs")]
    assert sorted(jobs) == ["words", "words-data", "words-environment"]
    assert "hello" in run("logs", "--of", "environment").out


def data_jobs(api: JobController) -> dict[str, str]:
    """Maps the name of each existing data Job to its uid."""
    return {job["metadata"]["name"]: job["metadata"]["uid"] for job in api.of("data")}


def test_a_new_training_always_has_its_data_looked_at_again(
    run: Run, api: JobController, folder: Path
) -> None:
    """An s3:// or https source may have changed behind its address: only the data job can tell."""

    def submitted(job: str) -> dict[str, str]:
        (folder / "job.yaml").write_text(job)
        assert run("submit", "--wait").code == 0
        return data_jobs(api)

    before, after = submitted(JOB), submitted(f"{JOB}passes: 2\n")
    assert after.keys() == before.keys() and after != before
    # Another data job's shards replace these: the data Job that remains says whose they are.
    other = submitted(JOB.replace("trainers: 3", "trainers: 2"))
    assert len(other) == 1 and not other.keys() & before.keys()
    assert submitted(f"{JOB}passes: 3\n").keys() == before.keys()


def test_a_split_that_runs_is_waited_for(run: Run, api: JobController, folder: Path) -> None:
    api.scripts["data"] = Script(code=None)
    assert "run `paddle-aws submit` again to continue" in interrupted_once_it_says(
        "data 0 running", "submit"
    )
    before = data_jobs(api)
    # The data job ends when `submit` looks again after its check.
    api.faults = [Fault("/jobs", "GET", skip=4, then=lambda: api.finish(api.of("data")[0]))]
    assert run("submit", "--wait").code == 0
    assert data_jobs(api) == before


def test_a_followed_training_is_the_table_of_its_passes(
    run: Run, api: JobController, folder: Path
) -> None:
    api.scripts["trainer"] = Script(lines=PASSES)
    done = run("submit", "--follow")
    assert done.code == 0 and "is done: 3 of 3 pods" in done.err.splitlines()[-2]
    agent_line, header, row = sorted(
        done.out.splitlines(), key=lambda line: not line.startswith("[agent 0]")
    )
    assert agent_line == PASSES[1].replace("RANK", "0")
    assert header.split("  ")[0].strip() == "pass"
    assert row.split() == ["0", "0.7100", "0.7000", "0.7100", "0.7200", "300", "2.5"]


@pytest.mark.parametrize(
    "more",
    ["", "command: python3 train.py\npaddle: '2.6'\nprogram: {folder: quick_start}\n"],
    ids=["verbose", "a command"],
)
def test_a_followed_submission_shows_each_line_once_and_ends_with_the_jobs_code(
    run: Run, api: JobController, folder: Path, more: str
) -> None:
    """A user's own command has no table of passes."""
    (folder / "job.yaml").write_text(
        JOB.replace('words"}', 'words", shared: true}') + more if more else JOB
    )
    boom = "trainer 2 ended with 1: RuntimeError: boom (train.py:12)"
    api.scripts["trainer"] = Script(code=1, lines=("trainer RANK begins", "loss 0.5"), message=boom)
    done = run("submit", "--follow", *([] if more else ["--verbose"]))
    assert done.code == 1 and f"on node-1: code 1: {boom}" in done.err.splitlines()[-1]
    # The reason is not that of another pod whose end Kubernetes saw first.
    assert "Container trainer failed with" not in done.err
    texts = [
        f"trainer {rank} | {text}"
        for rank in range(3)
        for text in (f"trainer {rank} begins", "loss 0.5")
    ]
    assert sorted(done.out.splitlines()) == sorted(texts)


def test_a_job_that_waits_says_why_and_outlives_ctrl_c(
    run: Run, api: JobController, folder: Path
) -> None:
    no_cpu = (
        "0/3 nodes are available: 3 Insufficient cpu. preemption: 0/3 nodes are available: 3 No "
        "preemption victims found."
    )
    unschedulable = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": no_cpu,
    }
    api.scripts["trainer"] = Script(status={"phase": "Pending", "conditions": [unschedulable]})
    for command in ("submit --follow", "logs --follow", "wait"):
        errors = interrupted_once_it_says("too little cpu", *command.split())
        assert "trainer 0-2 waiting: no node can take it: too little cpu is free" in errors
        assert "keeps running" in errors and "Traceback" not in errors
    assert (
        not [path for method, path in api.requests if method == "DELETE"]
        and len(api.of("trainer", "pods")) == 3
    )


def interrupted_once_it_says(words: str, *command: str) -> str:
    """Sends Ctrl-C to a command once it writes `words` to stderr. Returns all that it wrote
    there.
    """
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen(
        [sys.executable, "-m", "paddle_aws.operations.main", *command], text=True, **pipes
    ) as process:
        output = ""
        while words not in output:
            line = process.stderr.readline()
            assert line, output
            output += line
        process.send_signal(signal.SIGINT)
        output += process.stderr.read()
    assert process.returncode == 130
    return output


def test_what_is_proposed_works_from_anywhere(run: Run, api: JobController, folder: Path) -> None:
    api.scripts["trainer"] = Script(code=None, lines=())
    edit(folder, "namespace: mine\n")
    done = run("submit")
    assert (
        "next: `paddle-aws logs words -n mine --follow`, `paddle-aws wait words -n mine`"
        in done.err
    )
    assert "`paddle-aws cancel words -n mine`" in run("submit").err
    quiet = run("logs", "words", "-n", "mine")
    assert (quiet.code, quiet.out) == (
        0,
        "",
    ) and "`paddle-aws status words -n mine` says why" in quiet.err


def test_an_earlier_runs_pods_are_not_the_newest_ones(
    run: Run, api: JobController, folder: Path
) -> None:
    api.scripts["trainer"] = Script(code=70, lines=("old",), message="lost")
    assert run("submit", "--wait").code == 1
    for document in api.objects.values():
        document["metadata"]["creationTimestamp"] = "2026-01-02T03:04:05Z"
    edit(folder, "passes: 7\n")
    api.scripts["trainer"] = Script(lines=("new",))
    for command in (("submit", "--follow", "--verbose"), ("logs",), ("logs", "--follow")):
        done = run(*command)
        assert done.code == 0 and sorted(done.out.splitlines()) == [
            f"trainer {rank} | new" for rank in range(3)
        ]
    assert len(api.of("trainer", "pods")) == 6
    shown = run("status")
    assert "lost" not in shown.out and shown.out.count("trainer ") == 3
    assert json.loads(run("list", "--json").out)[0]["state"] == "done"


def test_neither_a_job_that_runs_nor_one_that_has_run_is_overwritten(
    run: Run, api: JobController, folder: Path
) -> None:
    api.scripts["trainer"] = Script(code=None)
    assert run("submit").code == 0
    edit(folder, "passes: 7\n")
    before = dict(api.objects)
    done = run("submit")
    assert done.code == 2
    assert (
        done.err.startswith("job words runs already (words-")
        and "paddle-aws cancel words" in done.err
    )
    assert api.objects == before
    api.finish(api.of("trainer")[0])
    edit(folder, "")
    done = run("submit")
    assert done.code == 2 and "has run already" in done.err and "resume" in done.err
    edit(folder, "passes: 7\n")
    assert run("submit").code == 0
    assert len(api.of("trainer")) == 2


def test_on_a_bare_cluster_the_operator_comes_first_and_its_kind_is_waited_for(
    run: Run, api: JobController, folder: Path
) -> None:
    (folder / "job.yaml").write_text(f"{PADDLE_JOB}paddlejob: {{install_operator: false}}\n")
    done = run("submit")
    unknown = "PaddleJob (batch.paddlepaddle.org/v1) is unknown to cluster double"
    assert (done.code, done.out) == (2, "") and kinds(api) == []
    assert done.err == f"{unknown}: install the PaddleJob operator first (docs/jobs.md)\n"

    def created(document: dict[str, Any]) -> None:
        api.control(document)
        if document["kind"] == "CustomResourceDefinition":
            # A real API server serves a kind some time after it has accepted the definition.
            threading.Timer(
                0.7, api.kinds.__setitem__, ("/apis/batch.paddlepaddle.org/v1", "PaddleJob")
            ).start()
        if document["kind"] == "PaddleJob":
            api.put(document | {"status": {"phase": "Completed", "worker": {"succeeded": 2}}})

    api.created = created
    (folder / "job.yaml").write_text(PADDLE_JOB)
    done = run("submit", "--wait")
    assert done.code == 0, done.err
    assert kinds(api).index("customresourcedefinitions") < kinds(api).index("paddlejobs")
    assert "job words is done: 2 of 2 pods succeeded" in done.err
    assert json.loads(run("list", "-A", "--json").out)[0]["state"] == "done"
    (paddle_job,) = api.all("paddlejobs")
    paddle_job["status"] = {}
    unseen = "the PaddleJob operator has not taken it up"
    assert unseen not in run("status").out
    paddle_job["metadata"]["creationTimestamp"] = "2026-01-02T03:04:05Z"
    assert unseen in run("status").out
    assert run("delete", "words", "--force").code == 0 and api.all("paddlejobs") == []


@pytest.fixture
def undeployed(folder: Path) -> Path:
    """A project's folder before `deploy` and `make push`."""
    (folder / "outputs.json").unlink()
    (folder / "image.json").unlink()
    return folder


@pytest.mark.parametrize(("source", "more", "missing"), TABLES["missing"])
def test_what_a_job_takes_from_a_cluster_that_is_not_deployed_is_named(
    run: Run, api: JobController, undeployed: Path, source: str, more: str, missing: str
) -> None:
    (undeployed / "job.yaml").write_text(JOB.replace("s3://corpus/words", source) + more)
    done = run("submit")
    assert done.code == 2 and done.err.startswith(
        f"outputs.json does not exist, and the job takes from it: {missing}; deploy"
    )
    assert kinds(api) == []


@pytest.mark.parametrize(("source", "volume"), TABLES["own"])
def test_any_kubernetes_is_enough_for_a_job_with_its_own_image_volume_and_source(
    run: Run,
    api: JobController,
    undeployed: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    volume: str,
) -> None:
    (undeployed / "job.yaml").write_text(
        JOB.replace("s3://corpus/words", source) + f"image: mine:1\nvolume: {{{volume}}}\n"
    )
    for library in ("boto3", "botocore"):
        monkeypatch.setitem(sys.modules, library, None)  # Importing it fails.
    done = run("submit", "--wait")
    assert done.code == 0, done.err
    assert "deploy" not in done.err and "placeholder" not in json.dumps([*api.objects.values()])
    assert run("status").code == 0 and run("delete").code == 0
    assert (
        "deploy" not in run("submit", "--dry-run").err and "placeholder" not in run("manifests").err
    )


@pytest.fixture
def own_volume(
    undeployed: Path, api: JobController, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A job with a local file on any Kubernetes, and its folder on the volume; AWS's libraries are
    not even there.
    """
    (undeployed / "job.yaml").write_text(
        JOB.replace("s3://corpus/words", "mine/words.tsv")
        + "image: mine:1\nvolume: {kind: claim, claim: shared}\n"
    )
    (undeployed / "mine").mkdir()
    (undeployed / "mine/words.tsv").write_bytes(RECORDS)
    for library in ("boto3", "botocore"):
        monkeypatch.setitem(sys.modules, library, None)  # Importing it fails.
    monkeypatch.setattr(volume_transfer, "BLOCK", 1000)
    api.volume = undeployed / "volume"
    yield api.volume / "words"
    assert not api.of("reader", "pods")


def test_without_aws_a_local_file_is_on_the_volume_before_the_data_job_is(
    run: Run, api: JobController, own_volume: Path
) -> None:
    file, place = own_volume / "sources/words.tsv", "/home/jobpath/words/sources/words.tsv"
    assert (
        "mine/words.tsv would be uploaded to the volume: words/sources/words.tsv"
        in run("submit", "--dry-run").err
    )
    done = run("manifests")
    assert (
        done.code == 0
        and (
            f"before the data job starts, mine/words.tsv has to be at {place}: `submit` brings it "
            "there, and so does `paddle-aws upload mine/words.tsv --volume --job job.yaml`\n"
        )
        == done.err
    )
    assert not own_volume.exists()
    # A command was killed after 2,000 bytes; then the volume loses a byte of the rest.
    file.parent.mkdir(parents=True)
    part = file.with_name(".words.tsv.part")
    part.write_bytes(RECORDS[:2000])
    damage = partial(part.write_bytes, RECORDS[:-1] + b"?")
    api.faults = [Fault("/sums.*part=1", skip=1, then=damage)]
    done = run("submit")
    assert done.code == 1 and "words.tsv changed on its way to the volume" in done.err
    assert not file.exists() and not api.all("jobs")
    first = [path for method, path in api.requests if method == "PUT"]
    assert min(int(path.rpartition("offset=")[2]) for path in first) == 2000

    done = run("submit", "--wait")
    assert done.code == 0, done.err
    assert "mine/words.tsv is uploaded to the volume: words/sources/words.tsv" in done.err
    assert file.read_bytes() == RECORDS and not part.exists()
    variables = api.of("data")[0]["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "DATA_SOURCE", "value": place} in variables
    sent = [number for number, (method, path) in enumerate(api.requests) if "/commit?" in path]
    jobs = [
        number
        for number, (method, path) in enumerate(api.requests)
        if method == "PATCH" and "/jobs/" in path
    ]
    assert len(sent) == 1 and sent < jobs

    Path("job.yaml").write_text(Path("job.yaml").read_text() + "passes: 3\n")
    api.requests.clear()
    assert "words.tsv is already on the volume" in run("submit", "--wait").err
    assert not [path for method, path in api.requests if method == "PUT"]


def test_a_local_input_is_on_the_volume_before_the_data_job_of_a_command_without_data(
    run: Run, api: JobController, own_volume: Path
) -> None:
    settings = yaml.safe_load(Path("job.yaml").read_text())
    del settings["data"]
    inputs = {"chars": "mine/words.tsv", "base": {"from_job": "earlier", "path": "epoch_9.*"}}
    settings |= {"command": "train {chars} {base}", "inputs": inputs}
    settings |= {"program": {"folder": "quick_start"}}
    Path("job.yaml").write_text(yaml.safe_dump(settings))
    place = "/home/jobpath/words/sources/inputs/chars/words.tsv"
    assert f"mine/words.tsv has to be at {place}: `submit` brings it" in run("manifests").err
    assert "mine/words.tsv would be uploaded as the input chars" in run("submit", "--dry-run").err
    done = run("submit", "--wait")
    assert done.code == 0, done.err
    assert (own_volume / "sources/inputs/chars/words.tsv").read_bytes() == RECORDS
    (job,) = api.of("data")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    variables = {variable["name"]: variable.get("value") for variable in container["env"]}
    assert "DATA_SOURCE" not in variables and json.loads(variables["PADDLE_NODE_INPUTS"]) == {
        "chars": place,
        "base": "job:earlier/epoch_9.*",
    }
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    assert mounts["/home/jobpath/earlier"]["readOnly"]
    (trainer,) = api.of("trainer")[0]["spec"]["template"]["spec"]["containers"]
    mounts = {mount["mountPath"]: mount for mount in trainer["volumeMounts"]}
    assert mounts["/home/jobpath/shared/inputs"]["readOnly"]
    assert "/home/jobpath/earlier" not in mounts

    (own_volume.parents[1] / "mine/words.tsv").unlink()
    refused = run("submit")
    assert (refused.code, refused.err) == (
        2,
        "job.yaml: inputs.chars is mine/words.tsv: there is no file mine/words.tsv; give a file "
        "(a folder as a .tar), s3:// or https://\n",
    )


def test_what_upload_prints_is_a_source_for_job_yaml(
    run: Run, api: JobController, own_volume: Path
) -> None:
    """Nothing was deployed, and the cluster does not know the job yet."""
    done = run("upload", "mine/words.tsv", "--volume", "--job", "job.yaml")
    assert (done.code, done.out) == (0, "/home/jobpath/words/sources/words.tsv\n"), done.err
    assert (own_volume / "sources/words.tsv").read_bytes() == RECORDS
    folder = run("upload", "mine", "--volume")
    assert (folder.code, folder.out) == (0, "/home/jobpath/words/mine\n")
    assert (own_volume / "mine/words.tsv").read_bytes() == RECORDS
    text = Path("job.yaml").read_text()
    for address in (done.out, folder.out):
        Path("job.yaml").write_text(text.replace("mine/words.tsv", address.strip()))
        documents = [*yaml.safe_load_all(run("submit", "--dry-run").out)]
        (data,) = (d for d in documents if d["kind"] == "Job" and "-data-" in d["metadata"]["name"])
        pod = data["spec"]["template"]["spec"]
        assert {"name": "DATA_SOURCE", "value": address.strip()} in pod["containers"][0]["env"]
        # The data job sees it: it lies in the job's own folder.
        assert [mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]][:1] == [
            "/home/jobpath/words"
        ]
        assert run("submit", "--wait").code == 0
        assert run("delete").code == 0
    done = run("upload", "mine/words.tsv")
    assert done.code == 2 and "or upload to the job's volume with --volume" in done.err


def test_pods_that_do_not_start_or_are_not_even_made_say_why(
    run: Run, api: JobController, folder: Path
) -> None:
    """A job that only waits is left waiting, because it is on the cluster."""
    no_mount = (
        'MountVolume.SetUp failed for volume "v": rpc error: code = DeadlineExceeded desc = '
        "context deadline exceeded"
    )
    api.scripts["trainer"] = Script(
        status={"phase": "Pending"}, events=(("FailedMount", no_mount),)
    )
    done = run("submit")
    assert (
        done.code == 0 and "its volume cannot be mounted in time: does its server run" in done.err
    )
    assert json.loads(run("status", "--json").out)["state"] == "waiting"
    assert run("delete", "--force").code == 0
    # A Job whose pods the namespace refuses has no pods; its events have the reason.
    quota = "exceeded quota: q, requested: pods=1, used: pods=9, limited: pods=9"
    api.scripts["trainer"] = Script(refused=f'Error creating: pods "words-" is forbidden: {quota}')
    done = run("submit")
    assert (
        done.code == 0
        and "training waits: its pods are more than the namespace's quota q allows" in done.err
    )
    status = json.loads(run("status", "--json").out)
    assert status["state"] == "waiting" and status["training"]["reason"].startswith(
        "its pods are more than"
    )
    assert "wait for other jobs, or raise namespace_limits" in run("status").out


def test_the_program_goes_up_once_and_before_either_job(
    run: Run, api: JobController, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.volume = folder / "volume"
    (folder / "mine").mkdir()
    (folder / "mine" / "train.py").write_text("print('mine')\n")
    edit(folder, "program: {from: folder, path: mine}\n")
    with monkeypatch.context() as without:
        without.setenv("KUBECONFIG", "/nonexistent")
        dry = run("submit", "--dry-run")
    sent = [document["kind"] for document in yaml.safe_load_all(dry.out)]
    assert (dry.code, sent[0], sent[-1], api.requests) == (0, "Namespace", "Job", [])
    assert "would be sent once words-data-" in dry.err
    assert "mine, 14 bytes" in dry.err and not (folder / "volume").exists()

    done = run("submit", "--wait")
    assert done.code == 0, done.err
    (archive,) = (folder / "volume" / "words" / "programs").iterdir()
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == archive.stem
    assert {"name": "PADDLE_NODE_PROGRAM_ARCHIVE", "value": archive.stem} in api.of(
        "trainer", "pods"
    )[0]["spec"]["containers"][0]["env"]
    sent = [
        number
        for number, (method, path) in enumerate(api.requests)
        if method == "PUT" and "programs" in path
    ]
    jobs = [
        number
        for number, (method, path) in enumerate(api.requests)
        if method == "PATCH" and "/jobs/" in path
    ]
    assert len(sent) == 1 and sent < jobs

    edit(folder, "passes: 3\nprogram: {from: folder, path: mine}\n")
    again = run("submit", "--wait")
    assert again.code == 0 and "mine is already on the volume: words/programs/" in again.err
    # This is for manifests that a person reads and applies by hand; it also repairs what a stranger
    # changed.
    archive.write_bytes(archive.read_bytes().replace(b"mine", b"evil"))
    assert run("upload", "--program").code == 0
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == archive.stem
    edit(folder, "")
    refused = run("upload", "--program")
    assert refused.code == 2
    assert (
        refused.err.splitlines()[-1]
        == "program.from is image: --program uploads one `from: folder` or `from: git`"
    )


def test_a_data_file_goes_to_the_volume_where_it_shall(
    run: Run, api: JobController, folder: Path
) -> None:
    """No bucket is asked: the job's own image and volume make any Kubernetes enough."""
    api.volume = folder / "volume"
    (folder / "outputs.json").unlink()
    (folder / "mine.tsv").write_text("a\tb\n" * 50)
    (folder / "job.yaml").write_text(
        "name: words\nnamespace: default\ntrainers: 2\nimage: mine:1\n"
        "data: {source: mine.tsv, upload_to: volume}\nvolume: {kind: claim, claim: mine}\n"
    )
    done = run("submit", "--wait")
    assert done.code == 0, done.err
    assert "mine.tsv is uploaded to the volume: words/sources/mine.tsv" in done.err
    sent = (folder / "volume" / "words" / "sources" / "mine.tsv").read_text()
    assert sent == (folder / "mine.tsv").read_text()
    (container,) = api.of("data")[0]["spec"]["template"]["spec"]["containers"]
    source = {"name": "DATA_SOURCE", "value": "/home/jobpath/words/sources/mine.tsv"}
    assert source in container["env"]
    requests = [path for method, path in api.requests if method in ("PUT", "PATCH")]
    sent, jobs = (
        [number for number, path in enumerate(requests) if part in path]
        for part in ("sources%2Fmine.tsv", "/jobs/")
    )
    assert sent and max(sent) < min(jobs)
    assert run("delete").code == 0
    again = run("submit", "--wait")
    assert "mine.tsv is already on the volume" in again.err


@pytest.mark.parametrize(("kind", "status", "words"), TABLES["others"])
def test_what_somebody_else_has_made_is_not_overwritten(
    run: Run, api: JobController, folder: Path, kind: str, status: int, words: str
) -> None:
    if kind.startswith("custom"):
        (folder / "job.yaml").write_text(PADDLE_JOB)
    api.faults = [Fault(f"/{kind}/", "PATCH", status=status)]
    done = run("submit")
    assert done.code == 2 and words in done.err
    assert all(
        "force" not in path and "fieldManager=paddle-aws" in path
        for method, path in api.requests
        if method == "PATCH"
    )

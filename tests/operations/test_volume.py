"""`results`, `resume`, `logs --volume` and `upload --volume`: the volume through a helper pod,
whose program really runs.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import kubernetes_validate
import pytest
import yaml
from commands import Run
from job_controller import JobController, Script
from kubernetes_api import Fault, Object
from listeners import answer, ask_as_strangers, listeners
from paddle_node.volume import passes
from paddle_node.volume.job_folder import JobFolder
from saved_pass import save_model, save_pass

from k8s_charts.deployed import ClusterOutputs
from k8s_charts.documents import documents
from k8s_charts.spec import TrainingJob
from paddle_aws.operations.cluster.cluster_api import ClusterApi
from paddle_aws.operations.errors import Failed
from paddle_aws.operations.jobs.job_source import JobReference
from paddle_aws.operations.jobs.volume import access as volume_access
from paddle_aws.operations.jobs.volume import transfer as volume_transfer
from paddle_aws.operations.jobs.volume.access import MissingFile
from paddle_aws.operations.jobs.volume.fetching import model_words
from paddle_aws.operations.jobs.volume.server import Folder

pytestmark = pytest.mark.slow
TABLES = yaml.safe_load(Path(__file__).with_name("volume.yaml").read_text())


@pytest.fixture(autouse=True)
def no_reader_is_left(api: JobController) -> Iterator[None]:
    """Neither a helper pod nor an evaluation's Job outlives its command."""
    yield
    assert api.of("reader") == api.of("reader", "pods") == []


def test_an_inspection_pod_answers_no_stranger(
    run: Run, api: JobController, job: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one who may list pods: what the pod's description shows opens nothing."""
    answers: list[set[int]] = []
    serve = api.serve

    def serve_and_ask(pod: Object) -> None:
        serve(pod)
        (server,) = listeners(api.processes[-1].pid)
        digest = pod["spec"]["containers"][0]["args"][1]
        known = answer(server, "GET", {}, f"/{digest}/files?path=")
        answers.append(ask_as_strangers(server) | {known})

    monkeypatch.setattr(api, "serve", serve_and_ask)
    assert run("results").code == 0
    # Not found, or no such method.
    assert answers == [{404, 501}]


def test_results_as_a_table(run: Run, api: JobController, job: JobFolder) -> None:
    done = run("results", columns=70)
    assert done.code == 0, done.err
    rows = [line.split() for line in done.out.splitlines()]
    assert rows[0] == ["PASS", "SAVED", "SIZE", "LOSS", "RECORDS", "TIME"]
    assert [row[:6] for row in rows[1:5]] == [
        ["0", "complete", "100.4", "kB", "3.0000", "200"],
        ["1", "complete", "100.4", "kB", "2.0000", "200"],
        ["2", "complete", "100.4", "kB", "1.0000", "200"],
        ["3", "incomplete", "1", "byte"],
    ]
    assert max(map(len, done.out.splitlines())) <= 70
    results = json.loads(run("results", "--json").out)
    assert [(row["pass"], row["complete"]) for row in results["passes"]] == [
        (0, True),
        (1, True),
        (2, True),
        (3, False),
    ]
    assert [t["loss"] for t in results["passes"][2]["trainers"]] == [1.0, 1.0]

    # A pass counts once all of its own trainers have reported it: pass 0 had three, the run after
    # it has two.
    facts = {"loss": 0.5, "records": 10, "seconds": 1.0, "time": 100.0}
    for trainer, last in ((0, 2), (1, 1), (2, 0)):
        lines = [
            {**facts, "pass": n, "attempt": 2 if n else 1, "trainers": 2 if n else 3}
            for n in range(last + 1)
        ]
        job.node(trainer).mkdir(exist_ok=True)
        job.metrics(trainer).write_text("".join(json.dumps(line) + "\n" for line in lines))
    rows = json.loads(run("results", "--json").out)["passes"]
    assert [sum(trainer["records"] for trainer in row.get("trainers", ())) for row in rows] == [
        30,
        20,
        0,
        0,
    ]


def test_why_the_last_run_failed_outlives_its_pods(run: Run, job: JobFolder) -> None:
    """Also, a record that nobody can read hides nothing else."""
    history = {
        "attempts": [{"number": 1, "run": "r1", "started": 1e9}],
        "outcomes": {"r1": {"code": 70, "sentence": "trainer 2 ended with 1: boom\x1b"}},
    }
    job.run_state.mkdir(parents=True, exist_ok=True)
    for record in (json.dumps(history), "[]", '{"attempts": [], "outcomes": {}}'):
        (job.run_state / "attempts.json").write_text(record)
        failure = "trainer 2 ended with 1: boom" if "boom" in record else ""
        done = run("results")
        assert done.code == 0 and "complete" in done.out
        assert (f"its last run failed: {failure}\n" in done.err) == bool(failure)
        assert json.loads(run("results", "--json").out)["failure"] == failure


def test_a_download_is_verified_and_taken_up_where_it_broke(
    run: Run, api: JobController, job: JobFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(volume_transfer, "BLOCK", 30_000)
    target = tmp_path / "home" / "pass-00002"
    (target / "000").mkdir(parents=True)
    (target / "000" / ".part-0.part").write_bytes(bytes([2]) * 50_000)
    api.faults = [Fault("part-0.*offset=50000", cut=7, times=2), Fault("offset=80000", status=502)]
    done = run("results", "--download", "last", "--to", "home")
    assert done.code == 0, done.err
    assert "every checksum right" in done.err
    passes.verify(target)
    assert (target / "000" / "part-0").read_bytes() == (
        job.pass_dir(2) / "000" / "part-0"
    ).read_bytes()
    assert not any(
        "offset=0&" in path for _, path in api.requests if "/read?" in path and "part-0" in path
    )


def test_the_model_comes_with_the_lines_that_predict_with_it(
    run: Run, job: JobFolder, tmp_path: Path
) -> None:
    done = run("results", "--model")
    assert (done.code, done.out) == (
        2,
        "",
    ) and "job words has no model in output/inference" in done.err
    save_model(job, {"model.pdmodel": b"old", "predict.py": b"import paddle\n"})
    assert run("results", "--model", "--to", "home").out == "import paddle\n"
    # The job was trained again, with files of the same sizes; text from the volume cannot move the
    # cursor.
    new = save_model(
        job, {"model.pdmodel": b"new", "predict.py": b"import numpy\x1b[2J\n"}, attempt=2
    )
    done = run("results", "--model", "--to", "home")
    assert (done.code, done.out) == (0, "import numpy\n"), done.err
    passes.verify(tmp_path / "home" / "model")
    assert (tmp_path / "home/model/model.pdmodel").read_bytes() == b"new"
    (new / "model.pdmodel").write_bytes(b"bad")
    done = run("results", "--model", "--to", "home")
    assert done.code == 1 and "model.pdmodel was changed after it was saved" in done.err


@pytest.mark.parametrize("goes_on", [False, True], ids=["afterwards", "while the run goes on"])
def test_files_that_only_the_program_knows(
    run: Run, api: JobController, job: JobFolder, tmp_path: Path, goes_on: bool
) -> None:
    place = job.attempt("run", 7) / "output" if goes_on else job.output
    (place / "mine/deep").mkdir(parents=True)
    (place / "mine/deep/weights").write_bytes(b"w" * 1000)
    (place / "epochs.jsonl").write_text("{}\n")
    if goes_on:  # As the agent of rank 0 leads people to the attempt's folder.
        (job.attempts / "newest").symlink_to("run-7")
        for name in ("mine", "epochs.jsonl"):
            (job.output / name).symlink_to(f"attempts/newest/output/{name}")
    listed = [entry["name"] for entry in json.loads(run("results", "--json").out)["files"]]
    assert [name for name in listed if "mine" in name or "epochs" in name] == [
        "epochs.jsonl",
        "mine/",
    ]
    assert run("results", "--download", "output/mine", "--to", "home").code == 0
    assert (tmp_path / "home/mine/deep/weights").read_bytes() == b"w" * 1000
    # A file that grows while it is fetched arrives as it was listed.
    api.faults = [
        Fault("/sums.*epochs", then=lambda: (job.output / "epochs.jsonl").write_text("{}\n{}\n"))
    ]
    assert run("results", "--download", "output/epochs.jsonl", "--to", "home").code == 0
    assert (tmp_path / "home/epochs.jsonl").read_text() == "{}\n" and api.faults[0].times == 0
    done = run("results", "--download", "output/no", "--to", "home")
    assert done.code == 2 and done.err.endswith(
        "the volume has no such file or folder below output/\n"
    )


def test_what_a_command_wrote_is_listed_and_comes_as_a_whole(
    run: Run, api: JobController, folder: Path
) -> None:
    """A command has no passes: its results are its files, without those of the agent."""
    api.volume = folder / "volume"
    output = api.volume / "words" / "output"
    assert run("submit", "--wait").code == 0
    (output / "run").mkdir(parents=True)
    (output / "run/secret-1").write_text("nobody's")
    done = run("results")
    assert (done.code, done.out) == (0, "")
    assert done.err == "job words has neither finished a pass nor written a file to output/ yet\n"
    done = run("results", "--download", "output")
    assert done.code == 2 and done.err.endswith("the program wrote no file to output/\n")
    assert model_words(Folder(output.parent), "words", {}) == [
        "the program wrote no file to output/"
    ]
    for name, size in (("epochs/1.pdparams", 3000), ("epochs/2.pdparams", 5000), ("a.json", 2)):
        (output / name).parent.mkdir(exist_ok=True)
        (output / name).write_bytes(b"x" * size)
    for name in ("node_0/train.log", "attempts/run-1/x", "agreed/words.json", ".hidden"):
        (output / name).parent.mkdir(parents=True, exist_ok=True)
        (output / name).write_text("the agent's")
    done = run("results")
    rows = [line.split()[:4] for line in done.out.splitlines()]
    assert rows == [
        ["OUTPUT", "FILES", "SIZE", "AGE"],
        ["a.json", "1", "2", "bytes"],
        ["epochs/", "2", "8.0", "kB"],
    ]
    listed = json.loads(run("results", "--json").out)
    assert [(row["name"], row["bytes"]) for row in listed["files"]] == [
        ("a.json", 2),
        ("epochs/", 8000),
    ]
    assert model_words(Folder(output.parent), "words", {}) == [
        "the program wrote a.json, epochs/ to output/: `paddle-aws results words --download "
        "output` fetches that"
    ]
    for path in ("output", "output/"):
        assert run("results", "--download", path, "--to", "home").code == 0
    fetched = {
        file.relative_to(folder / "home/output").as_posix(): file.stat().st_size
        for file in (folder / "home/output").rglob("*")
        if file.is_file()
    }
    assert fetched == {"epochs/1.pdparams": 3000, "epochs/2.pdparams": 5000, "a.json": 2}


def test_evaluate_is_a_short_job_that_removes_itself(
    run: Run, api: JobController, job: JobFolder
) -> None:
    api.scripts["reader"] = Script(lines=("a warning of Paddle's", json.dumps(TABLES["measured"])))
    created: list[dict[str, Any]] = []
    api.created = lambda document: (created.append(document), api.control(document))
    done = run("evaluate")
    assert done.code == 0, done.err
    assert (
        done.out
        == "accuracy 0.910 of pass 2, on 300 records that no trainer saw\nalways guessing a: "
        "0.400\n"
    )
    assert json.loads(run("evaluate", "--json").out) == TABLES["measured"]
    document = next(document for document in created if document["kind"] == "Job")
    kubernetes_validate.validate(document, "1.35", strict=True)
    pod = document["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["command"] == ["python3", "/opt/paddle/evaluate_pass.py"]
    assert all(m["readOnly"] for m in container["volumeMounts"] if m["name"] == "job")
    assert (
        container["securityContext"]["readOnlyRootFilesystem"]
        and pod["securityContext"]["runAsNonRoot"]
    )
    # The job's own state is unchanged, and needed: the settings come from its objects.
    assert "words is done" in run("status").out and run("delete").code == 0
    done = run("evaluate")
    assert done.code == 2 and "the cluster has no training Job of words" in done.err


def test_an_evaluation_or_a_helper_pod_that_fails_says_why(
    run: Run, api: JobController, job: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.scripts["reader"] = Script(lines=(), code=65, message="held-out has no records")
    done = run("evaluate")
    assert done.code == 1 and "held-out has no records" in done.err
    for marker in job.output.glob("attempts/*/pass-*/done"):
        marker.unlink()
    done = run("evaluate")
    assert done.code == 2 and "job words has no complete pass" in done.err
    monkeypatch.setattr(volume_access, "READY_DEADLINE", 0.5)
    container = {
        "image": "x:1",
        "state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}},
    }
    api.scripts["reader"] = Script(status={"phase": "Pending", "containerStatuses": [container]})
    done = run("results")
    assert done.code == 1 and "image x:1 does not exist" in done.err


def test_a_damaged_pass_is_told(run: Run, job: JobFolder, tmp_path: Path) -> None:
    (job.pass_dir(1) / "000" / "part-0").write_bytes(b"\xff" * 100_000)
    done = run("results", "--download", "1", "--to", "home")
    assert done.code == 1 and "000/part-0 was changed after it was saved" in done.err
    assert not (tmp_path / "home" / "pass-00001" / "done").exists()
    done = run("results", "--download", "3")
    assert (done.code, done.err.splitlines()[-1]) == (
        2,
        "pass 3 is not complete on the volume: complete are 0, 1, 2",
    )
    (job.pass_dir(2) / "done").write_bytes(b"[" * 100_000)
    done = run("results", "--download", "2")
    assert (done.code, done.err.splitlines()[-1]) == (
        2,
        "pass 2 is not complete on the volume: complete are 0, 1",
    )


def test_the_last_pass_is_the_newest_valid_one_wherever_an_earlier_run_left_higher_numbers(
    run: Run, job: JobFolder, tmp_path: Path
) -> None:
    """Passes 0 to 2 belong to another run; the newest attempt has saved passes 0 and 1, and its
    pass 1 is damaged.
    """
    save_pass(job, 0, {"000/part-0": b"newest"}, attempt=2)
    (save_pass(job, 1, {"000/part-0": b"damaged"}, attempt=2) / "000" / "part-0").unlink()
    assert run("results", "--download", "last", "--to", "home").code == 0
    assert (tmp_path / "home" / "pass-00000" / "000" / "part-0").read_bytes() == b"newest"
    # The complete pass 1 is shown and fetched; the links for people are listed, but not as passes
    # of their own.
    rows = json.loads(run("results", "--json").out)["passes"]
    folders = [
        f"attempts/run-{attempt}/pass-{number:05d}" for number, attempt in enumerate((2, 1, 1))
    ]
    assert [row["folder"] for row in rows[:3]] == folders


def test_logs_from_the_volume(run: Run, job: JobFolder) -> None:
    assert run("logs", "--volume", "train", "--rank", "1").out.splitlines() == [
        f"trainer 1 | line {n} of 1" for n in range(3)
    ]
    assert (
        run("logs", "--volume", "train", "--tail", "1").out
        == "trainer 0 | line 2 of 0\ntrainer 1 | line 2 of 1\n"
    )
    done = run("logs", "--volume", "server")
    assert done.code == 2 and "has no server.log on the volume" in done.err


def test_resume_from_an_earlier_pass_shows_the_new_runs_lines_alone(
    run: Run, api: JobController, job: JobFolder
) -> None:
    before = api.of("trainer")
    api.faults = [Fault("set_aside", "POST", cut=0)]
    api.scripts["trainer"] = Script(lines=("trainer RANK goes on",))
    done = run("resume", "--from", "1", "--follow", "--verbose")
    assert done.code == 0 and api.faults[0].times == 0, done.err
    assert (
        "is done: 3 of 3 pods succeeded" in done.err
        and "`paddle-aws results words --model` fetches the model" in done.err
    )
    assert sorted(done.out.splitlines()) == [
        f"trainer {rank} | trainer {rank} goes on" for rank in range(3)
    ]
    assert [saved_pass.number for saved_pass in passes.read_newest_first(job)] == [1, 0]
    assert (job.attempt("run", 1) / "pass-00002.set-aside-1" / "done").exists()
    assert before[0]["metadata"]["uid"] != api.of("trainer")[0]["metadata"]["uid"]
    assert run("resume", "--from", "2").code == 2
    api.scripts["trainer"] = Script(code=None)
    assert run("resume").code == 0
    done = run("resume")
    assert done.code == 2 and "runs already" in done.err


@pytest.mark.parametrize(("jobs", "manifest", "split"), TABLES["resume"])
def test_resume_splits_only_where_the_shards_are_not_its_own(
    run: Run, api: JobController, job: JobFolder, jobs: str, manifest: str, split: bool
) -> None:
    """The source does not matter, because only the data job would look at it. `jobs`: those that
    the cluster still has.
    """
    (ours,) = api.of("data")
    (trainer,) = api.of("trainer", "pods")[0]["spec"]["containers"]
    digest = next(v["value"] for v in trainer["env"] if v["name"] == "PADDLE_NODE_DATA_JOB")
    if manifest != "none":
        text = json.dumps({"version": 1, "job": digest if manifest == "its own" else "0ther"})
        job.data_manifest.write_text("{" if manifest == "damaged" else text)
    for document in api.all("jobs") if jobs == "none" else ():
        api.remove(document)
    if "another's" in jobs:
        other = {"name": "words-data-0ther"} | {
            key: ours["metadata"][key] for key in ("namespace", "labels")
        }
        api.put(json.loads(json.dumps(ours | {"metadata": other}).replace(digest, "0ther")))
    done = run("resume", "--wait")
    assert (
        done.code == 0 and ("the data is split" if split else "it is not split again") in done.err
    )
    after = [data_job["metadata"]["uid"] for data_job in api.of("data")]
    if split:
        assert len(after) == 1 and after != [ours["metadata"]["uid"]]
    else:
        assert after == ([] if jobs == "none" else [ours["metadata"]["uid"]])


def written(api: JobController) -> list[str]:
    """What was sent to the volume, in order: names and offsets."""
    queries = [parse_qs(urlsplit(path).query) for method, path in api.requests if method == "PUT"]
    return [f"{query['path'][0]} {query['offset'][0]}" for query in queries]


def test_an_upload_to_the_volume_is_taken_up_where_it_was_interrupted(
    run: Run, api: JobController, job: JobFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(volume_transfer, "BLOCK", 1000)
    program = tmp_path / "my_program"
    (program / "__pycache__").mkdir(parents=True)
    (program / "__pycache__" / "x.pyc").write_text("x")
    (program / "train.py").write_text("print(1)\n")
    large = bytes(range(250)) * 20
    (program / "large").write_bytes(large)
    there = job.root / "my_program"
    there.mkdir()
    # 2,000 bytes are right, and the rest is of another file: a command was killed, then the file
    # was edited.
    (there / ".large.part").write_bytes(large[:2500] + b"?" * 300)
    # The answer to the commit gets lost: the commit is sent again, onto its own result.
    api.faults = [
        Fault("commit.*large", "POST", cut=0),
        Fault("large&offset=3000", "PUT", status=502),
    ]
    done = run("upload", "my_program", "--volume")
    assert done.code == 0 and "2 of 2 files sent" in done.err
    assert all(fault.times == 0 for fault in api.faults)
    assert [write for write in written(api) if "large" in write] == [
        f"my_program/large {offset}" for offset in (2000, 3000, 3000, 4000)
    ]
    assert (there / "large").read_bytes() == large and not (there / ".large.part").exists()
    # A file that the volume already has is neither sent again nor read back to find that out.
    api.requests.clear()
    (program / "train.py").write_text("print(2)\n")
    done = run("upload", "my_program", "--volume")
    assert "1 of 2 files sent" in done.err and written(api) == ["my_program/train.py 0"]
    assert not [path for _, path in api.requests if "/read?" in path and "large" in path]
    assert (there / "train.py").read_text() == "print(2)\n"
    (tmp_path / "empty").write_bytes(b"")
    for sent in (1, 0):
        assert f"{sent} of 1 file sent" in run("upload", "empty", "--volume").err
        assert (job.root / "sources" / "empty").read_bytes() == b""


def test_after_a_failure_no_file_is_sent_to_its_end(
    run: Run, api: JobController, job: JobFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same holds for Ctrl-C, which takes the same path: a large file would keep the command
    busy for minutes.
    """
    monkeypatch.setattr(volume_transfer, "BLOCK", 1000)
    (tmp_path / "program").mkdir()
    for name, size in (("bad", 1), ("large", 10_000_000)):
        (tmp_path / "program" / name).write_bytes(bytes(size))
    (job.root / "program" / ".bad.part").mkdir(parents=True)
    done = run("upload", "program", "--volume")
    assert done.code == 1 and "the volume refuses words/program/bad" in done.err
    assert not (job.root / "program" / "large").exists()


def test_results_of_a_job_that_the_cluster_has_forgotten(
    run: Run, api: JobController, job: JobFolder, folder: Path
) -> None:
    # ttlSecondsAfterFinished removes a Job, but its volume stays.
    for document in api.all("jobs"):
        api.remove(document)
    volumes = api.all("persistentvolumeclaims") + api.all("persistentvolumes")
    done = run("results")
    assert done.code == 0, done.err
    assert "the cluster has no Job of words: its volume" in done.err and "complete" in done.out
    assert api.all("persistentvolumeclaims") + api.all("persistentvolumes") == volumes
    # `delete` removes the claim, too, and so does the next `delete`.
    for _ in range(2):
        assert (
            run("delete").code == 0
            and api.all("persistentvolumeclaims") == api.all("persistentvolumes") == []
        )
        assert (
            run("logs", "--volume", "train", "--rank", "1", "--tail", "1").out
            == "trainer 1 | line 2 of 1\n"
        )
    (folder / "job.yaml").unlink()
    done = run("results", "words")
    assert done.code == 2
    assert (
        done.err.startswith("job words has no Job or PaddleJob")
        and "name its job file instead" in done.err
    )


def test_nothing_outside_of_the_jobs_folder_is_listed_or_read(
    run: Run, api: JobController, job: JobFolder, tmp_path: Path
) -> None:
    (tmp_path / "volume" / "secret").write_text("x")
    for name, target in (("circle", "."), ("out", tmp_path), ("self", "self")):
        (job.root / name).symlink_to(target)
    words = JobReference("words", "paddle", None)
    with volume_access.mount_volume(ClusterApi(), words, write=False) as volume:
        assert not [
            file["name"] for file in volume.files("") if not file["name"].startswith("output/")
        ]
        assert volume.read("output/pass-00002/000/part-0", 0, 1) == b"\2"
        for path in ("../secret", "/etc/passwd", "../../volume/secret", "out/volume/secret"):
            with pytest.raises(MissingFile, match="outside of the job's folder"):
                volume.read(path)
        with pytest.raises(Failed, match="the volume refuses words/self"):
            volume.read("self")
        volume.token = "wrong"
        with pytest.raises(MissingFile, match="no such thing"):
            volume.read("data-manifest.json")


def test_the_inspection_pod_is_harmless_and_sees_the_jobs_own_folder_alone() -> None:
    """It does not see what the data job reads outside of that folder, because that source may be
    gone by then.
    """
    manifests = documents(
        TrainingJob.parse(TABLES["inspected"]), ClusterOutputs.placeholder(), "image"
    )
    for job in (document for document in manifests if document["kind"] == "Job"):
        pod = volume_access.inspection_pod(
            job["spec"]["template"], "words", "helper", "token", write=False
        )
        kubernetes_validate.validate(pod, "1.35", strict=True)
        spec = pod["spec"]
        (maker,), (container,) = spec["initContainers"], spec["containers"]
        assert maker["args"] == ["team/words"] and maker["resources"] == container["resources"]
        mount = {
            "name": "job",
            "mountPath": "/home/jobpath/words",
            "subPath": "team/words",
            "readOnly": True,
        }
        assert container["volumeMounts"] == [mount] and container["args"][0] == mount["mountPath"]
        assert [volume["name"] for volume in spec["volumes"]] == ["job"]
        assert (
            container["securityContext"]["allowPrivilegeEscalation"]
            is spec["automountServiceAccountToken"]
            is False
        )
        assert (
            spec["securityContext"]["runAsNonRoot"] is True
            and spec["securityContext"]["seccompProfile"]
        )
        # Each program with a pod-list's token may read this description.
        assert "token" not in json.dumps(pod["spec"]["containers"][0]["args"])
        assert spec["activeDeadlineSeconds"] == 4 * 3600 and spec["restartPolicy"] == "Never"

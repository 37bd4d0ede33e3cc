"""Data that cannot be trained on ends the job at once, with one sentence. Real Paddle: about 6 s a test."""

import gzip
import json

import pytest
from paddle_node.training import passes

pytestmark = pytest.mark.slow


def without_traceback(job) -> str:
    said = job.said()
    assert "Traceback" not in said, said
    return said


def test_a_file_of_another_format_is_refused_naming_a_record(training_job):
    job = training_job(pods=1, PASSES="1")
    source = job.place / "source"
    source.write_text("".join(f"no tab in line {number}\n" for number in range(50)))
    job.split(source)
    job.start()
    assert job.wait() == [65], job.said()
    said = without_traceback(job)
    assert "45 of 45 records cannot be read, at most 1% may be so; the first is record" in said
    assert "a line must be label<TAB>text" in said
    assert "attempt 2" not in said


def test_a_few_odd_lines_are_left_out_and_counted(training_job):
    job = training_job(pods=1, PASSES="1", SEED=str(2**31 - 1))
    source = job.make_sample("--lines", "600")
    source.write_text(source.read_text() + "an odd line\n\n\n")
    job.split(source, hold_out=0)
    job.start()
    assert job.wait() == [0], job.said()
    assert [(m["records"], m["skipped"]) for m in job.metrics(0)] == [(603, 3)]
    assert "1 of 603 records cannot be read and are left out" in job.folder.train_log(0).read_text()


def test_a_trainer_never_trains_on_nothing(training_job):
    job = training_job(pods=1, PASSES="1")
    job.split(job.make_sample("--lines", "50"))
    # As by hand: a folder without manifest, and nothing in it.
    job.folder.data_manifest.unlink()
    job.folder.shard(0).unlink()
    job.folder.shard(0).mkdir()
    (job.folder.shard(0) / "mine").write_text("\n\n")
    job.start()
    assert job.wait() == [65], job.said()
    assert "nothing is left to train on" in without_traceback(job)


def test_a_pass_whose_bytes_are_as_saved_and_that_no_process_can_load_is_passed_over(training_job):
    """It ended the job with 65 in every process. In the pass before, Adam's moments are subnormal, and are read."""
    job = training_job(pods=1, PASSES="2")
    job.split(job.make_sample("--lines", "600"))
    job.start()
    assert job.wait() == [0], job.said()
    for number, name, change in (
        (
            0,
            "001/part-000.gz",
            lambda data: gzip.compress(gzip.decompress(data)[:-1].rpartition(b"\n")[0] + b"\n0.1 1e-42 1e-42\n"),
        ),
        (1, "parameters.json", lambda data: data.replace(b'"adam"', b'"none"')),
    ):
        directory = job.folder.pass_dir(number)
        (file,) = directory.glob(name)
        file.write_bytes(change(file.read_bytes()))
        facts = {key: value for key, value in passes.record(directory).items() if key not in ("files", "checksum")}
        (directory / "done").unlink()
        passes.seal(directory, facts)
    job.start(RUN_ID="again")
    assert job.wait() == [0], job.said()
    attempts = json.loads((job.folder.run_state / "attempts.json").read_text())["attempts"]
    assert [attempt["resume"].get("pass") for attempt in attempts] == [None, "1", "1", "0"]
    log = job.logs[0].read_text()
    assert "describes no pass (optimizer is 'none'" in log and "pass-00001 is passed over: two attempts" in log
    assert "Traceback" not in log


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (b"words of text %d\tarts", "records have 54 different answers: is the answer in another column?"),
        (b"arts\twords of text %d", "every record has the answer 'arts', so there is nothing to learn"),
        (b"arts\tcaf\xe9 %d", "54 of 54 records cannot be read, at most 1% may be so; the first is record 1 of"),
    ],
)
def test_answers_that_no_model_can_learn_end_the_job_naming_a_record(training_job, line, sentence):
    job = training_job(pods=1, PASSES="1")
    source = job.place / "source"
    source.write_bytes(b"".join(line % number + b"\n" for number in range(60)))
    job.split(source)
    job.start()
    assert job.wait() == [65], job.said()
    said = without_traceback(job)
    assert sentence in said and "attempt 2" not in said
    assert "record 1 of " in said and ("words of text" in said or "it is not UTF-8" in said)

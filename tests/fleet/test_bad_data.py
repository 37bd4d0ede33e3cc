"""Data that cannot be trained on ends the job at once with one sentence. Real Paddle: about 6 s per
test.
"""

import gzip
import json
from pathlib import Path

import pytest
import yaml
from paddle_node.volume import passes

pytestmark = pytest.mark.slow


FIRST, *OTHERS = yaml.safe_load(Path(__file__).with_name("bad_data.yaml").read_text())
TAUGHT = [FIRST, *(pytest.param(*row, marks=pytest.mark.long) for row in OTHERS)]


@pytest.mark.parametrize(("line", "sentence"), TAUGHT, ids=str)
def test_data_that_teach_nothing_end_the_job_naming_a_record(training_job, line, sentence):
    job = training_job(pods=1, PASSES="1")
    source = job.place / "source"
    source.write_text("".join(f"{line.format(number)}\n" for number in range(60)), "latin-1")
    job.split(source)
    said = job.run(65)
    assert sentence in said and "attempt 2" not in said and "Traceback" not in said
    assert not line or (
        "record 1 of " in said
        and ("of text" in said or "in line" in said or "it is not UTF-8" in said)
    )


def test_a_few_odd_lines_are_left_out_and_counted(training_job):
    job = training_job(pods=1, PASSES="1", SEED=str(2**31 - 1))
    source = job.make_sample("--lines", "600")
    source.write_text(source.read_text() + "an odd line\n\n\n")
    job.split(source, hold_out=0)
    job.run()
    assert [(m["records"], m["skipped"]) for m in job.metrics(0)] == [(603, 3)]
    assert "1 of 603 records cannot be read and are left out" in job.folder.train_log(0).read_text()


def test_a_pass_whose_bytes_are_as_saved_and_that_no_process_can_load_is_passed_over(training_job):
    """Such a pass used to end the job with 65 in every process. The pass before it has subnormal
    Adam moments and loads.
    """
    job = training_job(pods=1, PASSES="2")
    job.split(job.make_sample("--lines", "600"))
    job.run()

    def subnormal(data: bytes) -> bytes:
        return gzip.compress(
            gzip.decompress(data)[:-1].rpartition(b"\n")[0] + b"\n0.1 1e-42 1e-42\n"
        )

    changes = [
        ("001/part-000.gz", subnormal),
        ("parameters.json", lambda data: data.replace(b'"adam"', b'"none"')),
    ]
    for number, (name, change) in enumerate(changes):
        directory = job.folder.pass_dir(number)
        (directory / name).write_bytes(change((directory / name).read_bytes()))
        facts = {
            key: value
            for key, value in passes.read_record(directory).items()
            if key not in ("files", "checksum")
        }
        (directory / "done").unlink()
        passes.seal(directory, facts)
    log = job.run(RUN_ID="again")
    attempts = json.loads((job.folder.run_state / "attempts.json").read_text())["attempts"]
    assert [attempt["resume"].get("pass") for attempt in attempts] == [None, "1", "1", "0"]
    assert (
        "describes no pass (optimizer is 'none'" in log
        and "pass-00001 is skipped: two attempts" in log
    )
    assert "Traceback" not in log

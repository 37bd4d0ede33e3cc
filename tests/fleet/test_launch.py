"""A user's own command in two pods: examples/launch, unchanged, with real Paddle. tests/storm kills
its ranks.
"""

import json
import shlex

import pytest

pytestmark = pytest.mark.slow


@pytest.fixture
def launched(training_job, tmp_path):
    """Makes the example in two pods of two processes each."""

    def make(command):
        job = training_job(
            "launch",
            pods=2,
            RUNTIME="launch",
            COMMAND=json.dumps([*shlex.split(command), str(tmp_path / "whole")]),
            PROCESSES="2",
            RESUME=json.dumps(["--resume", "{newest_stem:output/*.pdparams}"]),
            SUCCESS="output/result.json",
        )
        (tmp_path / "whole").mkdir()
        job.make_sample().rename(tmp_path / "whole/sample.csv")
        job.split(tmp_path / "whole/sample.csv", hold_out=0)
        return job

    return make


def test_a_plain_program_that_fails_or_is_not_there_fails_the_job(launched):
    job = launched("python train.py --epochs x --data")
    job.run(2, 2)
    said = job.run(2, 2, RUN_ID="absent", COMMAND='["no-such-program"]')
    assert "PADDLE_NODE_COMMAND begins with 'no-such-program': the image and" in said
    job.start(RUN_ID="forbidden", COMMAND='["./train.py"]')  # The file is not executable.
    assert 126 in job.codes(), job.logs()
    assert "./train.py cannot be started: Permission denied" in job.folder.train_log(0).read_text()
    job.start(RUN_ID="broken", COMMAND='["python", "-c", "import no_such"]')
    assert sorted(job.codes()) == [1, 70], job.logs()
    assert " cannot start and is not tried again: trainer " in job.logs()
    assert (
        " ended with 1: ModuleNotFoundError: No module named 'no_such' (<string>:1), in "
        in job.logs()
    )
    # The command ends with 0, but the file that would prove its success is from another run.
    (job.folder.output / "result.json").write_text("{}")
    job.start(RUN_ID="empty", COMMAND='["true"]', ATTEMPTS="1")
    assert 70 in job.codes(), job.logs()
    assert (
        "output/result.json, by which the command says that it is done, was not written in this "
        "attempt" in job.logs()
    )


def test_a_script_that_starts_the_launcher_itself(launched, tmp_path):
    script = tmp_path / "run.sh"
    script.write_text(
        'python -m paddle.distributed.launch --nnodes 1 train.py --epochs 2 --data "$1"\n'
    )
    job = launched(f"bash {script}")
    job.run()
    lines = map(json.loads, (job.folder.output / "epochs.jsonl").read_text().splitlines())
    assert [(line["ranks"], line["least"], line["most"]) for line in lines] == [(4, 1, 1)] * 2
    assert len(list(job.folder.node(1).glob("launcher/workerlog.*"))) == 2

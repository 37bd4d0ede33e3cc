"""A user's own command in two pods: examples/launch, unchanged, with real Paddle. About 20 s per
test.
"""

import json
import os
import re
import shlex
import signal

import pytest
from training_job import PROJECT

from k8s_charts.spec import TrainingJob
from paddle_aws.operations.images import interpreter

pytestmark = pytest.mark.slow
TYPED = "python -m paddle.distributed.launch --nnodes 1 --devices 0,1 train.py --epochs 12 --data"


@pytest.fixture
def launched(training_job, tmp_path):
    """Makes the example in two pods of two processes each; if `held`, epoch 6 waits for
    `release`.
    """

    def make(command=TYPED, held=False, paddle="2.6", **variables):
        settings = {
            "name": "job",
            "trainers": 2,
            "paddle": paddle,
            "command": command,
            "data": {"source": "s3://a/b"},
        }
        job = training_job(
            "launch",
            pods=2,
            # First on the pods' PATH.
            binaries=interpreter.folder(TrainingJob.parse(settings), PROJECT),
            RUNTIME="launch",
            COMMAND=json.dumps([*shlex.split(command), str(tmp_path / "whole")]),
            PROCESSES="2",
            RESUME=json.dumps(["--resume", "{newest_stem:output/*.pdparams}"]),
            SUCCESS="output/result.json",
            **variables,
        )
        (tmp_path / "whole").mkdir()
        job.make_sample().rename(tmp_path / "whole/sample.csv")
        if held:
            line = "        sampler.set_epoch(epoch)\n"
            released = f"Path({str(tmp_path / 'released')!r}).exists()"
            job.change(
                line,
                f"{line}        while epoch == 6 and not {released}:\n            "
                "__import__('time').sleep(0.01)\n",
            )
        job.split(tmp_path / "whole/sample.csv", hold_out=0)
        return job

    return make


def epochs(job) -> list[dict]:
    return [
        json.loads(line) for line in (job.folder.output / "epochs.jsonl").read_text().splitlines()
    ]


@pytest.mark.parametrize("paddle", ["2.6", "3.3"])
def test_every_record_once_an_epoch_and_the_same_end_after_a_kill(launched, paddle):
    job = launched(
        held=True,
        paddle=paddle,
        METRICS=json.dumps({"loss": "loss ([0-9.]+)", "step": r"^epoch (\d+)"}),
    )
    job.start()
    job.wait_until((job.folder.output / "epoch-005.pdparams").exists)
    # The last rank of the second pod, whose agent logs each process that it starts.
    started = re.findall(r"attempt 1: .* is process (\d+)", job.log(1))
    os.kill(int(started[-1]), signal.SIGKILL)
    job.wait_until(lambda: "attempt 2" in job.log(1))
    job.release()
    said = job.end_with()
    assert "--nnodes 1, --devices 0,1 in the command: the job's own settings win" in said
    assert "DistributedBatchSampler" in said and "set data.shared: true" in said
    assert "attempt 2: all 2 pods are here, training starts from output/epoch-005.pdparams" in said
    counted = [
        (one["epoch"], one["records"], one["least"], one["most"], one["ranks"])
        for one in epochs(job)
    ]
    assert counted == [(epoch, 1600, 1, 1, 4) for epoch in range(12)]
    disturbed = epochs(job)
    assert json.loads((job.folder.output / "result.json").read_text())["accuracy"] > 0.8
    # What rank 0 prints, by attempt: the second one began after the last checkpoint of the first.
    points = [json.loads(line) for line in job.folder.steps(0, 0).read_text().splitlines()]
    assert [
        (points[0]["attempt"], points[0]["step"]),
        (points[-1]["attempt"], points[-1]["step"]),
    ] == [(1, 0), (2, 11)]
    assert (
        min(one["step"] for one in points if one["attempt"] == 2) >= 6
        and 0 < points[-1]["metrics"]["loss"] < 1
    )
    first, second = job.attempts()
    spent = {
        part: first["seconds"].get(part, 0) + second["seconds"].get(part, 0)
        for part in ("waiting", "starting", "training", "lost")
    }
    assert (
        min(each["seconds"][part] for each in (first, second) for part in ("starting", "training"))
        > 0
    )
    assert (
        f"goodput {spent['training'] / sum(spent.values()):.0%} of {sum(spent.values()):.0f} s: "
        in said
    )
    # Another run of the job would continue after the last epoch, and must not pass off the earlier
    # success as its own.
    for name in ("epochs.jsonl", *(path.name for path in job.folder.output.glob("epoch-*"))):
        (job.folder.output / name).unlink()
    job.run(RUN_ID="undisturbed")
    assert epochs(job) == disturbed


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
    assert " failed before its first step and is not tried again: trainer " in job.logs()
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
    assert [(one["ranks"], one["least"], one["most"]) for one in epochs(job)] == [(4, 1, 1)] * 2
    assert len(list(job.folder.node(1).glob("launcher/workerlog.*"))) == 2

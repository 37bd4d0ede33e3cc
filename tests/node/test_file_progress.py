"""The files on the volume decide what a command's attempts resume from and what counts as their
progress.
"""

import json
import os
from pathlib import Path

import pytest
from node_pods import GOOD
from paddle_node import contract, durable, environment
from paddle_node.data.data_manifest import DataManifest, Shard, Source
from paddle_node.runtimes import History
from paddle_node.runtimes.file_progress import FileProgress
from paddle_node.training.passes import Identity

MINE = Identity("data", "program")


@pytest.fixture
def job(tmp_path):
    """A job's folder on a volume, with the job's progress and its messages."""

    class Job:
        said: list[str]
        output: Path = tmp_path / "job/output"

        def progress(self, run: str = "run", **more: str) -> FileProgress:
            environ = GOOD | {
                "JOB_PATH": "/",
                "PADDLE_NODE_RUN_ID": run,
                "PADDLE_NODE_COMMAND": '["true"]',
                "PADDLE_NODE_RESUME": '["--resume={newest:output/*/model-*}"]',
            }
            self.said = []
            return FileProgress(
                environment.parse(environ | {"PADDLE_NODE_ROOT": str(tmp_path)} | more),
                self.said.append,
            )

        def save(self, name: str, content: str = "x") -> Path:
            path = self.output / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
            return path

    return Job()


def test_a_checkpoint_that_does_not_load_is_passed_over_for_the_one_before(job):
    progress = job.progress()
    first = progress.begin(MINE, History())
    assert "newest" not in first.resume and first.description == "from the beginning"
    assert progress.made(1, first) == ""
    for number in (9, 10):
        # The times are equal, so the numbers in the names decide.
        os.utime(job.save(f"a/model-{number}"), ns=(5 * 10**18, 5 * 10**18))
    job.save("a/model-11", "")  # Nothing has been written to it yet.
    assert (
        progress.made(1, first) == "output/a/model-10"
        and progress.changed()
        and not progress.changed()
    )
    second = progress.begin(MINE, History(first=False))
    assert second.resume["newest"] == "output/a/model-10"
    third = progress.begin(MINE, History(first=False, without_progress=[second.resume]))
    assert third.resume["newest"] == "output/a/model-9" and third.passed_over == (
        "output/a/model-10",
    )
    assert (
        "output/a/model-10 is skipped: an attempt that resumed from it failed without progress"
        in job.said
    )
    # Another pod has rank 0 by now: the attempt's own record tells the files' state when the
    # attempt began.
    assert job.progress().made(3, third) == ""


def test_what_the_agent_writes_itself_is_no_checkpoint(job):
    first = job.progress(PADDLE_NODE_RESUME='["{newest:output/*}"]')
    begun = first.begin(MINE, History())
    job.save("node_1/train.log")
    assert list(job.output.iterdir()) and first.made(1, begun) == "" and not first.changed()
    job.save("model-1/weights")
    assert first.made(1, begun) == "output/model-1"


def test_another_program_s_files_and_links_that_lead_out_are_not_resumed_from(job, tmp_path):
    job.progress().begin(MINE, History())
    job.save("a/model-1")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/model-2").write_text("x")
    (job.output / "b").symlink_to(tmp_path / "elsewhere")
    for name, target in (("model-8", "nowhere"), ("model-9", "model-9")):
        (job.output / "a" / name).symlink_to(target)
    other = Identity("data", "another program")
    assert "newest" not in job.progress("other").begin(other, History()).resume
    assert job.said == [
        "1 files of another program or other data are not resumed from; resume_from: any would"
    ]
    found = job.progress("any", PADDLE_NODE_RESUME_FROM="any").begin(other, History())
    assert found.resume["newest"] == "output/a/model-1"


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (["python", "tools/train.py", "--epochs", "3"], "ppnlp/data/batches.py"),
        (["python", "-m", "tools.train"], "ppnlp/data/batches.py"),
        (["bash", "run.sh"], "ppnlp/data/batches.py"),
        (["python", "-m", "paddle.distributed.launch", "--devices", "0", "other.py"], "other.py"),
        (["python", "tools/export.py"], ""),
    ],
)
def test_a_sampler_is_warned_of_where_the_data_is_split_and_the_command_runs_it(
    job, tmp_path, command, named
):
    """A link to nowhere beside the sources used to end the job; files that the command does not
    run used to be named.
    """
    split = DataManifest(
        Source("s3://a/b", 1, ""), "lines", None, 0.0, (Shard(0, ()), Shard(1, ())), (), "now", 0
    )
    durable.write(job.output.parent / "data-manifest.json", split.as_json())
    program = contract.path(contract.UNPACKED, {"PADDLE_NODE_ROOT": str(tmp_path)})
    sampler = "sampler = DistributedBatchSampler(data)\n"
    for name, text in {
        "a_test.py": sampler,
        "other.py": sampler,
        "run.sh": "set -e\nexec python tools/train.py $@\n",
        "tools/train.py": "import sys\nfrom ppnlp.data import (\n    files,\n    batches as b)\n",
        "tools/export.py": "import numpy, json  # a_test, other\nfrom ppnlp import data\n",
        "ppnlp/__init__.py": "",
        "ppnlp/data/__init__.py": "from . import files\n",
        "ppnlp/data/files.py": "from ..data import absent\n",
        "ppnlp/data/batches.py": sampler,
    }.items():
        (program / name).parent.mkdir(parents=True, exist_ok=True)
        (program / name).write_text(text)
    (program / "gone.py").symlink_to("nowhere.py")
    job.progress(PADDLE_NODE_COMMAND=json.dumps(command)).begin(MINE, History())
    said = f"warning: {named} uses DistributedBatchSampler, which divides among the ranks what"
    warnings = [line for line in job.said if line.startswith("warning")]
    assert [line.startswith(said) for line in warnings] == [True] * bool(named)

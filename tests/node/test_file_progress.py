"""What a command's attempts begin with, resume from and count as progress. The pods that do it are
in test_command_files.py.
"""

import json
import os
import sys
import time
from pathlib import Path

import pytest
from node_pods import GOOD
from paddle_node import contract, environment
from paddle_node.runtimes import History, Resumption, Scratch
from paddle_node.runtimes.file_progress import FileProgress
from paddle_node.volume.job_folder import JobFolder
from paddle_node.volume.passes import Identity

MINE = Identity("data", "program")


class Job:
    """A job's folder on a volume, with the job's progress and its messages."""

    def __init__(self, place: Path) -> None:
        self.place, self.folder, self.said = place, JobFolder(place / "job"), []
        self.number = 0

    def progress(self, run: str = "run", **more: str) -> FileProgress:
        environ = GOOD | {
            "JOB_PATH": "/",
            "PADDLE_NODE_RUN_ID": run,
            "PADDLE_NODE_COMMAND": '["true"]',
            "PADDLE_NODE_RESUME": '["--resume={newest:output/*/model-*}"]',
            "PADDLE_NODE_ROOT": str(self.place),
        }
        self.said, self.run = [], run
        return FileProgress(environment.parse(environ | more), self.said.append)

    def begin(
        self, progress: FileProgress, identity: Identity = MINE, gone: bool = True, **more
    ) -> Resumption:
        self.number += 1
        history = History(self.number == 1, number=self.number, gone=gone, **more)
        return progress.begin(identity, history)

    @property
    def output(self) -> Path:
        """Where the present attempt writes."""
        return self.folder.attempt(self.run, self.number) / "output"

    def save(self, name: str, content: str = "x") -> Path:
        path = self.output / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        return path


@pytest.fixture
def job(tmp_path):
    return Job(tmp_path)


def test_progress_from_which_nothing_resumes_is_not_kept(job):
    progress = job.progress(PADDLE_NODE_PROGRESS="output/epoch-*")
    job.begin(progress)
    job.save("epoch-1")
    assert progress.has_progressed() and not progress.save_time()
    saved = job.save("a/model-1").stat().st_mtime_ns
    assert progress.save_time() == saved / 1e9


def test_a_checkpoint_that_does_not_load_is_passed_over_for_the_one_before(job):
    progress = job.progress()
    first = job.begin(progress)
    assert not first.resumed and first.description == "from the beginning"
    assert progress.name_progress(1, first) == ""
    for number in (9, 10):
        # The times are equal, so the numbers in the names decide.
        os.utime(job.save(f"a/model-{number}"), ns=(5 * 10**18, 5 * 10**18))
    job.save("a/model-11", "")  # Nothing has been written to it yet.
    assert (
        progress.name_progress(1, first) == "output/a/model-10"
        and progress.has_progressed()
        and not progress.has_progressed()
    )
    second = job.begin(progress)
    assert second.resumed["newest"] == "output/a/model-10"
    third = job.begin(progress, unloadable=[second.resumed])
    assert third.resumed["newest"] == "output/a/model-9"
    assert third.passed_over == ("output/a/model-10",)
    assert "output/a/model-10 is skipped: two attempts that resumed from it failed" in job.said
    # If none is left, the newest one is tried, which ends the job.
    both = [second.resumed, third.resumed]
    assert job.begin(progress, unloadable=both).resumed == second.resumed
    # Another pod has rank 0 by now: the attempt's folder says what the attempt began with.
    assert job.progress().name_progress(4, third) == ""


@pytest.mark.parametrize(("pattern", "before", "after", "made", "newest"), [
    # An older one that is saved again, whatever its bytes, and one that is only newer by its time.
    ("output/epoch-*", {"epoch-9": "a", "epoch-10": "b"}, {"epoch-9": "c"}, "", "epoch-10"),
    ("output/epoch-*", {"epoch-9": "a", "epoch-10": "b"}, {"epoch-10": "c"}, "", "epoch-10"),
    ("output/epoch-*", {"epoch-9": "a"}, {"epoch-10": "b"}, "epoch-10", "epoch-10"),
    # A program keeps the newest alone.
    ("output/model-*", {"model-9": "a"}, {"model-9": None, "model-10": "b"},
     "model-10", "model-10"),
    # The words in the name say which numbers count.
    ("output/*", {"loss0.93-epoch1": "a"}, {"loss0.12-epoch2": "b"},
     "loss0.12-epoch2", "loss0.12-epoch2"),
    ("output/*/*", {"20261124-1010/epoch_9": "a"}, {"20261124-1111/epoch_2": "b"},
     "", "20261124-1010/epoch_9"),
    ("output/*", {"epoch=3-step=200": "a"}, {"epoch=4-step=100": "b"},
     "epoch=4-step=100", "epoch=4-step=100"),
    # A fixed name: its content counts, even if the name has a number.
    ("output/*/latest", {"ResNet50/latest": "a"}, {"ResNet50/latest": "b"},
     "ResNet50/latest", "ResNet50/latest"),
    ("output/*/latest", {"ResNet50/latest": "a"}, {"ResNet50/latest": "a"}, "", "ResNet50/latest"),
    # Beside a series, the one that changed last is the newest.
    ("output/*", {"epoch_1": "a", "latest": "b"}, {"latest": "c"}, "latest", "latest"),
    ("output/[0-9]*", {"0": "a", "1": "b"}, {"0": "c"}, "", "1"),
    ("output/**/step-*", {"a/b/step-2": "a"}, {"a/step-3": "b"}, "a/step-3", "a/step-3"),
])  # fmt: skip
def test_progress_is_what_lies_beyond_the_best_and_newest_is_no_matter_of_time(
    job, pattern, before, after, made, newest
):
    progress = job.progress(PADDLE_NODE_RESUME=json.dumps([f"{{newest:{pattern}}}"]))
    first = job.begin(progress)
    for name, content in before.items():
        job.save(name, content)
    assert progress.name_progress(1, first).removeprefix("output/") in before
    second = job.begin(progress)
    time.sleep(0.01)
    for name, content in after.items():
        if content is None:
            (job.output / name).unlink()
        else:
            job.save(name, content)
    assert (
        job.progress(PADDLE_NODE_RESUME=json.dumps([f"{{newest:{pattern}}}"]))
        .name_progress(2, second)
        .removeprefix("output/")
        == made
    )
    assert job.begin(progress).resumed["newest"].removeprefix("output/") == newest
    # What has been seen once is no progress ever after.
    for name, content in (before | after).items():
        if content is not None:
            job.save(name, content)
    assert progress.name_progress(3, second) == ""


def test_another_program_s_files_and_links_that_lead_out_are_not_resumed_from(job, tmp_path):
    job.begin(job.progress())
    job.save("a/model-1")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/model-2").write_text("x")
    (job.output / "b").symlink_to(tmp_path / "elsewhere")
    for name, target in (("model-8", "nowhere"), ("model-9", "model-9")):
        (job.output / "a" / name).symlink_to(target)
    other = Identity("data", "another program")
    job.progress("other").begin(other, History(number=2))
    # A link that leads out does not lead anywhere from there, either: `b` counts as it is.
    (said,) = job.said
    assert said.endswith("are not resumed from; resume_from: any would")
    job.progress("any", PADDLE_NODE_RESUME_FROM="any")
    job.number = 2
    resumed = job.begin(job.progress("any", PADDLE_NODE_RESUME_FROM="any"), other)
    assert resumed.resumed["newest"] == "output/a/model-1"


@pytest.mark.parametrize("resolved", [True, False])
def test_a_link_by_the_full_path_leads_to_the_same_file_in_every_attempt_and_afterwards(
    job, resolved
):
    settings = {"PADDLE_NODE_RESUME": '["{newest:output/latest}"]'}
    progress = job.progress(**settings)
    job.begin(progress)
    checkpoint = job.save("deep/checkpoint")
    link = job.output / "latest"
    link.symlink_to(checkpoint.resolve() if resolved else checkpoint)
    for gone in (True, False):
        assert job.begin(progress, gone=gone).resumed["newest"] == "output/latest"
        assert (job.output / "latest").resolve() == (job.output / "deep/checkpoint").resolve()
    progress.publish()
    assert (job.folder.output / "latest").read_text() == "x"
    assert job.begin(job.progress("next", **settings)).resumed["newest"] == "output/latest"
    assert (job.output / "latest").resolve() == (job.output / "deep/checkpoint").resolve()


def test_what_a_lost_pod_may_have_open_is_another_file_and_what_came_late_is_not_taken(job):
    """The file that it has open, one that it did not touch, and one that it makes afterwards."""
    progress = job.progress()
    job.begin(progress)
    job.save("a/untouched")
    job.begin(progress)
    opened = job.save("a/model-1", "before").open("a")
    late = job.output
    job.begin(progress, gone=False)
    assert (job.output / "a/model-1").read_text() == "before"
    late.mkdir(parents=True, exist_ok=True)
    (late / "model-99").write_text("late")
    opened.write("late")
    opened.close()
    assert (job.output / "a/model-1").read_text() == "before"
    taken = job.begin(progress)
    assert taken.resumed["newest"] == "output/a/model-1"
    assert sorted(path.name for path in job.output.rglob("*")) == ["a", "model-1", "untouched"]
    assert [entry.name for entry in job.folder.attempts.iterdir() if entry.is_dir()] == [
        "newest",
        f"run-{job.number}",
    ] or not late.exists()


@pytest.mark.parametrize("count", [2_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_one_look_at_many_matches_opens_few_of_them(job, count):
    progress = job.progress(PADDLE_NODE_RESUME='["{newest:output/model-*}"]')
    job.begin(progress)
    for number in range(count):
        (job.output / f"model-{number}").touch()
    newest = f"model-{count - 1}"
    job.save(newest)
    looking, opened = [True], []
    sys.addaudithook(
        lambda event, words: opened.append(words[0]) if looking and event == "open" else None
    )
    progress.has_progressed()
    looking.clear()
    assert 0 < len(opened) < 100
    assert progress.name_progress(1, Resumption()) == f"output/{newest}"
    assert job.begin(progress).resumed["newest"] == f"output/{newest}"


def test_a_program_that_removed_its_link_to_the_output_is_judged_all_the_same(job):
    progress = job.progress(PADDLE_NODE_CHECKPOINTS="local")
    progress.scratch = Scratch(used=True)
    resumption = job.begin(progress)
    (contract.path(contract.ATTEMPT, progress._pod.environ) / "output").mkdir(parents=True)
    assert progress.find_missing(MINE, resumption, stopped=False) is None
    assert not progress.has_progressed()

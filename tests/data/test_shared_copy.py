"""All jobs share one unpacked copy of a source: complete and exact or absent, whichever job is
killed, late or second.
"""

import gzip
import os
import re
import signal
from pathlib import Path

import pytest
from job_folder import Job, tar
from paddle_node import runtimes
from paddle_node.environment import Attempt
from paddle_node.failure import Failure
from paddle_node.staging import preparation
from paddle_node.volume import data_manifest

SHARED = "shared/0123456789abcdef"
CONTENT = {
    "plain.txt": b"a\nb\n",
    "deep/table.csv": b"1,2\n",
    "images/one.png": b"\x89PNG",
    "images/more/two.png": b"2" * 5000,
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A plain file, a compressed one in a folder, and an archive."""
    place = tmp_path / "source"
    (place / "deep").mkdir(parents=True)
    (place / "plain.txt").write_bytes(CONTENT["plain.txt"])
    (place / "deep/table.csv.gz").write_bytes(gzip.compress(CONTENT["deep/table.csv"]))
    images = [(name, content) for name, content in CONTENT.items() if name.startswith("images")]
    (place / "images.tar.gz").write_bytes(gzip.compress(tar(images)))
    return place


@pytest.fixture
def jobs(tmp_path: Path) -> tuple[Job, Job]:
    return Job(tmp_path / "volume/first"), Job(tmp_path / "volume/second")


def settings(job: Job, **more: str) -> dict[str, str]:
    """The settings that the charts give, with a new identity for each pod."""
    run = {"PADDLE_NODE_RUN_ID": f"run-of-{job.folder.root.name}", "POD_UID": os.urandom(4).hex()}
    return {
        "DATA_FORMAT": "files",
        "PADDLE_NODE_SHARED": SHARED,
        "PADDLE_NODE_DATA_JOB": job.folder.root.name,
        **run,
        **more,
    }


def assert_read(job: Job) -> Path:
    """Asserts that a trainer of the job gets all of the content and nothing else. Returns the
    folder that it reads.
    """
    node = job.trainer(PADDLE_NODE_DATA_JOB=job.folder.root.name, PADDLE_NODE_RUNTIME="collective")
    reading = preparation.prepare(node, print)
    place = reading.folder.data
    assert place is not None and place.is_relative_to(job.folder.root.parent / SHARED)
    assert {
        file.relative_to(place).as_posix(): file.read_bytes()
        for file in place.rglob("*")
        if file.is_file()
    } == CONTENT
    addresses = [f"127.0.0.{index + 1}" for index in range(3)]
    (process,) = runtimes.find_runtime(node.way).processes(reading, addresses, Attempt(1))
    assert process.environ["PADDLE_NODE_DATA"] == str(place)
    return place


def test_the_second_job_of_a_source_reads_the_first_ones_copy_and_other_content_is_another(
    jobs: tuple[Job, Job], source: Path
) -> None:
    first, second = jobs
    first.run(source, 1, **settings(first))
    place = assert_read(first)
    assert "is complete already: nothing to do (4 files" in second.run(
        source, 1, **settings(second)
    )
    assert assert_read(second) == place
    (source / "plain.txt").write_text("another\n")
    second.run(source, 1, **settings(second))
    assert assert_read(first) == place
    manifest = data_manifest.read(second.folder.data_manifest)
    assert manifest and not place.is_relative_to(second.folder.root.parent / manifest.shared)


@pytest.mark.parametrize("at", ["done 1", "done 3", "create 1", "create 2", "create 3"])
def test_a_data_job_that_is_killed_anywhere_leaves_all_or_nothing_and_the_repeat_is_exact(
    jobs: tuple[Job, Job], source: Path, at: str
) -> None:
    job, _ = jobs
    process = job.start(source, 1, **settings(job, AT=at)).stopped()
    assert not job.folder.data_manifest.exists() and not list(
        (job.folder.root.parent / SHARED).glob("*/data-manifest.json")
    )
    process.kill_all()
    job.run(source, 1, **settings(job))
    place = assert_read(job)
    assert [other.name for other in place.parents[1].glob("0.*/")] == [place.parent.name], (
        "the dead pod's files are gone"
    )


def test_of_two_jobs_at_once_the_first_complete_copy_is_both_jobs(
    jobs: tuple[Job, Job], source: Path
) -> None:
    late, early = jobs
    process = late.start(source, 1, **settings(late, AT="create 3")).stopped()
    early.run(source, 1, **settings(early))
    place = assert_read(early)
    os.kill(process.pid, signal.SIGCONT)
    process.ended()
    assert assert_read(late) == place
    assert [folder.name for folder in place.parents[2].glob("[!.]*/")] == [place.parents[1].name], (
        "the late one's is gone"
    )


def test_what_was_damaged_is_nobodys_data_until_a_person_removes_it(
    jobs: tuple[Job, Job], source: Path
) -> None:
    first, second = jobs
    first.run(source, 1, **settings(first))
    place = assert_read(first)
    (place / "images/more/two.png").write_bytes(b"3" * 5000)
    assert re.search(
        r"two\.png is damaged: .*once no job reads",
        second.run(source, 1, ends=65, **settings(second)),
    )
    assert not second.folder.data_manifest.exists()
    (place / "images/more/two.png").write_bytes(b"2" * 4999)
    with pytest.raises(
        Failure, match=r"two\.png is not there with the 5000 bytes that the manifest says"
    ):
        assert_read(first)

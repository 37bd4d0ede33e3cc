"""Whether killed, frozen, shared by several pods or out of space, a split is complete and exact, or
there is none at all.
"""

import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from job_folder import Job, Split
from paddle_node.volume import data_manifest, durable

SETTINGS = {"SHUFFLE_SEED": 1, "HOLD_OUT": 0.1}


def start(job: Job, source: Path, **more: object) -> Split:
    return job.start(source, **SETTINGS, **more)


@pytest.fixture
def sources(tmp_path: Path) -> list[Path]:
    """Two folders of files, some of them large enough to be cut."""
    folders = []
    for word in ("one", "two"):
        folder = tmp_path / word
        folder.mkdir()
        folders.append(folder)
        for name, count in (("a", 50), ("b", 1500), ("c", 300)):
            (folder / name).write_text(
                "".join(f"{word} {name} line {number}\n" for number in range(count))
            )
    return folders


def content(source: Path) -> list[bytes]:
    return sorted(line for path in source.iterdir() for line in path.read_bytes().splitlines())


PHASES = ("started", "0.*", "0.*/*/part*", "0.json", "manifest.json")


def test_killed_at_any_moment_it_leaves_a_complete_split_or_none_and_the_repeat_is_exact(
    job: Job, sources: list[Path]
) -> None:
    chance = random.Random(1)
    began = time.monotonic()
    start(job, sources[0]).ended()
    usual = time.monotonic() - began
    expected = {source: content(source) for source in sources}
    killed = tries = 0
    while killed < 5:
        tries += 1
        source = sources[tries % 2]
        process = start(job, source, PADDLE_NODE_RUN_ID=f"run-{tries}")
        place, phase = job.folder.splits / f"run-{tries}", PHASES[tries % len(PHASES)]
        # Waits until one of the split's steps is visible, then for a random time: this works
        # however busy the machine is.
        while process.poll() is None and phase != "started" and not any(place.glob(phase)):
            pass
        try:
            process.wait(chance.uniform(0, usual / (1 if phase == "started" else 20)))
        except subprocess.TimeoutExpired:
            # Kubernetes kills all processes of a container; here some may outlive the first one,
            # which is worse.
            (os.killpg if chance.random() < 0.5 else os.kill)(process.pid, signal.SIGKILL)
            killed += 1
        process.communicate()
        assert job.records(linked=False) in expected.values(), (
            "what the manifest names is whole, whichever split it is"
        )
        start(job, source).ended()
        assert job.records() == expected[source]


def test_pods_that_set_the_same_link_at_once_all_succeed(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pods:
        for _ in pods.map(lambda n: durable.link(tmp_path / "current", str(n % 2)), range(400)):
            pass
    assert [path.name for path in tmp_path.iterdir()] == ["current"]


def test_two_different_splits_at_once_are_both_complete_and_the_manifest_is_of_one_of_them(
    job: Job, sources: list[Path]
) -> None:
    expected = [content(source) for source in sources]
    for _ in range(5):
        for process in [start(job, source) for source in sources]:
            process.ended()
        assert (
            job.records() in expected
        )  # Compares the links with the manifest, and both with the checksums.
        # Otherwise the split would already be complete in the next round.
        for source in sources:
            os.utime(source / "a")


@pytest.mark.parametrize(
    ("done", "at"),
    [((), "create"), ((0, 2), "put")],
    ids=["the first", "the last, behind the split's manifest"],
)
def test_three_pods_share_a_split_and_one_that_is_killed_is_repeated(
    job: Job, sources: list[Path], done: tuple[int, ...], at: str
) -> None:
    shared = {"SPLIT_PODS": 3, "PADDLE_NODE_RUN_ID": "run"}
    for index in done:
        start(job, sources[0], JOB_COMPLETION_INDEX=index, POD_UID="first", **shared).ended()
    start(
        job, sources[0], JOB_COMPLETION_INDEX=1, POD_UID="first", AT=at, **shared
    ).stopped().kill_all()
    assert not job.folder.data_manifest.exists()
    pods = [
        start(job, sources[0], JOB_COMPLETION_INDEX=index, POD_UID="again", **shared)
        for index in range(3)
    ]
    outputs = [pod.ended() for pod in pods]
    assert job.records() == content(sources[0])
    manifest = data_manifest.read(job.folder.data_manifest)
    counts = [shard.records for shard in manifest.shards]
    assert max(counts) - min(counts) <= 3
    written = ["0.first", "1.first", "2.first"] if done else ["0.again", "1.again", "2.again"]
    assert sorted({file.name.split("/")[2] for file in manifest.files()}) == written
    assert sorted(path.name for path in (job.folder.splits / "run").glob("*/")) == [
        *written,
        "shards",
    ], "no dead pod's is left"
    assert sum("the split is complete when all are" in output for output in outputs) <= 2
    # In another run of the same data job, only index 0 verifies the split.
    again = shared | {"PADDLE_NODE_RUN_ID": "again", "POD_UID": "pod"}
    for index, sentence in (
        (1, "run is complete already: index 0 reads and verifies it"),
        (0, "is complete already: nothing to do"),
    ):
        assert sentence in start(job, sources[0], JOB_COMPLETION_INDEX=index, **again).ended()
    # Three pods make the same bytes again from the same source and settings.
    other = Job(job.folder.root.with_name("other"))
    for index in range(3):
        start(other, sources[0], JOB_COMPLETION_INDEX=index, POD_UID="x", **shared).ended()
    assert other.data() == job.data()


@pytest.mark.parametrize("at", ["create", "put", "_set_links"])
def test_a_data_pod_asleep_in_its_commit_takes_nothing_away_when_it_wakes(
    job: Job, sources: list[Path], at: str
) -> None:
    asleep = start(job, sources[0], PADDLE_NODE_RUN_ID="run", POD_UID="asleep", AT=at).stopped()
    start(job, sources[0], PADDLE_NODE_RUN_ID="run", POD_UID="successor").ended()
    before = job.data(), job.folder.data_manifest.read_bytes()
    os.kill(asleep.pid, signal.SIGCONT)
    asleep.communicate()
    assert asleep.returncode in (0, 1) and job.records() == content(sources[0])
    assert (job.data(), job.folder.data_manifest.read_bytes()) == before


def test_a_data_pod_asleep_while_another_takes_its_place_records_no_file_that_is_gone(
    job: Job, sources: list[Path]
) -> None:
    run = {"PADDLE_NODE_RUN_ID": "run"}
    asleep = start(job, sources[0], POD_UID="asleep", AT="done", **run).stopped()
    successor = start(job, sources[0], POD_UID="successor", AT="create", **run).stopped()
    for pod in (asleep, successor):
        os.kill(pod.pid, signal.SIGCONT)
        pod.communicate()
    assert (asleep.returncode, successor.returncode) == (1, 0)
    assert job.records() == content(sources[0])


def test_a_source_that_changes_between_two_indexes_is_refused_and_a_new_run_heals_it(
    job: Job, sources: list[Path]
) -> None:
    first = {"SPLIT_PODS": 2, "POD_UID": "pod", "PADDLE_NODE_RUN_ID": "first"}
    start(job, sources[0], JOB_COMPLETION_INDEX=0, **first).ended()
    (sources[0] / "a").write_text("other\n")
    output = start(job, sources[0], JOB_COMPLETION_INDEX=1, **first).ended(65)
    assert f"{sources[0]} changed while it was being split" in output
    assert not job.folder.data_manifest.exists()
    for index in range(2):
        start(
            job, sources[0], JOB_COMPLETION_INDEX=index, **first | {"PADDLE_NODE_RUN_ID": "second"}
        ).ended()
    assert job.records() == content(sources[0])


def test_sigterm_ends_it_and_leaves_nothing_half(job: Job, sources: list[Path]) -> None:
    process = start(job, sources[0], AT="done").stopped()
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)
    assert "told to stop; the next run begins this slice anew" in process.ended(143)
    assert not list(job.folder.splits.glob("*/0.*")), "room for the next run"
    assert not job.folder.data_manifest.exists()


def test_a_full_volume_leaves_what_was_complete_and_with_room_the_next_run_is_done(
    tmp_path: Path, sources: list[Path], small_disk: Callable[[Path, str], Path]
) -> None:
    volume = small_disk(tmp_path / "small", "2m")
    job = Job(volume / "job")
    start(job, sources[0]).ended()
    before = job.data(), job.folder.data_manifest.read_bytes()
    free = os.statvfs(volume)
    (volume / "ballast").write_bytes(bytes(free.f_bavail * free.f_frsize - 32_768))
    output = start(job, sources[1]).ended(74)
    assert re.search(
        f"the disk of {job.folder.root}.* is full: nothing that was complete before has changed",
        output,
    )
    assert (job.data(), job.folder.data_manifest.read_bytes()) == before
    (volume / "ballast").unlink()
    start(job, sources[1]).ended()
    assert job.records() == content(sources[1])

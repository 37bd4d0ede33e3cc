"""The data job and the program's copy: pods on different nodes, each a process that works through a client of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import paddle_node
from nfs_machine import Volume, cut_off, server_down, until
from paddle_node import data_manifest, program_copy, staging
from paddle_node.contract import JobFolder

IMAGE = Path(paddle_node.__file__).parents[1]


def source(volume: Volume, name: str, records: int = 3000) -> set[bytes]:
    """A folder of three files beside the job's; returns its records."""
    lines = [f"{name} {number} {'x' * 40}\n".encode() for number in range(records)]
    (volume.a / name).mkdir()
    for part in range(3):
        (volume.a / name / f"{part}.txt").write_bytes(b"".join(lines[part::3]))
    return set(lines)


def pod(place: Path, name: str, run: str, index: int = 0, pods: int = 1, uid: str = "") -> subprocess.Popen[str]:
    """A data job's pod, whose volume is mounted at `place`."""
    environ = {
        "OUT_DIR": f"{place}/job",
        "DATA_SOURCE": f"{place}/{name}",
        "SPLIT_COUNT": "2",
        "SPLIT_PODS": str(pods),
        "JOB_COMPLETION_INDEX": str(index),
        "POD_UID": uid or f"{run}-{index}",
        "PADDLE_NODE_RUN_ID": run,
    }
    return subprocess.Popen(
        [sys.executable, IMAGE / "split_data.py"],
        env=os.environ | {"PYTHONPATH": str(IMAGE)} | environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ended(pod: subprocess.Popen[str]) -> int:
    said, _ = pod.communicate(timeout=120)
    print(said)
    return pod.returncode


def read(place: Path) -> list[bytes]:
    """All records that two trainers find, every file checked against the manifest."""
    folder = JobFolder(place / "job")
    records: list[bytes] = []
    for trainer in range(2):
        shard = staging.stage(folder, trainer, 2)
        records += (line for path in sorted(shard.rglob("*")) if path.is_file() for line in path.read_bytes().splitlines(True))
    return records


def exactly(records: list[bytes], wanted: set[bytes]) -> bool:
    return len(records) == len(wanted) and set(records) == wanted


def test_nfs_indexes_on_three_clients_at_once_make_one_exact_split(volume: Volume) -> None:
    wanted = source(volume, "source")
    for place in (volume.a, volume.b, volume.c):
        assert data_manifest.read(JobFolder(place / "job").data_manifest) is None
    pods = [pod(place, "source", "run", index, 3) for index, place in enumerate((volume.a, volume.b, volume.c))]
    assert [ended(one) for one in pods] == [0, 0, 0]
    for place in (volume.a, volume.b, volume.c):
        assert exactly(read(place), wanted)


def test_nfs_two_different_splits_at_once_leave_one_of_them_whole(volume: Volume) -> None:
    sources = [source(volume, "first"), source(volume, "second")]
    for round_ in range(3):
        pods = [pod(volume.a, "first", f"first-{round_}"), pod(volume.b, "second", f"second-{round_}")]
        assert [ended(one) for one in pods] == [0, 0]
        found = [read(place) for place in (volume.a, volume.b, volume.c)]
        assert found[0] == found[1] == found[2]
        assert any(exactly(found[0], wanted) for wanted in sources)
        newest = data_manifest.read(volume.served / "job" / "data-manifest.json")
        assert newest is not None
        for shard in range(2):
            assert newest.split in JobFolder(volume.served / "job").shard(shard).readlink().parts


def test_nfs_an_index_that_is_done_on_one_node_is_not_done_again_on_another(volume: Volume) -> None:
    wanted = source(volume, "source")
    assert ended(pod(volume.b, "source", "run", 1, 2)) == 0
    mine = volume.b / "job" / "splits" / "run" / "0.json"
    ending = pod(volume.a, "source", "run", 0, 2, "first")
    again = threading.Event()

    def look() -> None:
        while not again.wait(0.01):  # The node's other pods look, too: it remembers that there is nothing.
            mine.exists()

    with ThreadPoolExecutor() as pool:
        pool.submit(look)
        assert ended(ending) == 0
        again.set()
    assert ended(pod(volume.b, "source", "run", 0, 2, "second")) == 0
    assert exactly(read(volume.c), wanted)


def test_nfs_a_server_that_restarts_while_a_pod_splits_costs_time_and_no_record(volume: Volume) -> None:
    wanted = source(volume, "source", 200_000)
    splitting = pod(volume.b, "source", "run")
    until(lambda: list((volume.served / "job").glob("splits/*/*/*/*")))
    with server_down():
        time.sleep(1)
        assert splitting.poll() is None
    assert ended(splitting) == 0
    assert exactly(read(volume.c), wanted)


def test_nfs_an_index_that_was_cut_off_is_done_by_its_replacement_and_harms_nothing_when_it_is_back(volume: Volume) -> None:
    wanted = source(volume, "source", 200_000)
    lost = pod(volume.a, "source", "run", 0, 1, "lost")
    until(lambda: list((volume.served / "job").glob("splits/*/*/*/*")))
    with cut_off("a"):
        assert ended(pod(volume.b, "source", "run", 0, 1, "replacement")) == 0
        assert lost.poll() is None
    ended(lost)
    for place in (volume.a, volume.b, volume.c):
        assert exactly(read(place), wanted)


def test_nfs_a_program_copied_through_two_clients_at_once_is_whole_on_the_third(volume: Volume) -> None:
    for round_ in range(5):
        program = Path(os.environ["TMPDIR"]) / f"{volume.a.name[:20]}-{round_}" / "words"
        (program / "text").mkdir(parents=True)
        for number in range(10):
            (program / "text" / f"module_{number}.py").write_text(f"ROUND, NUMBER = {round_}, {number}\n")
        places = [JobFolder(place / "job") for place in (volume.a, volume.b)]
        read = JobFolder(volume.c / "job").program("words")
        before = program_copy.digest(read) if read.exists() else ""
        start = threading.Barrier(2)

        def copy(place: JobFolder, program: Path = program, start: threading.Barrier = start) -> None:
            start.wait()
            program_copy.copy_program(program, place, "words")

        with ThreadPoolExecutor() as pool:
            list(pool.map(copy, places))
        wanted = program_copy.digest(program)
        assert before != wanted
        assert program_copy.digest(read) == wanted
        assert [program_copy.digest(place.program("words")) for place in places] == [wanted, wanted]
        assert len(list((volume.served / "job" / "programs").glob("*.json"))) == round_ + 1

"""The data job and the program's copy: pods on different nodes, each a process that works through
its node's NFS client.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import paddle_node
from job_folder import Job
from nfs_machine import Volume, at_once, cut_off, server_down, slow_answers, until
from paddle_node.runtimes import History, Resumption
from paddle_node.runtimes.file_progress import FileProgress
from paddle_node.staging import preparation, program_copy, shard_copy
from paddle_node.volume import data_manifest
from paddle_node.volume.job_folder import JobFolder
from paddle_node.volume.passes import Identity

IMAGE = Path(paddle_node.__file__).parents[1]
SLOW = 0.2
"""Seconds that the server takes for each answer when a pod must not end before the test disturbs
it.
"""
MOUNT = "/run/pod"
"""Where every pod mounts the volume."""


def source(volume: Volume, name: str, records: int = 3000) -> set[bytes]:
    """Makes a folder of three files beside the job's folder. Returns its records."""
    lines = [f"{name} {number} {'x' * 40}\n".encode() for number in range(records)]
    (volume.a / name).mkdir()
    for part in range(3):
        (volume.a / name / f"{part}.txt").write_bytes(b"".join(lines[part::3]))
    return set(lines)


def pod(
    place: Path, name: str, run: str, index: int = 0, pods: int = 1, uid: str = "", **more: str
) -> subprocess.Popen[str]:
    """Starts a data job's pod on the node that has the volume at `place`."""
    environ = {
        "OUT_DIR": f"{MOUNT}/job",
        "DATA_SOURCE": f"{MOUNT}/{name}",
        "SPLIT_COUNT": "2",
        "SPLIT_PODS": str(pods),
        "JOB_COMPLETION_INDEX": str(index),
        "POD_UID": uid or f"{run}-{index}",
        "PADDLE_NODE_RUN_ID": run,
        **more,
    }
    mounted = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        'mount --bind "$1" "$2" && shift 2 && exec "$@"',
        "sh",
        place,
        MOUNT,
    ]
    return subprocess.Popen(
        [*mounted, sys.executable, IMAGE / "split_data.py"],
        env=os.environ | {"PYTHONPATH": str(IMAGE)} | environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ended(pod: subprocess.Popen[str]) -> int:
    output, _ = pod.communicate(timeout=120)
    print(output)
    return pod.returncode


def read(place: Path) -> list[bytes]:
    """Returns all records that two trainers find in their shards, after checking every file against
    the manifest.
    """
    records: list[bytes] = []
    for trainer in range(2):
        shard = shard_copy.stage(JobFolder(place / "job"), trainer, 2)
        for path in sorted(shard.rglob("*")):
            records += path.read_bytes().splitlines(True) if path.is_file() else ()
    return records


def parts(volume: Volume) -> list[Path]:
    return list((volume.served / "job" / "splits").glob("*/*/*/part-*"))


def exactly(records: list[bytes], expected: set[bytes]) -> bool:
    return len(records) == len(expected) and set(records) == expected


def test_nfs_indexes_on_three_clients_at_once_make_one_exact_split(volume: Volume) -> None:
    records = source(volume, "source")
    for place in (volume.a, volume.b, volume.c):
        assert data_manifest.read(JobFolder(place / "job").data_manifest) is None
    pods = [
        pod(place, "source", "run", index, 3)
        for index, place in enumerate((volume.a, volume.b, volume.c))
    ]
    assert [ended(process) for process in pods] == [0, 0, 0]
    whole = {file: file.read_bytes() for file in parts(volume)}
    for file in whole:
        file.write_bytes(b"half")
    print(
        [file.stat().st_size for file in (volume.a / "job").rglob("part-*")]
    )  # The client caches this.
    for file, content in whole.items():
        file.write_bytes(content)
    for place in (volume.a, volume.b, volume.c):
        assert exactly(read(place), records)


def test_nfs_two_different_splits_at_once_leave_one_of_them_whole(volume: Volume) -> None:
    sources = [source(volume, "first"), source(volume, "second")]
    for round_ in range(3):
        pods = [
            pod(volume.a, "first", f"first-{round_}"),
            pod(volume.b, "second", f"second-{round_}"),
        ]
        assert [ended(process) for process in pods] == [0, 0]
        records_by_client = [read(place) for place in (volume.a, volume.b, volume.c)]
        assert records_by_client[0] == records_by_client[1] == records_by_client[2]
        assert any(exactly(records_by_client[0], records) for records in sources)


def test_nfs_an_index_that_is_done_on_one_node_is_not_done_again_on_another(volume: Volume) -> None:
    records = source(volume, "source")
    splits = volume.b / "job" / "splits"
    splits.mkdir(parents=True)
    first = pod(volume.a, "source", "run", 0, 2, "first")
    while (
        first.poll() is None
    ):  # The node's other pods look, too, so its client caches the absence.
        (splits / "run" / "0.json").exists()
    assert ended(first) == 0
    assert ended(pod(volume.b, "source", "run", 0, 2, "second")) == 0
    assert ended(pod(volume.b, "source", "run", 1, 2)) == 0
    assert exactly(read(volume.c), records)
    assert [folder.name for folder in (volume.served / "job" / "splits" / "run").glob("0.*/")] == [
        "0.first"
    ]


def test_nfs_a_server_that_restarts_while_a_pod_splits_costs_time_and_no_record(
    volume: Volume,
) -> None:
    records = source(volume, "source", 20_000)
    with slow_answers("b", SLOW):
        splitting = pod(volume.b, "source", "run")
        until(lambda: parts(volume))
        with server_down():
            assert splitting.poll() is None
    assert ended(splitting) == 0
    assert exactly(read(volume.c), records)


def test_nfs_an_index_that_was_cut_off_is_done_by_its_replacement_and_harms_nothing_when_it_is_back(
    volume: Volume,
) -> None:
    records = source(volume, "source", 20_000)
    with slow_answers("a", SLOW):
        lost = pod(volume.a, "source", "run", uid="lost")
        until(lambda: parts(volume))
        with cut_off("a"):
            assert ended(pod(volume.b, "source", "run", uid="replacement")) == 0
            assert lost.poll() is None
    ended(lost)
    for place in (volume.a, volume.b, volume.c):
        assert exactly(read(place), records)


def test_nfs_a_program_copied_through_two_clients_at_once_is_whole_on_the_third(
    volume: Volume,
) -> None:
    for round_ in range(5):
        program = Path(os.environ["TMPDIR"]) / f"{volume.a.name[:20]}-{round_}" / "words"
        (program / "text").mkdir(parents=True)
        for number in range(10):
            (program / "text" / f"module_{number}.py").write_text(
                f"ROUND, NUMBER = {round_}, {number}\n"
            )
        places = [JobFolder(place / "job") for place in (volume.a, volume.b)]
        read = JobFolder(volume.c / "job").program("words")
        before = program_copy.digest(read) if read.exists() else ""
        for end in at_once(
            *(partial(program_copy.copy_program, program, place, "words") for place in places)
        ):
            end.result()
        digest = program_copy.digest(program)
        assert before != digest
        assert program_copy.digest(read) == digest
        assert [program_copy.digest(place.program("words")) for place in places] == [digest, digest]


def test_nfs_pods_that_wait_for_the_data_and_the_program_find_them_within_seconds(
    volume: Volume,
) -> None:
    source(volume, "source")
    program = Path(os.environ["TMPDIR"]) / "quick"
    program.mkdir()
    (program / "train.py").write_text("new\n")
    waiting = Job(volume.b / "job").trainer(
        TRAIN_CONFIG_DIR="quick", CONF_PADDLE_GRADIENT_NUM="2", PADDLE_NODE_DATA_JOB="this"
    )
    messages: list[str] = []
    with ThreadPoolExecutor() as pool:
        ready = pool.submit(preparation.prepare, waiting, messages.append)
        until(lambda: messages)
        splitting = pod(
            volume.a, "source", "run", PROGRAM_FROM=str(program), PADDLE_NODE_DATA_JOB="this"
        )
        assert ended(splitting) == 0
        reading = ready.result(timeout=30)  # A client's memory of a folder lasts 30 s at least.
    assert (reading.program / "train.py").read_text() == "new\n"
    assert reading.identity.data == data_manifest.digest(JobFolder(volume.a / "job").data_manifest)
    assert reading.identity.program == program_copy.digest(program)


def test_nfs_a_command_is_done_by_a_file_that_another_node_has_written_again(
    volume: Volume,
) -> None:
    node = Job(volume.b / "job").trainer(
        PADDLE_NODE_COMMAND='["true"]', PADDLE_NODE_SUCCESS="output/done"
    )
    progress = FileProgress(node, print)
    progress.begin(Identity(), History())
    assert "was not written in this attempt" in (
        progress.find_missing(Identity(), Resumption(), stopped=False) or ""
    )  # The client caches this.
    attempt = node.folder.attempt(node.run_id, 1).relative_to(volume.b)
    (volume.a / attempt / "output" / "done").write_text("now")
    assert progress.find_missing(Identity(), Resumption(), stopped=False) is None


def test_nfs_a_process_of_a_lost_pod_writes_nothing_into_its_successors_files(
    volume: Volume,
) -> None:
    """It writes at once, while its node remembers all names, to what it has open and by path."""
    node = Job(volume.b / "job").trainer(
        PADDLE_NODE_COMMAND='["true"]', PADDLE_NODE_RESUME='["{newest:output/step-*}"]'
    )
    progress = FileProgress(node, print)
    progress.begin(Identity(), History())
    attempt = node.folder.attempt(node.run_id, 1).relative_to(volume.b)
    output = volume.a / attempt / "output"
    names = ("log", "latest", "step-1", "deep/state")
    (output / "deep").mkdir()
    for name in names:
        (output / name).write_text("attempt 1")
    opened = [(output / name).open("r+") for name in names]
    successor = History(first=False, number=2, gone=False)
    assert progress.begin(Identity(), successor).resumed["newest"] == "output/step-1"
    for name, stream in zip(names, opened, strict=True):
        with contextlib.suppress(OSError):
            (output / name).write_text("too late, by path")
        with contextlib.suppress(OSError):
            (output / name).parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):
            stream.write("too late, in the open file")
            stream.flush()
            os.fsync(stream.fileno())
        with contextlib.suppress(OSError):
            stream.close()
    there = volume.served / node.folder.attempt(node.run_id, 2).relative_to(volume.b) / "output"
    assert {name: (there / name).read_text() for name in names} == dict.fromkeys(names, "attempt 1")
    third = progress.begin(Identity(), History(first=False, number=3, gone=True))
    assert third.resumed["newest"] == "output/step-1"
    assert sorted(path.name for path in (there.parents[1] / "run-3/output").rglob("*")) == [
        "deep",
        "latest",
        "log",
        "state",
        "step-1",
    ]

"""When a checkpoint counts as whole, and what happens to one that is not."""

import json
import os
import pickle
import struct
import zipfile
from pathlib import Path

import pytest
from paddle_node.runtimes.checkpoint import CheckpointCheck, file_fault
from test_file_progress import Job


def pickled(path: Path) -> None:
    path.write_bytes(pickle.dumps({"w": b"\0" * 200_000, "step": [1, 2.5, "x"]}, protocol=4))


def zipped(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data", b"\0" * 1000)


def tensors(path: Path) -> None:
    header = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 16)


def text(path: Path) -> None:
    path.write_text('{"global_step": 20}')


@pytest.mark.parametrize(
    "name, make",
    [
        ("a.pdparams", pickled),
        ("a.bin", zipped),
        ("a.safetensors", tensors),
        ("trainer_state.json", text),
    ],
)
def test_a_file_that_is_cut_off_anywhere_is_seen(tmp_path, name, make):
    path = tmp_path / name
    make(path)
    assert file_fault(path) == ""
    whole = path.read_bytes()
    for length in {1, 9, len(whole) // 3, len(whole) // 2, len(whole) - 17, len(whole) - 1}:
        path.write_bytes(whole[: max(length, 5)])
        assert file_fault(path) == "is cut off", length
    path.write_bytes(b"")
    assert file_fault(path) == "is empty"


@pytest.mark.parametrize(
    "name, content",
    [
        ("deep.json", b"[" * 200_000 + b"]" * 200_000),
        ("list.safetensors", struct.pack("<Q", 2) + b"[]"),
        ("empty.safetensors", struct.pack("<Q", 26) + b'{"a":{"data_offsets":[]}} '),
        ("beyond.pt", b"\x80\x04\x8e" + struct.pack("<Q", 2**62) + b"x"),
    ],
)
def test_a_file_that_is_none_of_its_kind_ends_no_agent(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    assert file_fault(tmp_path / name) == "is cut off"
    (tmp_path / "m.index.json").write_text(f'{{"weight_map": {{"w": "{"a" * 300}"}}}}')
    assert file_fault(tmp_path / "m.index.json").endswith("a, which is missing")


def save(folder: Path, ranks: int = 2) -> Path:
    """Saves what a stack does: of all ranks, with shards in an index."""
    folder.mkdir(parents=True)
    (folder / "m.index.json").write_text('{"weight_map": {"w": "m-1.safetensors"}}')
    tensors(folder / "m-1.safetensors")
    for rank in range(ranks):
        zipped(folder / f"rng_{rank}.pth")
    pickled(folder / "scheduler.pdparams")
    return folder


def test_a_folder_needs_its_files_of_every_rank_and_the_shards_of_its_index(tmp_path):
    judge = CheckpointCheck(("m.index.json | x", "rng_{rank}.pth", "scheduler.*"), "", 2)
    whole = save(tmp_path / "checkpoint-1")
    assert judge.fault(whole) == ""
    for name, said in {
        "rng_1.pth": "rng_1.pth is missing",
        "scheduler.pdparams": "scheduler.* is missing",
        "m-1.safetensors": "m.index.json names m-1.safetensors, which is missing",
        "m.index.json": "m.index.json | x is missing",
    }.items():
        torn = save(tmp_path / name)
        (torn / name).unlink()
        assert judge.fault(torn) == said
    # What is read again: only what has changed.
    os.truncate(whole / "m-1.safetensors", 20)
    assert judge.fault(whole) == "m-1.safetensors is cut off"


def test_a_file_overwritten_in_place_is_whole_once_the_last_one_is_the_newest(tmp_path):
    judge = CheckpointCheck(("{stem}.pdopt", "{stem}.states"), "{stem}.states", 2)
    parts = [tmp_path / f"latest.{suffix}" for suffix in ("pdparams", "pdopt", "states")]
    for number, part in enumerate(parts):
        pickled(part)
        os.utime(part, ns=(10**18 + number, 10**18 + number))
    assert judge.fault(parts[0]) == ""
    os.utime(parts[1], ns=(2 * 10**18, 2 * 10**18))
    said = "latest.pdopt is newer than latest.states, which is written last"
    assert judge.fault(parts[0]) == said
    parts[1].unlink()
    assert judge.fault(parts[0]) == "latest.pdopt is missing"


RECIPE = {
    "PADDLE_NODE_RESUME": "",
    "PADDLE_NODE_RESUME_LINE": '["x", "from={newest:output/checkpoint-*}"]',
    "PADDLE_NODE_CHECKPOINT_FILES": '["m.index.json", "rng_{rank}.pth", "scheduler.pdparams"]',
    "PADDLE_NODE_MODEL": "output/model*.safetensors",
    "PADDLE_NODE_RECIPE": "recipe stack: the command has it",
}


def test_a_torn_checkpoint_is_passed_over_set_aside_and_no_progress(tmp_path):
    job = Job(tmp_path)
    progress = job.progress(**RECIPE)
    first = job.begin(progress)
    assert job.said == ["recipe stack: the command has it"] and not first.resumed
    save(job.output / "checkpoint-10", 3)
    assert progress.name_progress(1, first) == "output/checkpoint-10" and progress.has_progressed()
    torn = save(job.output / "checkpoint-20", 3)
    os.truncate(torn / "rng_1.pth", 50)
    assert not progress.has_progressed()
    second = job.begin(progress)
    assert second.resumed["newest"] == "output/checkpoint-10"
    assert second.passed_over == ("output/checkpoint-20",)
    assert job.said[-1] == (
        "output/checkpoint-20 is skipped: rng_1.pth is cut off; it is in "
        "output/not-whole/attempt-2/checkpoint-20 now"
    )
    assert sorted(path.name for path in job.output.iterdir()) == ["checkpoint-10", "not-whole"]
    # A checkpoint of the same name is another one.
    save(job.output / "checkpoint-20", 3)
    assert progress.name_progress(2, second) == "output/checkpoint-20"


def test_a_job_is_done_when_its_final_model_is_there(tmp_path):
    job = Job(tmp_path)
    progress = job.progress(**RECIPE)
    first = job.begin(progress)
    said = progress.find_missing(None, first, stopped=False)
    assert said == "output/model*.safetensors, the command's final model, was not written"
    tensors(job.output / "model-1.safetensors")
    assert progress.find_missing(None, first, stopped=False) is None

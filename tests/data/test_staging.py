"""A trainer reads its shard only when it is exactly what the split wrote."""

import errno
import functools
import json
import operator
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import xxhash
from job_folder import Job, lines_file, table, tar
from paddle_node import retry
from paddle_node.failure import Failure
from paddle_node.staging import preparation
from paddle_node.staging.shard_copy import stage
from paddle_node.volume import data_manifest, durable


@pytest.fixture
def split_job(job: Job, source: Path) -> Job:
    job.split(source)
    return job


PART = "part-00000-00000"


def refused(job: Job, code: int = 65, local: Path | None = None, room: int | None = None) -> str:
    with pytest.raises(Failure) as caught:
        stage(job.folder, 1, 3, local=local, room=room)
    assert caught.value.code == code
    return caught.value.sentence


def staged(job: Job, local: Path, trainer: int = 1) -> tuple[Path, str]:
    """Stages the shard. Returns the folder that the trainer reads, and the messages about it."""
    messages: list[str] = []
    return stage(job.folder, trainer, 3, messages.append, local), "; ".join(messages)


def part_of(job: Job) -> Path:
    """The real path of the only file of shard 1."""
    return (job.folder.shard(1) / PART).resolve()


def changed(path: Path, old: str, new: str) -> None:
    path.write_text(path.read_text().replace(old, new))


DAMAGES = {
    "{part} has 20 bytes, the manifest says 21: split the data again": lambda part, manifest: (
        os.truncate(part, 20)
    ),
    "{part} is damaged: its checksum is not the manifest's": lambda part, manifest: changed(
        part, "4", "5"
    ),
    "{part} is missing, though the manifest lists it: split the data again": (
        lambda part, manifest: part.unlink()
    ),
    "{part.parent} holds more, which the manifest does not list": lambda part, manifest: (
        part.with_name("more").write_text("x")
    ),
    "{manifest} is not valid JSON: delete it and split the data again": lambda part, manifest: (
        manifest.write_text("{")
    ),
    "{manifest} cannot be read: ": lambda part, manifest: (manifest.unlink(), manifest.mkdir()),
    "{manifest} is missing, though a data job has split here: run the data job again": (
        lambda part, manifest: manifest.unlink()
    ),
    "{part} has a checksum by 'blake9': this image knows xxh3_128": lambda part, manifest: changed(
        manifest, "xxh3_128:", "blake9:"
    ),
}


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("sentence", DAMAGES)
def test_damage_is_named_before_any_training(
    split_job: Job, tmp_path: Path, sentence: str, copied: bool
) -> None:
    part, manifest = part_of(split_job), split_job.folder.data_manifest
    DAMAGES[sentence](part, manifest)
    local = tmp_path / "local" if copied else None
    assert refused(split_job, local=local).startswith(sentence.format(part=part, manifest=manifest))
    assert not list((tmp_path / "local").rglob("part*"))


@pytest.mark.parametrize("wrong", table("manifests.yaml"), ids=lambda wrong: wrong["sentence"])
def test_what_is_not_right_in_a_manifest_is_refused_by_name(split_job: Job, wrong: dict) -> None:
    file = split_job.folder.data_manifest
    document = json.loads(file.read_text())
    *path, last = wrong["at"]
    functools.reduce(operator.getitem, path, document)[last] = wrong["is"]
    file.write_text(json.dumps(document))
    assert refused(split_job) == f"{file} cannot be trusted: {wrong['sentence']}"


@pytest.mark.parametrize(
    "change", [("{", "[" * 100_000), ("0.0", "9" * 400), ("1/part", r"0/\ud800")]
)
def test_what_json_cannot_hold_is_refused_and_blocks_no_other_split(
    split_job: Job, change: tuple[str, str]
) -> None:
    folder = split_job.folder
    whole = folder.data_manifest.read_text()
    folder.data_manifest.write_text(whole.replace(*change))
    refused(split_job)
    folder.data_manifest.write_text(whole)
    durable.write(folder.splits / "0/manifest.json", whole.replace(*change))
    (folder.splits / "1/manifest.json").mkdir(parents=True)
    manifest = data_manifest.find(folder, data_manifest.digest(folder.data_manifest))
    assert manifest is not None and manifest.read_text() == whole


def test_its_layout_is_the_contract_of_tools_and_people(job: Job, tmp_path: Path) -> None:
    source = lines_file(tmp_path / "in", 4)
    job.split(source, SHUFFLE_SEED="1", HOLD_OUT="0.1", PADDLE_NODE_RUN_ID="one", POD_UID="pod")
    document = json.loads(job.folder.data_manifest.read_text())
    expected = table("layout.yaml")
    for file in [
        *(shard["files"][0] for shard in expected["shards"]),
        expected["held_out"]["files"][0],
    ]:
        content = (job.folder.root / file["name"]).read_bytes()
        file["checksum"] = f"{data_manifest.CHECKSUM}:{xxhash.xxh3_128(content).hexdigest()}"
    expected["source"] |= {"uri": str(source), "etag": document["source"]["etag"]}
    assert document == expected | {"created": document["created"]}


@pytest.mark.parametrize("layout", ["0/data", "data/0"])
def test_a_volume_filled_by_hand_works_with_a_warning(
    job: Job, tmp_path: Path, layout: str
) -> None:
    folder = job.folder.root / layout
    folder.mkdir(parents=True)
    (folder / "train.txt").write_text("1\n")
    messages: list[str] = []
    assert stage(job.folder, 0, 3, messages.append) == folder
    assert messages == [
        f"warning: {job.folder.data_manifest} is missing, so {folder} is read unchecked"
    ]
    local = stage(job.folder, 0, 3, messages.append, tmp_path / "local")
    assert (local / "train.txt").read_text() == "1\n"
    assert refused(job).startswith(
        f"trainer 1 has no data: {job.folder.data_manifest} is missing, and neither "
    )


def test_names_as_long_as_a_file_system_takes_reach_the_trainer_and_longer_ones_are_cut_safely(
    job: Job, tmp_path: Path
) -> None:
    source = tmp_path / "files"
    source.mkdir()
    chinese, ascii_name = "数" * 80, "a" * 251 + ".txt"
    for name in (chinese, ascii_name):
        (source / name).write_text(name)
    long = ("b" * 300 + "1.txt", "b" * 300 + "2.txt", "/".join(["deep" * 50] * 15) + "/x.txt")
    (source / "more.tar").write_bytes(tar([(name, name.encode()) for name in long]))
    job.split(source, 1, DATA_FORMAT="files")
    local = stage(job.folder, 0, 1, local=tmp_path / "local")
    contents = {
        path.relative_to(local).as_posix(): path.read_text()
        for path in local.rglob("*")
        if path.is_file()
    }
    assert contents[chinese] == chinese and contents[ascii_name] == ascii_name
    assert len(set(contents.values())) == len(contents) == 5, "each has a name of its own"
    assert all(path.endswith(".txt") for path in contents.keys() - {chinese})


def test_of_a_copy_what_is_there_and_good_is_kept_and_the_rest_made_anew(
    job: Job, tmp_path: Path, small_pieces: None
) -> None:
    job.split(lines_file(tmp_path / "in.txt", 60))
    local, message = staged(job, tmp_path / "local", 0)
    parts = sorted(local.iterdir())
    assert (
        message == f"copied {len(parts)} of {len(parts)} files of {job.folder.shard(0)} to {local}"
        and len(parts) >= 3
    )
    kept = parts[0].stat().st_mtime_ns
    parts[1].write_bytes(b"half")
    parts[2].unlink()
    (local / "of-another-job").write_text("x")
    assert staged(job, tmp_path / "local", 0)[1].startswith(f"copied 2 of {len(parts)} files of ")
    assert parts[0].stat().st_mtime_ns == kept
    assert b"".join(path.read_bytes() for path in sorted(local.iterdir())) == job.shard(0)


def test_a_local_disk_that_is_too_small(
    job: Job,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    small_disk: Callable[[Path, str], Path],
) -> None:
    small = small_disk(tmp_path / "local", "64k")
    (tmp_path / "in.txt").write_text("a line\n" * 200_000)
    job.split(tmp_path / "in.txt")
    sentence = (
        f"the shard cannot be copied to {small}: No space left on device; give the pod more "
        "local storage, or set "
    )
    assert refused(job, 74, local=small).startswith(sentence)
    assert not list(small.rglob("*.tmp"))
    # Kubernetes would evict a pod that exceeds its scratch limit.
    sentence = refused(job, 74, local=tmp_path / "other", room=20)
    assert sentence.startswith(
        "the shard has 466669 bytes and PADDLE_NODE_STAGE_ROOM is 20: give the pod more"
    )
    assert not (tmp_path / "other").exists()


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`failing(is_meant, code, times)` makes the first `times` attempts to open a matching file
    fail with `code`.
    """
    opened = Path.open

    def fail(
        is_meant: Callable[[Path], bool], code: int = errno.EIO, times: int = 1_000_000
    ) -> None:
        faults = iter(range(times))

        def open_or_fail(path: Path, *more: object, **named: object) -> object:
            if is_meant(path) and next(faults, None) is not None:
                raise OSError(code, os.strerror(code), str(path))
            return opened(path, *more, **named)

        monkeypatch.setattr(Path, "open", open_or_fail)
        monkeypatch.setattr(Path, "read_text", lambda path: open_or_fail(path).read())

    return fail


@pytest.mark.parametrize("name", ["data-manifest.json", PART])
@pytest.mark.parametrize(
    ("code", "times", "warnings"),
    [(errno.EIO, 3, 3), (errno.EIO, 1_000_000, None), (errno.ENOSPC, 1, 0)],
)
def test_a_pod_outlasts_a_volume_that_fails_for_a_moment(
    split_job: Job,
    failing: Callable,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    code: int,
    times: int,
    warnings: int | None,
) -> None:
    monkeypatch.setattr(retry, "PAUSES", (0.001, 0.002))
    if warnings is None:
        monkeypatch.setattr(retry, "DEADLINE", 0.1)
    node, lines = split_job.trainer(), []
    failing(lambda path: path.name == name, code, times)
    if warnings:
        preparation.prepare(node, lines.append)
        assert len(lines) == warnings and lines[0].endswith(
            f"{name}: Input/output error; trying again in 0.001 s"
        )
        return
    with pytest.raises(OSError, match=os.strerror(code)):
        preparation.prepare(node, lines.append)
    assert bool(lines) == (warnings is None)


def test_of_an_io_error_the_sentence_names_the_disk_that_had_it(
    split_job: Job, tmp_path: Path, failing: Callable
) -> None:
    local, part = tmp_path / "local", part_of(split_job)
    failing(lambda path: path == part)
    with pytest.raises(OSError, match=f"Input/output error: '{part}'"):
        stage(split_job.folder, 1, 3, local=local)
    failing(lambda path: path.is_relative_to(local))
    sentence = f"the shard cannot be copied to {local}: Input/output error; set data.stage to never"
    assert refused(split_job, 1, local=local) == sentence


def test_trainers_wait_for_the_manifest_of_their_own_data_job(
    job: Job, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparation, "POLL", 0.001)
    old, new = ({"PADDLE_NODE_DATA_JOB": name} for name in ("0ld", "new"))
    waiting = {"PADDLE_NODE_PEER_DEADLINE": 0.003, **new}
    first = job.split(source, **old)
    before = job.data()
    preparation.prepare(job.trainer(**old), print)
    late = f"{job.folder.data_manifest} of data job new did not come within 0 s, "
    with pytest.raises(
        Failure,
        match=f"^{late}the one there is of data job 0ld: let this job's own data job run to its "
        "end; ",
    ) as end:
        preparation.prepare(job.trainer(**waiting), print)
    assert end.value.code == 65
    # A data job that finds its split complete claims it as its own.
    again = job.split(source, **new)
    assert (again.created, again.shards, job.data()) == (first.created, first.shards, before)
    preparation.prepare(job.trainer(**waiting), print)
    # Half a manifest, then shards without a manifest, as if a person had put them there.
    for damage in (
        lambda: job.folder.data_manifest.write_text("{"),
        job.folder.data_manifest.unlink,
    ):
        damage()
        with pytest.raises(Failure, match=f"^{late}no complete one is there"):
            preparation.prepare(job.trainer(**waiting), print)
